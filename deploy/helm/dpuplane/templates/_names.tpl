{{/* Names, labels and lists that several templates use. */}}

{{- define "dpuplane.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The name of a cluster-wide object: two releases of one name may be in two namespaces. */}}
{{- define "dpuplane.clusterName" -}}
{{ .Release.Namespace }}-{{ include "dpuplane.name" . }}
{{- end }}

{{- define "dpuplane.selector" -}}
app.kubernetes.io/name: dpuplane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dpuplane.labels" -}}
{{ include "dpuplane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The roles that have a workload, as JSON: {"roles": [...]}. */}}
{{- define "dpuplane.roles" -}}
{{- $roles := list -}}
{{- if eq .Values.log "embedded" -}}
{{- $roles = list "all" -}}
{{- else -}}
{{- range $role := list "api" "relay" "provisioner" "decisions" "kubernetes" -}}
{{- $isOn := or (ne $role "kubernetes") $.Values.kubernetes.enabled -}}
{{- if and $isOn (gt (int (get $.Values.roles $role).replicas) 0) -}}
{{- $roles = append $roles $role -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "roles" $roles | toJson -}}
{{- end }}

{{/* The role whose pods have the API, the relay or the Kubernetes edge. */}}
{{- define "dpuplane.component" -}}
{{- if eq .root.Values.log "embedded" -}}all{{- else -}}{{ .role }}{{- end -}}
{{- end }}

{{- define "dpuplane.hasTls" -}}
{{- if ne .Values.tls.source "none" -}}true{{- end -}}
{{- end }}

{{- define "dpuplane.tlsSecret" -}}
{{- if eq .root.Values.tls.source "certManager" -}}
{{ include "dpuplane.name" .root }}-{{ .role }}-tls
{{- else -}}
{{ .root.Values.tls.secretPrefix }}{{ .role }}
{{- end -}}
{{- end }}

{{- define "dpuplane.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}
