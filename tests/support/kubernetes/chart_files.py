"""A Helm chart of a service, packed as a repository has it. By DPF's contract for charts, it makes a DaemonSet with the
given settings, and a Service for config ports.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable

NAME = "service"
_DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .Release.Name }}
spec:
  selector:
    matchLabels:
      app: {{ .Release.Name }}
  template:
    metadata:
      labels:
        app: {{ .Release.Name }}
        {{- toYaml .Values.serviceDaemonSet.labels | nindent 8 }}
    spec:
      containers:
        - name: service
          image: {{ .Values.image }}
"""
_SERVICE = """
{{- if .Values.exposedPorts }}
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
  labels:
    {{- toYaml .Values.exposedPorts.labels | nindent 4 }}
spec:
  type: NodePort
  selector:
    app: {{ .Release.Name }}
  ports:
    - name: http
      port: 8080
      protocol: TCP
{{- end }}
"""
_VALUES = "image: none\nserviceDaemonSet: {}\n"


def packed(version: str) -> bytes:
    """The chart as a file."""
    files = {
        "Chart.yaml": f"apiVersion: v2\nname: {NAME}\nversion: {version}\n",
        "values.yaml": _VALUES,
        "templates/daemon-set.yaml": _DAEMON_SET,
        "templates/service.yaml": _SERVICE,
    }
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return found.getvalue()


def index(versions: Iterable[str]) -> bytes:
    """The index of a repository with these versions of the chart, whose files lie beside it."""
    entries = "".join(
        f"  - apiVersion: v2\n    name: {NAME}\n    version: {version}\n    urls: [{NAME}-{version}.tgz]\n"
        for version in versions
    )
    return f"apiVersion: v1\nentries:\n  {NAME}:\n{entries}".encode()
