{{- define "tokenhouse.name" -}}
{{- if contains "tokenhouse" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-tokenhouse" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tokenhouse.selector" -}}
app.kubernetes.io/name: tokenhouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tokenhouse.labels" -}}
{{ include "tokenhouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tokenhouse.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end }}

{{/* What the service and the migration need to reach the database. */}}
{{- define "tokenhouse.databaseEnv" -}}
- name: TOKENHOUSE_STORAGE
  value: {{ .Values.postgres.url | quote }}
- name: TOKENHOUSE_POSTGRES_PASSWORD
  valueFrom: { secretKeyRef: { name: {{ .Values.secretName }}, key: postgres-password } }
- name: TOKENHOUSE_SECRET
  valueFrom: { secretKeyRef: { name: {{ .Values.secretName }}, key: secret } }
{{- end }}

{{- define "tokenhouse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "tokenhouse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
