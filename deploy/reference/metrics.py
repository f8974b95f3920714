"""The page of metrics and alerts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deploy.reference.markdown import code, table
from deploy.reference.markdown import page as whole
from deploy.web.metrics.catalog import CATALOG

ALERTS = Path(__file__).parent.parent / "prometheus" / "alerts.yaml"


def page() -> str:
    """The page of metrics."""
    rows = [(code(m.name), m.kind, ", ".join(map(code, m.labels)), m.help) for m in CATALOG]  # type: ignore[attr-defined]
    return whole(
        "Metrics",
        "Every process serves the metrics of its roles at `/metrics` of `--http`.",
        table(("metric", "kind", "labels", ""), rows),
        "## Alerts",
        "From [alerts.yaml](../prometheus/alerts.yaml); each alert has a section in [the runbook](../RUNBOOK.md).",
        table(("alert", "for", "severity", ""), [_alert(rule) for rule in _rules()]),
    )


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def _alert(rule: dict[str, Any]) -> tuple[str, str, str, str]:
    link = f"[{rule['alert']}](../RUNBOOK.md#{rule['alert'].lower()})"
    return link, rule.get("for", "at once"), rule.get("labels", {}).get("severity", ""), rule["annotations"]["summary"]
