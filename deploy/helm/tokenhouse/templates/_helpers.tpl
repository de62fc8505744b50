{{- define "tokenhouse.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tokenhouse.selector" -}}
app.kubernetes.io/name: tokenhouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "tokenhouse.labels" -}}
app.kubernetes.io/name: tokenhouse
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
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

{{- define "tokenhouse.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Where the database is; secrets are files. */}}
{{- define "tokenhouse.environment" -}}
- { name: TOKENHOUSE_STORAGE, value: {{ .Values.database.url | quote }} }
- { name: TOKENHOUSE_POSTGRES_PASSWORD_FILE, value: /run/secrets/tokenhouse/postgres_password }
- { name: TOKENHOUSE_SECRET_FILE, value: /run/secrets/tokenhouse/secret }
{{- end }}

{{- define "tokenhouse.mounts" -}}
- { name: secrets, mountPath: /run/secrets/tokenhouse, readOnly: true }
- { name: data, mountPath: /data }
- { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "tokenhouse.volumes" -}}
# Mode 0440, in decimal.
- name: secrets
  secret: { secretName: {{ .Values.existingSecret }}, defaultMode: 288 }
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- end }}
