{{/* Rules that bind several values; values.schema.json has those of single values. */}}

{{- define "dpuplane.check" -}}
{{- $v := .Values -}}
{{- if and (eq $v.log "kafka") (not $v.kafka.brokers) -}}
{{- fail "kafka.brokers: must be HOST:PORT,... because log is kafka" -}}
{{- end -}}
{{- if and (eq $v.log "embedded") $v.kafka.brokers -}}
{{- fail "kafka.brokers: must be empty because log is embedded; did you mean log: kafka?" -}}
{{- end -}}
{{- if eq $v.log "kafka" -}}
{{- if lt (int $v.roles.api.replicas) 1 -}}
{{- fail "roles.api.replicas: must be at least 1, because only role api takes commands" -}}
{{- end -}}
{{- if and (eq $v.kafka.securityProtocol "SASL_SSL") (not $v.kafka.passwordSecret) -}}
{{- fail "kafka.passwordSecret: must name a Secret because kafka.securityProtocol is SASL_SSL" -}}
{{- end -}}
{{- if and (eq $v.kafka.securityProtocol "SSL") (not $v.kafka.certificateSecretPrefix) -}}
{{- fail "kafka.certificateSecretPrefix: must be given because kafka.securityProtocol is SSL" -}}
{{- end -}}
{{- end -}}
{{- if eq $v.tls.source "certManager" -}}
{{- if not $v.tls.issuer.name -}}
{{- fail "tls.issuer.name: must name an issuer of cert-manager because tls.source is certManager" -}}
{{- end -}}
{{- if not $v.tls.trustDomain -}}
{{- fail "tls.trustDomain: must be given because tls.source is certManager" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.tls.source "secret") (not $v.tls.secretPrefix) -}}
{{- fail "tls.secretPrefix: must be given because tls.source is secret" -}}
{{- end -}}
{{- if hasKey $v.kubernetes.others $v.kubernetes.source -}}
{{- fail (printf "kubernetes.others: '%s' is the name of this cluster, kubernetes.source" $v.kubernetes.source) -}}
{{- end -}}
{{- if and $v.kubernetes.others (not $v.kubernetes.enabled) -}}
{{- fail "kubernetes.others: needs kubernetes.enabled" -}}
{{- end -}}
{{- if and (eq $v.tls.source "none") $v.tls.revoked -}}
{{- fail "tls.revoked: needs tls.source certManager or secret" -}}
{{- end -}}
{{- if and (eq $v.tls.source "secret") $v.serviceMonitor.enabled (not $v.serviceMonitor.tlsSecret) -}}
{{- fail "serviceMonitor.tlsSecret: must name a Secret because tls.source is secret" -}}
{{- end -}}
{{- end }}
