"""The HEALTHCHECK of an image: whether the processes of the plane in this container, or on this machine, are ready.

It finds each `dpuplane serve` of this user in /proc and requests its /readyz. The address comes from the process's own
flags, environment and file. The request uses TLS if the process has certificates; the probe itself needs no
certificate. With an argument, only the process with that id is checked.
"""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import click

from deploy.cli.processes.serve import serve
from deploy.settings.settings import BadSettings, Settings, load_settings

PROGRAM = "dpuplane"
TIMEOUT_S = 4.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "[::1]"}
_NOT_SETTINGS = ("config", "log_level", "log_format")


def serving_processes(proc: Path = Path("/proc")) -> list[int]:
    """Ids of the processes of this user that run `dpuplane serve`."""
    ids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    return [pid for pid in ids if serve_arguments(pid, proc) is not None]


def serve_arguments(pid: int, proc: Path = Path("/proc")) -> list[str] | None:
    """The arguments after `dpuplane serve`. None if the process does not run it, has ended, or is of another user."""
    try:
        if (proc / str(pid)).stat().st_uid != os.getuid():
            return None
        words = _texts(proc / str(pid) / "cmdline")
    except OSError:
        return None
    # A script is run as PYTHON /opt/.../dpuplane serve ...; in `sh -c "dpuplane serve"` they are one word.
    places = [place for place, word in enumerate(words[:3]) if Path(word).name == PROGRAM]
    at = places[0] + 1 if places else len(words)
    return words[at + 1 :] if words[at : at + 1] == ["serve"] else None


def settings_of(pid: int, proc: Path = Path("/proc")) -> Settings:
    """The settings of a process, from its own flags, environment and file. Raises BadSettings, or OSError."""
    environment = dict(word.partition("=")[::2] for word in _texts(proc / str(pid) / "environ"))
    try:
        given = serve.make_context("serve", serve_arguments(pid, proc) or [], resilient_parsing=True).params
    except click.ClickException as error:
        raise BadSettings(error.format_message()) from error
    folder = proc / str(pid) / "cwd"
    config = given["config"] or environment.get("DPUPLANE_CONFIG")
    flags = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    return load_settings(flags, folder / config if config else None, environment)


def fault(pid: int, proc: Path = Path("/proc")) -> str:
    """Why a process is not ready; empty if it is."""
    try:
        settings = settings_of(pid, proc)
        host, port = settings.http
        context = None
        if settings.tls_client_ca is not None:
            context = ssl.create_default_context(cafile=str(proc / str(pid) / "cwd" / settings.tls_client_ca))
            context.check_hostname = False  # the probe dials the listening address, which the certificate need not name
        scheme = "http" if context is None else "https"
        with urlopen(f"{scheme}://{_ANY.get(host, host)}:{port}/readyz", timeout=TIMEOUT_S, context=context) as answer:
            answer.read()
    except (BadSettings, URLError, OSError, ValueError) as error:
        return f"process {pid}: {error}"
    return ""


def main(arguments: Sequence[str]) -> str:
    """The faults, one line per process; empty if all are ready."""
    ids = [int(arguments[0])] if arguments else serving_processes()
    if not ids:
        return "no process of this user runs `dpuplane serve`"
    return "\n".join(filter(None, map(fault, ids)))


def _texts(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
