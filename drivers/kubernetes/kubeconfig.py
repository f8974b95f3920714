"""The reasons for which a kubeconfig, or the credentials that it names, cannot be used.

The library checks little of what it reads: a file of another kind ends as a TypeError. Its messages have several lines,
and name its own functions. Here each fault is one line about the file.
"""

from __future__ import annotations

import ssl

import yaml

from eventstore.errors import FatalError
from projections.field_checks import PATH_QUOTED, quoted
from projections.kubernetes.status_body import shortened

PROGRAM_S = 30.0
"""Timeout of a program that gives credentials."""
_WHY_MAX = 300
"""Maximum length of a reason: it may contain the output of a program."""


class KubeconfigInvalid(FatalError):
    """The kubeconfig cannot be read, or names no usable cluster. `why` is the reason, in one line."""

    def __init__(self, kubeconfig: str, why: str) -> None:
        super().__init__(f"kubeconfig: {quoted(kubeconfig, PATH_QUOTED)} cannot be used: {why}")
        self.why = why


def unusable(error: Exception) -> str:
    """Why a kubeconfig or its credentials cannot be used, in one line."""
    from kubernetes_asyncio.config import ConfigException

    match error:
        case TimeoutError():
            return f"its program has given no credentials within {PROGRAM_S:.0f} s"
        case UnicodeDecodeError():
            return "it is not a text file"
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark() as mark):
            return f"line {mark.line + 1} is not valid YAML: {error.problem}"
        case yaml.YAMLError():
            return "it is not valid YAML"
        case ssl.SSLError():
            return f"a certificate or key is not valid PEM: {error.reason or error.strerror}"
        case OSError():
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        case ConfigException() if str(error):
            text = str(error).removeprefix("Invalid kube-config file. ").replace("does not exists", "does not exist")
            return shortened(" ".join(text.split()), _WHY_MAX)
    return f"a cluster, user or context in it is incomplete or has a wrong type ({type(error).__name__})"
