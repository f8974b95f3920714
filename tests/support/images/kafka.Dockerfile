# Kafka as the image apache/kafka has it, from jars and a Java runtime that pip brought: same settings, same folders.
ARG BASE
FROM ${BASE}
COPY opt /opt
VOLUME /var/lib/kafka/data
EXPOSE 9092
ENTRYPOINT ["python3", "/opt/kafka_entry.py"]
