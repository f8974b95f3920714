{{/* The pod of a role: {"root": the chart's context, "role": ROLE}. */}}

{{- define "dpuplane.environment" -}}
{{- $v := .root.Values -}}
{{- $role := .role -}}
{{- $data := "/var/lib/dpuplane" -}}
{{- $set := dict "role" $role "http" (printf "%s:7081" $v.listenHost) -}}
{{- if eq $v.log "embedded" -}}
{{- $set = merge (dict "data" (printf "%s/plane" $data)) $set -}}
{{- else -}}
{{- $set = merge (dict "kafka" $v.kafka.brokers "topic_prefix" $v.kafka.topicPrefix "state" (printf "%s/state" $data)) $set -}}
{{- with $v.kafka.securityProtocol -}}{{- $_ := set $set "kafka_security_protocol" . -}}{{- end -}}
{{- if $v.kafka.caSecret -}}{{- $_ := set $set "kafka_ca_file" "/etc/dpuplane/kafka-ca/ca.crt" -}}{{- end -}}
{{- if eq $v.kafka.securityProtocol "SASL_SSL" -}}
{{- $_ := set $set "kafka_sasl_mechanism" $v.kafka.saslMechanism -}}
{{- $_ := set $set "kafka_sasl_username" (print $v.kafka.usernamePrefix $role) -}}
{{- $_ := set $set "kafka_sasl_password_file" (print "/etc/dpuplane/kafka-password/" $role) -}}
{{- else if eq $v.kafka.securityProtocol "SSL" -}}
{{- $_ := set $set "kafka_cert_file" "/etc/dpuplane/kafka-tls/tls.crt" -}}
{{- $_ := set $set "kafka_key_file" "/etc/dpuplane/kafka-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if has $role (list "all" "api") -}}{{- $_ := set $set "listen" (printf "%s:7080" $v.listenHost) -}}{{- end -}}
{{- if has $role (list "all" "relay") -}}
{{- $host := printf "$(POD_NAME).%s-%s.%s.svc.%s" (include "dpuplane.name" .root) $role .root.Release.Namespace $v.clusterDomain -}}
{{- $_ := set $set "agents" (printf "%s:7082" $host) -}}
{{- end -}}
{{- if has $role (list "all" "provisioner") -}}
{{- $url := printf "https://%s-images.%s.svc:7083" (include "dpuplane.name" .root) .root.Release.Namespace -}}
{{- $_ := set $set "images" (printf "%s:7083" $v.listenHost) -}}
{{- $_ := set $set "images_url" ($v.images.url | default $url) -}}
{{- if $v.images.existingClaim -}}{{- $_ := set $set "images_dir" (printf "%s/images" $data) -}}{{- end -}}
{{- with $v.images.hosts -}}{{- $_ := set $set "image_hosts" (join "," .) -}}{{- end -}}
{{- end -}}
{{- if eq (include "dpuplane.watches" .) "true" -}}
{{- with $v.images.hosts -}}{{- $_ := set $set "image_hosts" (join "," .) -}}{{- end -}}
{{- $clusters := list "in-cluster" -}}
{{- range $name, $secret := $v.kubernetes.others -}}
{{- $clusters = append $clusters (printf "%s=/etc/dpuplane/kubeconfig-%s/kubeconfig" $name $name) -}}
{{- end -}}
{{- $_ := set $set "kubeconfig" (join "," $clusters) -}}
{{- $_ := set $set "source" $v.kubernetes.source -}}
{{- $_ := set $set "zone_label" $v.kubernetes.zoneLabel -}}
{{- $_ := set $set "fallback_zone" $v.kubernetes.fallbackZone -}}
{{- $_ := set $set "node_address_type" $v.kubernetes.nodeAddressType -}}
{{- $_ := set $set "kubernetes_status" $v.kubernetes.status -}}
{{- $_ := set $set "kubernetes_resources" $v.kubernetes.resources.enabled -}}
{{- $_ := set $set "kubernetes_events" $v.kubernetes.events -}}
{{- $_ := set $set "kubernetes_requests_per_second" $v.kubernetes.requestsPerSecond -}}
{{- if ne $v.kubernetes.cliques "none" -}}
{{- $_ := set $set "kubernetes_cliques" $v.kubernetes.cliques -}}
{{- $_ := set $set "driver_namespace" $v.kubernetes.driverNamespace -}}
{{- end -}}
{{- with $v.kubernetes.users -}}{{- $_ := set $set "kubernetes_users" (join "," .) -}}{{- end -}}
{{- with $v.kubernetes.nodeLabels -}}{{- $_ := set $set "node_labels" (join "," .) -}}{{- end -}}
{{- end -}}
{{- if include "dpuplane.hasTls" .root -}}
{{- $_ := set $set "tls_cert" "/etc/dpuplane/tls/tls.crt" -}}
{{- $_ := set $set "tls_key" "/etc/dpuplane/tls/tls.key" -}}
{{- $_ := set $set "tls_client_ca" "/etc/dpuplane/tls/ca.crt" -}}
{{- with $v.tls.trustDomain -}}{{- $_ := set $set "trust_domain" . -}}{{- end -}}
{{- if $v.tls.revoked -}}{{- $_ := set $set "tls_revoked" "/etc/dpuplane/revoked/revoked.txt" -}}{{- end -}}
{{- else -}}
{{- $_ := set $set "insecure" "true" -}}
{{- end -}}
{{- $set = mustMergeOverwrite $set $v.settings (get $v.roles $role).settings -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: DPUPLANE_LOG_FORMAT
  value: {{ $v.logFormat }}
{{- range $name, $value := $set }}
- name: DPUPLANE_{{ upper $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}

{{/* Whether a role calls the API server of this cluster. */}}
{{- define "dpuplane.watches" -}}
{{- if and .root.Values.kubernetes.enabled (has .role (list "all" "kubernetes")) -}}true{{- end -}}
{{- end }}

{{/* The volumes of Secrets and the ConfigMap, each with its mount: {"volumes": [...], "mounts": [...]} as JSON. */}}
{{- define "dpuplane.files" -}}
{{- $v := .root.Values -}}
{{- $volumes := list (dict "name" "tmp" "emptyDir" (dict "sizeLimit" "256Mi")) -}}
{{- if include "dpuplane.hasTls" .root -}}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" (include "dpuplane.tlsSecret" .) "defaultMode" 288)) -}}
{{- end -}}
{{- if $v.tls.revoked -}}
{{- $volumes = append $volumes (dict "name" "revoked" "configMap" (dict "name" (printf "%s-revoked" (include "dpuplane.name" .root)))) -}}
{{- end -}}
{{- if eq $v.log "kafka" -}}
{{- with $v.kafka.caSecret -}}
{{- $item := dict "key" "ca.crt" "path" "ca.crt" -}}
{{- $volumes = append $volumes (dict "name" "kafka-ca" "secret" (dict "secretName" . "defaultMode" 288 "items" (list $item))) -}}
{{- end -}}
{{- if eq $v.kafka.securityProtocol "SASL_SSL" -}}
{{- $item := dict "key" .role "path" .role -}}
{{- $volumes = append $volumes (dict "name" "kafka-password" "secret" (dict "secretName" $v.kafka.passwordSecret "defaultMode" 288 "items" (list $item))) -}}
{{- else if eq $v.kafka.securityProtocol "SSL" -}}
{{- $volumes = append $volumes (dict "name" "kafka-tls" "secret" (dict "secretName" (print $v.kafka.certificateSecretPrefix .role) "defaultMode" 288)) -}}
{{- end -}}
{{- end -}}
{{- if eq (include "dpuplane.watches" .) "true" -}}
{{- range $name, $secret := $v.kubernetes.others -}}
{{- $item := dict "key" "kubeconfig" "path" "kubeconfig" -}}
{{- $volumes = append $volumes (dict "name" (print "kubeconfig-" $name) "secret" (dict "secretName" $secret "defaultMode" 288 "items" (list $item))) -}}
{{- end -}}
{{- end -}}
{{- $mounts := list -}}
{{- range $volumes -}}
{{- if eq .name "tmp" -}}
{{- $mounts = append $mounts (dict "name" .name "mountPath" "/tmp") -}}
{{- else -}}
{{- $mounts = append $mounts (dict "name" .name "mountPath" (print "/etc/dpuplane/" .name) "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- dict "volumes" $volumes "mounts" $mounts | toJson -}}
{{- end }}

{{- define "dpuplane.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ if include "dpuplane.hasTls" .root }}HTTPS{{ else }}HTTP{{ end }}
timeoutSeconds: 10
{{- end }}

{{- define "dpuplane.pod" -}}
{{- $v := .root.Values -}}
{{- $role := .role -}}
{{- $files := include "dpuplane.files" . | fromJson -}}
metadata:
  labels:
    {{- include "dpuplane.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
    {{- with $v.pods.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ $role }}
    {{- with $v.pods.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "dpuplane.name" .root }}-{{ $role }}
  automountServiceAccountToken: {{ eq (include "dpuplane.watches" .) "true" }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $v.pods.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $v.pods.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $v.pods.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.pods.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "dpuplane.selector" .root | nindent 10 }}
          app.kubernetes.io/component: {{ $role }}
  containers:
    - name: {{ $role }}
      image: {{ include "dpuplane.image" .root }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: [serve]
      env: {{- include "dpuplane.environment" . | nindent 8 }}
      ports:
        - {name: http, containerPort: 7081}
        {{- if has $role (list "all" "api") }}
        - {name: grpc, containerPort: 7080}
        {{- end }}
        {{- if has $role (list "all" "relay") }}
        - {name: agents, containerPort: 7082}
        {{- end }}
        {{- if has $role (list "all" "provisioner") }}
        - {name: images, containerPort: 7083}
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      # The process answers /healthz before it has folded the log, which may take minutes after the loss of its state.
      startupProbe:
        {{- include "dpuplane.probe" (dict "root" .root "path" "/healthz") | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        {{- include "dpuplane.probe" (dict "root" .root "path" "/healthz") | nindent 8 }}
        periodSeconds: 15
        failureThreshold: 4
      readinessProbe:
        {{- include "dpuplane.probe" (dict "root" .root "path" "/readyz") | nindent 8 }}
        periodSeconds: 5
        failureThreshold: 2
      resources: {{- toYaml (get $v.roles $role).resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/dpuplane}
        {{- if and $v.images.existingClaim (has $role (list "all" "provisioner")) }}
        - {name: images, mountPath: /var/lib/dpuplane/images}
        {{- end }}
        {{- toYaml $files.mounts | nindent 8 }}
  volumes:
    {{- toYaml $files.volumes | nindent 4 }}
    {{- if and $v.images.existingClaim (has $role (list "all" "provisioner")) }}
    - name: images
      persistentVolumeClaim: {claimName: {{ $v.images.existingClaim }}}
    {{- end }}
    {{- if ne $v.log "embedded" }}
    - name: data
      emptyDir: {sizeLimit: {{ $v.pods.stateSize }}}
    {{- else if $v.embedded.existingClaim }}
    - name: data
      persistentVolumeClaim: {claimName: {{ $v.embedded.existingClaim }}}
    {{- end }}
{{- end }}
