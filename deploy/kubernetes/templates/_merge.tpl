{{- /*
Merges `patch` into `object` as kustomize does: null removes a field, items of lists are merged by path, name or port, and
other lists are replaced.
*/}}
{{- define "merge" }}
{{- $object := .object }}
{{- range $field, $new := .patch }}
  {{- $old := get $object $field }}
  {{- if kindIs "invalid" $new }}
    {{- $_ := unset $object $field }}
  {{- else if and (kindIs "map" $old) (kindIs "map" $new) }}
    {{- include "merge" (dict "object" $old "patch" $new) }}
  {{- else if and $old (kindIs "slice" $old) (kindIs "map" (first $old)) (include "key" (first $old)) }}
    {{- range $item := $new }}
      {{- $same := dict }}
      {{- range $old }}
        {{- if eq (include "key" .) (include "key" $item) }}{{ $same = . }}{{ end }}
      {{- end }}
      {{- if $same }}
        {{- include "merge" (dict "object" $same "patch" $item) }}
      {{- else }}
        {{- $old = append $old $item }}
      {{- end }}
    {{- end }}
    {{- $_ := set $object $field $old }}
  {{- else }}
    {{- $_ := set $object $field $new }}
  {{- end }}
{{- end }}
{{- end }}

{{- /*
The name of the release's objects. A release of another name gets names of its own, so that two can live in one cluster, for
example for two kinds of nodes.
*/}}
{{- define "name" }}
{{- $name := .Release.Name }}
{{- if not (contains "pod-index" $name) }}{{ $name = printf "%s-pod-index" $name }}{{ end }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /*
Replaces `pod-index` at the start of the names that the objects give each other by `name`. Objects select the pods of their own
release, unless that has the usual name: the selector of a DaemonSet cannot be changed.
*/}}
{{- define "rename" }}
{{- $object := .object }}
{{- $name := .name }}
{{- if ne $name "pod-index" }}
  {{- $_ := set $object.metadata "name" (regexReplaceAll "^pod-index" $object.metadata.name $name) }}
  {{- with $object.roleRef }}{{ $_ := set . "name" (regexReplaceAll "^pod-index" .name $name) }}{{ end }}
  {{- range $object.subjects }}{{ $_ := set . "name" (regexReplaceAll "^pod-index" .name $name) }}{{ end }}
  {{- $own := dict "app.kubernetes.io/instance" (index $object.metadata.labels "app.kubernetes.io/instance") }}
  {{- $spec := default (dict) $object.spec }}
  {{- with $spec.selector }}{{ $_ := set . "matchLabels" (merge .matchLabels $own) }}{{ end }}
  {{- with $spec.template }}
    {{- $_ := set .metadata "labels" (merge .metadata.labels $own) }}
    {{- $_ := set .spec "serviceAccountName" (regexReplaceAll "^pod-index" .spec.serviceAccountName $name) }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* What identifies an item of a list; empty, if nothing does. */}}
{{- define "key" }}{{ coalesce .mountPath .containerPort .name | default "" }}{{ end }}
