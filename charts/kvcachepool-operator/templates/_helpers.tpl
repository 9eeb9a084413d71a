{{- define "kvcachepool-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kvcachepool-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "kvcachepool-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kvcachepool-operator.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped objects carry the namespace, too: two releases of one name may live in two namespaces. */}}
{{- define "kvcachepool-operator.clusterName" -}}
{{- printf "%s-%s" (include "kvcachepool-operator.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "kvcachepool-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kvcachepool-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kvcachepool-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "kvcachepool-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "kvcachepool-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kvcachepool-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Account of the RDMA device plugin. */}}
{{- define "kvcachepool-operator.devicePluginAccount" -}}
{{ include "kvcachepool-operator.fullname" . }}-rdma
{{- end -}}

{{- define "kvcachepool-operator.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end -}}

{{/* Names of the pull secrets, separated by commas. */}}
{{- define "kvcachepool-operator.pullSecretNames" -}}
{{- $names := list -}}
{{- range .Values.imagePullSecrets -}}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name")) -}}
{{- end -}}
{{- join "," ($names | uniq) -}}
{{- end -}}

{{/* Watched namespaces, separated by commas; empty for the whole cluster. */}}
{{- define "kvcachepool-operator.namespaces" -}}
{{- if eq .Values.scope "namespaces" -}}
{{- join "," (default (list .Release.Namespace) .Values.namespaces | uniq) -}}
{{- end -}}
{{- end -}}

{{/* "true" when the webhook that completes pods is installed. */}}
{{- define "kvcachepool-operator.injection" -}}
{{- if and .Values.admission.injection.enabled (eq .Values.scope "cluster") -}}true{{- end -}}
{{- end -}}

{{/* Of the webhook configuration and of the Secret with its certificate. */}}
{{- define "kvcachepool-operator.webhookName" -}}
{{- include "kvcachepool-operator.clusterName" . }}-inject
{{- end -}}
