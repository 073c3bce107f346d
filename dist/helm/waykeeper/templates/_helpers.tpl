{{/* The name of all objects: that of the release. */}}
{{- define "waykeeper.name" -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which objects find the pods. They never change, so they have no version. */}}
{{- define "waykeeper.selector" -}}
app.kubernetes.io/name: waykeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "waykeeper.labels" -}}
{{ include "waykeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "waykeeper.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "waykeeper.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "waykeeper.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* A key of TOML: one that is not bare, such as the name of a pod's tenant, is quoted as a text of JSON. */}}
{{- define "waykeeper.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* A table of TOML: first its own keys, then its tables. Numbers, texts, switches and lists of them are written alike in JSON
and TOML; toToml would write whole numbers as 1.0. Takes `path`, which is empty or ends in a dot, and `table`. */}}
{{- define "waykeeper.table" -}}
{{- $path := .path -}}
{{- range $key, $value := .table }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "waykeeper.key" $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- range $key, $value := .table }}
{{- if kindIs "map" $value }}

[{{ $path }}{{ include "waykeeper.key" $key }}]
{{- include "waykeeper.table" (dict "path" (printf "%s%s." $path (include "waykeeper.key" $key)) "table" $value) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* waykeeper.toml: the configuration with the keys that follow from other values, then the tenants. */}}
{{- define "waykeeper.config" -}}
{{- $own := dict
  "limits" (dict "dca_ways" .Values.msr.enabled "dca_ports" (ternary .Values.pciConfig.ports "none" .Values.pciConfig.enabled))
  "metrics" (dict "listen" (ternary (printf "%s:%d" .Values.metrics.address (int .Values.metrics.port)) "off" .Values.metrics.enabled)) -}}
{{- include "waykeeper.table" (dict "path" "" "table" (mergeOverwrite (deepCopy .Values.config) $own)) }}
{{- range .Values.tenants }}

[[tenant]]
{{- include "waykeeper.table" (dict "path" "tenant." "table" .) }}
{{- end }}
{{- end -}}
