"""Generates dashboard.json from the panels: `python -m deploy.grafana.dashboard`. A test compares file and panels.

Built with Grafana's own typed library, so that Grafana accepts the result. Only this module needs the library: the
generated file is in the repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode, HeatmapColorScale
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.panels import ROWS, Panel, Query

FILE = Path(__file__).with_name("dashboard.json")
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHTS = {"graph": 8, "heatmap": 8, "stat": 4}


def made() -> str:
    """The dashboard as JSON."""
    board = (
        dashboard.Dashboard("dpuplane")
        .uid("dpuplane")
        .tags(["dpuplane"])
        .description("The plane of a fleet of DPUs: faults that need an operator, and the delays from event to device.")
        .refresh("15s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("plane")
            .label("Plane")
            .query("label_values(dpuplane_build_info, plane)")
            .datasource(_SOURCE)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    )
    ids = count(1)
    for row in ROWS:
        board.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            board.with_panel(_panel(panel).id(next(ids)))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _panel(panel: Panel) -> Any:
    kinds: dict[str, Callable[[Panel], Any]] = {"stat": _stat, "heatmap": _heatmap, "graph": _graph}
    made = kinds[panel.kind](panel).title(panel.title).description(panel.description).datasource(_SOURCE)
    made.span(panel.width).height(_HEIGHTS[panel.kind])
    for ref, query in zip("ABCDEFGH", panel.queries, strict=False):
        made.with_target(_query(query, ref, panel.kind))
    return made


def in_planes(expr: str) -> str:
    """A query limited to the selected planes: each metric in the query gets a matcher for the label `plane`."""
    return re.sub(r"\b((?:dpuplane|grpc_server|process)_\w+)(?:{(.*?)})?", _with_plane, expr)


def _with_plane(selector: re.Match[str]) -> str:
    matchers = ", ".join(filter(None, (selector[2], 'plane=~"$plane"')))
    return f"{selector[1]}{{{matchers}}}"


def _query(query: Query, ref: str, kind: str) -> prometheus.Dataquery:
    asked = prometheus.Dataquery().expr(in_planes(query.expr)).ref_id(ref).datasource(_SOURCE)
    if query.legend:
        asked.legend_format(query.legend)
    if kind == "heatmap":
        asked.format(PromQueryFormat.HEATMAP)
    return asked.instant() if kind == "stat" else asked.range()


def _graph(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    return timeseries.Panel().unit(panel.unit).min(0).line_width(1).fill_opacity(8).legend(legend).tooltip(tooltip)


def _stat(panel: Panel) -> stat.Panel:
    steps: Sequence[Threshold] = [Threshold(value=None, color="green")]
    if panel.bad_from is not None:
        steps = [*steps, Threshold(value=panel.bad_from, color="red")]
    thresholds = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(list(steps))
    mode = BigValueColorMode.NONE if panel.bad_from is None else BigValueColorMode.VALUE
    return stat.Panel().unit(panel.unit).thresholds(thresholds).color_mode(mode).graph_mode(BigValueGraphMode.NONE)


def _heatmap(panel: Panel) -> heatmap.Panel:
    colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Viridis").steps(64)
    colors.scale(HeatmapColorScale.EXPONENTIAL).exponent(0.5)
    return heatmap.Panel().unit(panel.unit).color(colors)


if __name__ == "__main__":
    FILE.write_text(made())
