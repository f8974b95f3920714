"""Process 1 of the guest: it runs the commands that the test sends over a virtio-serial port, one at a time.

A request is a line of JSON: a command, or a module of the tree with the arguments of its `main`, and a time limit. The
answer is another one. The first line of each boot is its boot id. Processes that a command leaves behind go on, and are
reaped. A module runs in a fork of this process, which keeps it imported: an import takes up to 20 s on an emulated
processor.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

PORT = "executor"


def main() -> None:
    os.environ |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/run", "TMPDIR": "/run", "LANG": "C.UTF-8"}
    os.chdir(sys.argv[1])
    sys.path[0] = sys.argv[1]
    with _port().open("r+b", buffering=0) as port:
        _write(port, {"boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip()})
        while True:
            request = json.loads(_line(port))
            _write(port, _called(request) if "module" in request else _ran(request))
            _reap()


def _port() -> Path:
    """The device of the port, once its driver has named it."""
    while True:
        for folder in Path("/sys/class/virtio-ports").glob("*"):
            if (folder / "name").exists() and (folder / "name").read_text().strip() == PORT:
                return Path("/dev") / folder.name
        time.sleep(0.05)


def _line(port: Any) -> bytes:
    """The next line. A port reads as empty while the other side is not connected."""
    found = b""
    while not found.endswith(b"\n"):
        part = port.read(1)
        if not part:
            time.sleep(0.05)
        found += part or b""
    return found


def _write(port: Any, answer: dict[str, Any]) -> None:
    rest = json.dumps(answer).encode() + b"\n"
    while rest:
        rest = rest[port.write(rest) :]


def _ran(request: dict[str, Any]) -> dict[str, Any]:
    try:
        ran = subprocess.run(
            request["command"], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=request["timeout_s"]
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"status": -1, "stdout": "", "stderr": f"executor: {error}"}
    return {
        "status": ran.returncode,
        "stdout": ran.stdout.decode(errors="replace"),
        "stderr": ran.stderr.decode(errors="replace"),
    }


def _called(request: dict[str, Any]) -> dict[str, Any]:
    module = importlib.import_module(request["module"])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            signal.alarm(request["timeout_s"])
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os._exit(_main(module, request["arguments"]))
        _, status = os.waitpid(child, 0)
        shown = []
        for file in (out, err):
            file.seek(0)
            shown.append(file.read().decode(errors="replace"))
    return {"status": os.waitstatus_to_exitcode(status), "stdout": shown[0], "stderr": shown[1]}


def _main(module: Any, arguments: list[str]) -> int:
    """Run `main` of a module as a program of its own does. Returns its exit status."""
    sys.argv = [module.__file__, *arguments]
    status: Any = 0
    try:
        module.main()
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status or 0


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
