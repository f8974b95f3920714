"""Alerts, runbook and dashboard agree about the metrics: every name exists, and every alert is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.dashboard import Panel as MadePanel

from deploy.cli import cli
from deploy.grafana.dashboard import FILE, in_planes, made
from deploy.grafana.panels import ROWS
from deploy.web.metrics.catalog import CATALOG, Histogram
from tests.support.prometheus import promtool

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES_FILE = DEPLOY / "prometheus" / "alerts.yaml"
TESTS_FILE = DEPLOY / "prometheus" / "alerts_test.yaml"
RULES: list[dict[str, Any]] = yaml.safe_load(RULES_FILE.read_text())["groups"][0]["rules"]
RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text()
SECTIONS = {part.split("\n", 1)[0]: part for part in RUNBOOK.split("\n## ")[1:]}
QUERIES = [query.expr for row in ROWS for panel in row.panels for query in panel.queries]
BLOCKS = re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)
COMMANDS = {line.partition(" # ")[0].strip() for block in BLOCKS for line in block.splitlines()}


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"(?:dpuplane|grpc_server)_\w+", expression))


def exported_names() -> set[str]:
    """The names of all series that the catalogue of metrics exports."""
    names = {found.name for found in CATALOG if not isinstance(found, Histogram)}
    for found in CATALOG:
        if isinstance(found, Histogram):
            names |= {f"{found.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def test_rules_are_valid_and_each_has_a_test_that_it_fires_and_one_that_it_is_quiet() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES_FILE)).status == 0
    ran = promtool("test", "rules", str(TESTS_FILE))
    assert ran.status == 0, ran.output
    tested = {test["name"] for test in yaml.safe_load(TESTS_FILE.read_text())["tests"]}
    assert tested == {f"{rule['alert']} {what}" for rule in RULES for what in ("fires", "is quiet")}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_exported_metrics_and_has_a_runbook_section(rule: dict[str, Any]) -> None:
    assert names_in(rule["expr"]) <= exported_names()
    assert rule["labels"]["severity"] in ("page", "ticket")
    notes = rule["annotations"]
    assert notes["summary"].endswith(".") and "{{" not in notes["summary"], (
        "the summary must be the same for all instances"
    )
    assert notes["description"].endswith(".") and notes["description"] != notes["summary"]
    assert notes["runbook_url"] == f"{{{{ $externalLabels.runbook }}}}#{rule['alert'].lower()}"
    section = SECTIONS[rule["alert"]]
    assert all(part in section for part in ("**Means:**", "**Look:**", "**Do:**"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_aggregate_of_an_alert_keeps_the_plane_label(rule: dict[str, Any]) -> None:
    for labels in re.findall(r"\b(?:by|on) \((.*?)\)", rule["expr"]):
        assert "plane" in labels.split(", ")
    for aggregated in re.findall(r"\b(?:sum|max|min|count|group)\b(.{4})", rule["expr"]):
        assert aggregated == " by ", "an aggregate without labels mixes planes"


def test_links_to_the_runbook_begin_with_one_setting_of_prometheus() -> None:
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    assert set(configuration["global"]["external_labels"]) == {"runbook"}
    assert promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yaml")).status == 0


@pytest.mark.parametrize("file", ["prometheus/targets.yaml", "docker/targets.yaml"])
def test_every_target_has_a_plane(file: str) -> None:
    assert all(group["labels"]["plane"] for group in yaml.safe_load((DEPLOY / file).read_text()))


def test_a_query_of_the_dashboard_is_limited_to_the_selected_planes() -> None:
    assert in_planes('sum(rate(grpc_server_handled_total{grpc_code="OK"}[1m])) / time() * dpuplane_ready') == (
        'sum(rate(grpc_server_handled_total{grpc_code="OK", plane=~"$plane"}[1m])) / time()'
        ' * dpuplane_ready{plane=~"$plane"}'
    )


def test_the_runbook_has_a_section_per_alert_and_no_broken_links() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in RULES]
    anchors = {name.lower() for name in SECTIONS}
    assert set(re.findall(r"\(#(\w+)\)", RUNBOOK)) <= anchors


@pytest.mark.parametrize("line", sorted(line for line in COMMANDS if line.startswith("dpuplane ")))
def test_commands_of_the_runbook_are_valid(line: str) -> None:
    """Parse each command without running it, because this test has no plane."""
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(command, info_name="dpuplane")
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command, context = found, click.Context(found, parent=context)
    if words != ["--help"]:
        command.make_context("dpuplane", words)


@pytest.mark.parametrize("expression", QUERIES)
def test_a_panel_uses_exported_metrics_only(expression: str) -> None:
    assert names_in(expression) <= exported_names()


def test_the_dashboard_file_is_current_and_valid_for_grafana() -> None:
    assert FILE.read_text() == made(), "run python -m deploy.grafana.dashboard"
    read = Dashboard.from_json(yaml.safe_load(made()))
    assert read.panels is not None
    panels = [panel for panel in read.panels if isinstance(panel, MadePanel)]
    assert [panel.title for panel in panels] == [panel.title for row in ROWS for panel in row.panels]
    places = [(at.x, at.y) for panel in panels if (at := panel.grid_pos) is not None]
    assert len(set(places)) == len(panels), "two panels overlap"
