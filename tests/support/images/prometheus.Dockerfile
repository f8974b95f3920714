# Prometheus as the image prom/prometheus has it, from the distribution's own programs.
ARG BASE
FROM ${BASE}
COPY prometheus promtool /bin/
VOLUME /prometheus
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
