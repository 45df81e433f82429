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

{{- /* What identifies an item of a list; empty, if nothing does. */}}
{{- define "key" }}{{ coalesce .mountPath .containerPort .name | default "" }}{{ end }}
