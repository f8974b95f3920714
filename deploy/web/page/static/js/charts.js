// The picture of how long changes took: per change when half, nearly all and the last of its DPUs had it. Shapes and
// strokes differ as well as colours, and the page says the same in words and in a table.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { clockTime, milliseconds, moment } from "./format.js";

const HEIGHT = 230;
const DAY_S = 86_400;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, ...[1, 2, 5, 10, 30, 100, 365].map((days) => days * DAY_S)];
const LEAST_SPAN_S = 2; // of the axis of time: one change, or several at once, have a span of nothing
const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class LatencyPlot {
  constructor(root) {
    this.root = root;
    this.data = [[], [], [], []];
    this.changes = 0;
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.repaint = () => this.make();
    this.scheme.addEventListener("change", this.repaint);
    this.sized = new ResizeObserver(() => this.plot?.setSize({ width: root.clientWidth, height: HEIGHT }));
    this.sized.observe(root);
    this.make();
  }

  show(changes) {
    this.changes = changes.length;
    const least = (value) => Math.max(1, value);
    const ordered = [...changes].sort((one, other) => one.append_time_ms - other.append_time_ms); // they come by version
    this.data = [
      ordered.map((change) => change.append_time_ms / 1000),
      ordered.map((change) => least(change.p50_latency_ms)),
      ordered.map((change) => least(change.p99_latency_ms)),
      ordered.map((change) => least(change.max_latency_ms)),
    ];
    this.plot.setData(this.data);
  }

  make() {
    this.plot?.destroy();
    const ink = colour("--ink-soft");
    const grid = { stroke: colour("--line"), width: 1 };
    const font = `11px ${colour("--text")}`;
    const axis = { stroke: ink, grid, font, ticks: { ...grid, size: 4 } };
    this.plot = new uPlot(
      {
        width: this.root.clientWidth || 400,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { setScale: false, x: false, y: false }, points: { size: 7 } },
        tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "UTC"),
        scales: { x: { time: true, range: () => span(this.data[0]) }, y: { distr: 3, range: (_, low, high) => bounds(low, high) } },
        axes: [
          { ...axis, space: 76, incrs: STEPS_S, values: (_, places, __, ___, step) => places.map((place) => this.label(1000 * place, step)) },
          { ...axis, size: 56, filter: (_, values) => values, splits: (_, __, low, high) => TICKS.filter((tick) => tick >= low && tick <= high),
            values: (_, values) => values.map((value) => milliseconds(value).replace(".00", "").replace(".0 ", " ")) },
        ],
        series: [
          {},
          { stroke: colour("--moving"), width: 2, points: { show: true, size: 5, fill: colour("--moving") } },
          { stroke: colour("--behind"), width: 2, dash: [6, 4], points: { show: true, size: 6, fill: colour("--surface") } },
          { stroke: colour("--far"), width: 0, paths: () => null, points: { show: true, paths: crosses } },
        ],
      },
      this.data,
      this.root,
    );
  }

  /** A place on the axis of time: as a date, where the steps between places are days. */
  label(ms, step) {
    if (!this.changes) return "";
    return step >= DAY_S ? moment(ms).slice(0, 10) : clockTime(ms).slice(0, 8);
  }

  close() {
    this.scheme.removeEventListener("change", this.repaint);
    this.sized.disconnect();
    this.plot.destroy();
  }
}

export function inWords(changes) {
  if (!changes.length) return "No change has reached the hardware of a DPU yet.";
  const last = changes.at(-1);
  return (
    `The last change, of ${moment(last.append_time_ms)}, was in the hardware of half of ${last.dpus} DPUs after ` +
    `${milliseconds(last.p50_latency_ms)}, of 99 % after ${milliseconds(last.p99_latency_ms)}, and of the last one after ${milliseconds(last.max_latency_ms)}.`
  );
}

/** What the axis of time spans: the changes, with a little room for the marks of the first and the last. */
function span(seconds) {
  if (!seconds.length) return [0, LEAST_SPAN_S];
  const [first, last] = [seconds[0], seconds.at(-1)];
  const room = Math.max(LEAST_SPAN_S / 2, (last - first) / 25);
  return [first - room, last + room];
}

function bounds(low, high) {
  const first = TICKS.findLast((tick) => tick <= (low ?? 1)) ?? 1;
  const last = TICKS.find((tick) => tick >= (high ?? 1000)) ?? high;
  return [first, last > first ? last : 10 * first];
}

/** A cross for the last DPU of each change. */
function crosses(plot, series, first, last) {
  const path = new Path2D();
  const arm = 3 * devicePixelRatio;
  for (let index = first; index <= last; index += 1) {
    const value = plot.data[series][index];
    if (value == null) continue;
    const x = plot.valToPos(plot.data[0][index], "x", true);
    const y = plot.valToPos(value, "y", true);
    path.moveTo(x - arm, y - arm);
    path.lineTo(x + arm, y + arm);
    path.moveTo(x - arm, y + arm);
    path.lineTo(x + arm, y - arm);
  }
  return { stroke: path, fill: null, clip: null, flags: 2 };
}
