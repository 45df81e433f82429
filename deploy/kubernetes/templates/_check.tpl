{{- /*
Refuses components whose agents would not start, before they replace agents that run.
*/}}
{{- define "check" }}
{{- $chosen := .Values.components }}
{{- $socket := index $chosen "kubelet-socket" }}
{{- if and $socket $chosen.kubelet }}
  {{- fail "components.kubelet and components.kubelet-socket are both true, but an agent reads either the kubelet's port or its socket. Set one of them to false." }}
{{- end }}
{{- if and $socket (index $chosen "node-checkpoints") }}
  {{- fail "components.node-checkpoints and components.kubelet-socket are both true, but with kubelet-socket the agents run as root without the right to write to the directory of node-checkpoints. Set components.node-checkpoints to false: these agents know their pods from the kubelet." }}
{{- end }}
{{- if and (index $chosen "client-reviews") (not $chosen.tls) (not (include "given" (dict "values" .Values "flags" (list "--tls-cert-file")))) }}
  {{- fail "components.client-reviews is true and components.tls is false, but clients send tokens over TLS only. Set components.tls to true (it needs the Secret pod-index-tls), or components.client-reviews to false." }}
{{- end }}
{{- range $asks := list "client-reviews" "resources" }}
  {{- if and $socket (index $chosen $asks) (not (include "given" (dict "values" $.Values "flags" (list "--api-server" "--kubeconfig")))) }}
    {{- printf "components.%s and components.kubelet-socket are both true, but %s asks the API server, which the agents do not read with kubelet-socket. Add --api-server to extraArgs, or set one of them to false." $asks $asks | fail }}
  {{- end }}
{{- end }}
{{- end }}

{{- /*
Not empty, if the values give the agents one of these flags: in extraArgs, or as its variable in extraEnv. A configuration file may
have any of them.
*/}}
{{- define "given" }}
{{- $values := .values }}
{{- range $flag := append .flags "--config" }}
  {{- range $values.extraArgs }}
    {{- if or (eq . $flag) (hasPrefix (printf "%s=" $flag) .) }}yes{{ end }}
  {{- end }}
  {{- $variable := trimPrefix "--" $flag | replace "-" "_" | upper | printf "POD_INDEX_%s" }}
  {{- range $values.extraEnv }}
    {{- if eq .name $variable }}yes{{ end }}
  {{- end }}
{{- end }}
{{- end }}
