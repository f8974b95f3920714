"""Generates the manifests beside this file, and the copies of them in the Helm chart, from the models of resources.

`make docs` writes them; a test fails while one of them is out of date. Helm reads no file outside its chart, so the
chart has copies of the definitions, the admission policies and the alert rules. The table of the chart's
values comes from the comments in values.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.kubernetes.chart_values import CHART, page
from schemas.resources import KINDS
from schemas.resources.author_admission import (
    author_binding,
    author_policy,
    stamping_binding,
    stamping_policy,
)
from schemas.resources.compute_domain import UPSTREAM_KINDS
from schemas.resources.crds import definition
from schemas.resources.dpf import KINDS as DPF_KINDS
from schemas.resources.hold_admission import hold_binding, hold_policy

HERE = Path(__file__).parent
CHART_FILES = CHART / "files"
ALERTS = HERE.parent / "prometheus" / "alerts.yaml"

_HEADING = "# Generated from the code by `make docs`. A test fails if it is out of date.\n"
_WIDTH = 120


def manifests() -> Mapping[str, str]:
    """The text of each manifest by its path in this folder.

    `crds` has the definitions of the plane's kinds, `crds/dpf` those of DPF's kinds for clusters without DPF, and
    `upstream` those of upstream's kinds. `admission` has the
    validating admission policies, and `stamping` the mutating one, which needs an API server from 1.36 on.
    """
    folders = {"crds": KINDS, "crds/dpf": DPF_KINDS, "upstream": UPSTREAM_KINDS}
    kinds = [(folder, kind) for folder, listed in folders.items() for kind in listed]
    found = {f"{folder}/{kind.group}_{kind.plural}.yaml": _text([definition(kind)]) for folder, kind in kinds}
    return {
        **found,
        "admission/authors.yaml": _text([author_policy(), author_binding()]),
        "admission/holds.yaml": _text([hold_policy(), hold_binding()]),
        "stamping/authors.yaml": _text([stamping_policy(), stamping_binding()]),
    }


def stale() -> list[Path]:
    """Files that are out of date, and YAML files that are no longer generated."""
    wanted = dict(_files())
    present = {path for folder in (HERE, CHART_FILES) for path in folder.rglob("*.yaml")}
    return sorted({path for path, text in wanted.items() if _written(path) != text} | (present - wanted.keys()))


def write() -> None:
    """Write every file."""
    for path, text in _files():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _files() -> Iterator[tuple[Path, str]]:
    for name, text in manifests().items():
        yield HERE / name, text
        yield CHART_FILES / name, text
    yield CHART_FILES / "alerts.yaml", ALERTS.read_text(encoding="utf-8")
    yield CHART / "VALUES.md", page()


class _Dumper(yaml.SafeDumper):
    """Writes equal parts in full instead of as aliases, which kubectl users do not expect."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(documents: Iterable[Mapping[str, Any]]) -> str:
    return _HEADING + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


def _written(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
