{{- define "millrace.name" -}}
{{- if contains "millrace" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-millrace" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "millrace.isCluster" -}}
{{- if gt (int .Values.nodes) 1 }}yes{{ end }}
{{- end }}

{{- define "millrace.scheme" -}}
{{- if .Values.secrets.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
