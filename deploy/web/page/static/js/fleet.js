// The first view: how many DPUs are up to date, where they are not, and how long the last changes took.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { inWords, LatencyPlot } from "./charts.js";
import { count, milliseconds, percent, plural } from "./format.js";
import { announce, bar, time } from "./parts.js";
import { address } from "./route.js";
import { on, state } from "./store.js";
import { Tiles, TILES_MAX } from "./tiles.js";
import { openZone } from "./drawer.js";
import { STATES } from "./zones.js";

const ANNOUNCE_MS = 10_000;
const WAITING = { wait: "waiting for the plane", travel: "the log is being folded up to this moment", refused: "this moment cannot be shown" };
const chosen = { order: "name", filter: "" }; // kept while another view is looked at
let announced = { at: 0, text: "" };

export function fleetView(root) {
  render(frame(), root);
  const find = (selector) => root.querySelector(selector);
  const tiles = new Tiles(find(".tiles"), openZone);
  const plot = new LatencyPlot(find(".plot"));
  tiles.order = find("#order").value = chosen.order;
  tiles.filter = find("#filter").value = chosen.filter;
  let found = tiles.update(true);
  const showTiles = (told) => {
    found = tiles.update(told.has("whole"));
    render(caption(tiles, found), find("#tiles-caption"));
    say(found.counts);
  };
  const showFigures = () => render(figures(found), find(".figures"));
  const showLatency = () => {
    const changes = asObjects(state.latency.changes, state.meta.change_columns);
    plot.show(changes);
    find(".plot").setAttribute("aria-label", inWords(changes));
    render(histogram(asObjects(state.latency.buckets, state.meta.bucket_columns)), find("#histogram"));
    render(table(changes), find("#changes"));
  };
  find("#order").addEventListener("change", (event) => {
    tiles.order = chosen.order = event.target.value;
    tiles.arrange();
  });
  find("#filter").addEventListener("input", (event) => {
    tiles.filter = chosen.filter = event.target.value.trim();
    tiles.arrange();
    render(caption(tiles, found), find("#tiles-caption"));
  });
  const stops = [
    on(["zones", "now", "whole", "link"], showTiles),
    on(["totals", "zones", "holds", "latency", "now", "link"], showFigures),
    on(["latency", "whole"], showLatency),
  ];
  showTiles(new Set(["whole"]));
  showFigures();
  showLatency();
  return () => {
    stops.forEach((stop) => stop());
    plot.close();
  };
}

const asObjects = (rows, columns) => rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));

const frame = () => html`
  <h1 class="unseen">Fleet</h1>
  <dl class="figures"></dl>
  <div class="fleet">
    <section class="panel" aria-labelledby="zones-title">
      <header>
        <h2 id="zones-title">Zones</h2>
        <p id="tiles-caption"></p>
        <div class="tools">
          <label class="field">Order
            <select id="order"><option value="name">by name</option><option value="behind">furthest behind first</option></select>
          </label>
          <label class="field">Find <input id="filter" type="search" size="12" autocomplete="off"></label>
        </div>
      </header>
      <div class="body">
        <div class="tiles" role="group" aria-label="Zones. Arrow keys move, Enter opens one."></div>
        <ul class="legend" aria-label="What colours mean">
          ${Object.entries(STATES).map(([name, { mark, label }]) => html`
            <li><span class="tile" data-state=${name} aria-hidden="true"></span>${mark ? html`<b aria-hidden="true">${mark}</b>` : nothing}${label}</li>`)}
          <li><span class="share" aria-hidden="true"></span>line at the foot of a tile: the share of its DPUs that are up to date</li>
        </ul>
      </div>
    </section>
    <div class="side">
      <section class="panel" aria-labelledby="latency-title">
        <header><h2 id="latency-title">From change to hardware</h2><p>the last changes, each over all its zones, by the time of the change (UTC)</p></header>
        <div class="body">
          <div class="plot" role="img" aria-label=""></div>
          <ul class="keys" aria-label="Marks of the plot">
            <li><svg class="p50" width="22" height="8" aria-hidden="true"><path d="M0 4H22" stroke-width="2"></path><circle cx="11" cy="4" r="3"></circle></svg>half of the DPUs</li>
            <li><svg class="p99" width="22" height="8" aria-hidden="true"><path d="M0 4H22" stroke-width="2" stroke-dasharray="6 4"></path></svg>99 %</li>
            <li><svg class="last" width="10" height="8" aria-hidden="true"><path d="M1 0L9 8M1 8L9 0" stroke-width="1.6"></path></svg>the last one</li>
          </ul>
          <details><summary>The last changes as a table</summary><div id="changes" class="scroll"></div></details>
        </div>
      </section>
      <section class="panel" aria-labelledby="spread-title">
        <header><h2 id="spread-title">How long DPUs waited</h2><p>all of these changes together</p></header>
        <div class="body" id="histogram"></div>
      </section>
    </div>
  </div>`;

function figures({ counts, holding }) {
  if (!state.zones.size && state.link in WAITING) {
    const under = state.link === "refused" ? "not shown" : "not known yet";
    return ["DPUs up to date", "Zones behind", "Change to hardware", "Nodes", "DPUs stuck", "Holds"].map((label) => figure(label, "–", under));
  }
  const { nodes, dpus, stuck } = state.totals;
  const late = counts.far + counts.behind;
  const changes = asObjects(state.latency.changes, state.meta.change_columns);
  const typical = middle(changes.map((change) => change.p50_latency_ms));
  const slow = changes.length ? Math.max(...changes.slice(-20).map((change) => change.p99_latency_ms)) : -1;
  return html`
    ${figure("DPUs up to date", percent(holding, dpus), `${count(holding)} of ${count(dpus)}`, late ? "behind" : "")}
    ${figure("Zones behind", count(late), `of ${plural(state.zones.size, "zone")}${counts.moving ? `, ${count(counts.moving)} moving` : ""}`, late ? "behind" : "")}
    ${figure("Change to hardware", typical < 0 ? "–" : milliseconds(typical), slow < 0 ? "no change yet" : `99 % within ${milliseconds(slow)}`)}
    ${figure("Nodes", count(nodes), "members of the fleet")}
    ${figure("DPUs stuck", count(stuck), stuck ? html`<a href=${address("lifecycle")}>see why</a>` : "none needs a look", stuck ? "behind" : "")}
    ${figure("Holds", count(state.holds.length), state.holds.length ? html`<a href=${address("holds")}>wait for approval</a>` : "nothing waits", state.holds.length ? "behind" : "")}`;
}

const figure = (label, value, under, kind = "") => html`
  <div class="figure" data-state=${kind || nothing}><dt>${label}</dt><dd>${value}<div class="under">${under}</div></dd></div>`;

function middle(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted.length ? sorted[sorted.length >> 1] : -1;
}

function caption(tiles, { counts }) {
  if (state.link === "travel") return state.progress ? `${WAITING.travel}: ${state.progress}` : WAITING.travel;
  if (!state.zones.size) return WAITING[state.link] ?? "none yet: a zone exists from its first node or DPU on";
  const cut = tiles.found > tiles.shown ? `, the first ${count(TILES_MAX)} of ${count(tiles.found)} shown` : "";
  return `${plural(state.zones.size, "zone")}, ${count(counts.current)} up to date${cut}`;
}

function histogram(buckets) {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.dpus));
  const last = buckets.findLastIndex((bucket) => bucket.dpus);
  if (last < 0) return html`<p class="empty">No change has reached the hardware of a DPU yet.</p>`;
  const first = buckets.findIndex((bucket) => bucket.dpus);
  return html`
    <table class="histogram"><caption class="unseen">DPUs by how long a change took to their hardware</caption>
      <thead class="unseen"><tr><th scope="col">time</th><th scope="col">share</th><th scope="col">DPUs</th></tr></thead>
      <tbody>${buckets.slice(Math.max(0, first - 1), last + 1).map((bucket) => html`
        <tr><th scope="row">${bucket.max_latency_ms ? html`under ${milliseconds(bucket.max_latency_ms).replace(".00", "").replace(".0 ", " ")}` : "longer"}</th>
          <td>${bar(bucket.dpus, most)}</td><td class="right">${count(bucket.dpus)}</td></tr>`)}</tbody></table>`;
}

const table = (changes) => html`
  <table><thead><tr><th scope="col">appended</th><th scope="col" class="right">version</th><th scope="col" class="right">DPUs</th>
    <th scope="col" class="right">half</th><th scope="col" class="right">99 %</th><th scope="col" class="right">last</th></tr></thead>
    <tbody>${changes.slice(-12).reverse().map((change) => html`
      <tr><td class="when">${time(change.append_time_ms)}</td><td class="right">${change.version}</td><td class="right">${count(change.dpus)}</td>
        <td class="right">${milliseconds(change.p50_latency_ms)}</td><td class="right">${milliseconds(change.p99_latency_ms)}</td>
        <td class="right">${milliseconds(change.max_latency_ms)}</td></tr>`)}</tbody></table>`;

/** Tell who cannot see the tiles when zones fall behind or catch up, now and then. */
function say(counts) {
  const late = counts.far + counts.behind;
  const text = late ? `${plural(late, "zone is", "zones are")} behind` : "Every zone is up to date or moving";
  if (text === announced.text || performance.now() - announced.at < ANNOUNCE_MS) return;
  if (announced.text) announce(text);
  announced = { at: performance.now(), text };
}
