// One zone, in a drawer over the page: how far each of its tables has come, which DPUs lag, and why.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { asker } from "./api.js";
import { count, durationMs, milliseconds, percent, quoted, timeMs } from "./format.js";
import { bar, command, empty, failure, legend, tag, time } from "./parts.js";
import { on, state } from "./store.js";
import { address, go } from "./route.js";

const AGAIN_MS = 1000;
const drawer = document.getElementById("drawer");
const put = asker();
let shown = "";
let asked = 0;

export const openZone = (zone) => go({ zone });

/** Show the zone that the address names, or close. */
export function follow() {
  const zone = state.query.get("zone") ?? "";
  if (zone === shown && drawer.open === Boolean(zone)) return;
  shown = zone;
  if (!zone) return drawer.close();
  render(body(null, ""), drawer);
  if (!drawer.open) drawer.showModal();
  refresh();
}

drawer.addEventListener("close", () => {
  const zone = shown;
  shown = "";
  if (state.query.get("zone")) go({ zone: "" });
  if (document.activeElement !== document.body) return; // the browser gave the focus back to who opened it
  for (const tile of document.querySelectorAll(".tile")) if (tile.dataset.zone === zone) tile.focus();
});
drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());

on(["zones", "whole"], (told) => {
  if (shown && (told.has("whole") || performance.now() - asked > AGAIN_MS)) refresh();
});

function refresh() {
  asked = performance.now();
  put("zone", { zone: shown }, (found) => render(body(found, ""), drawer), (sentence) => render(body(null, sentence), drawer));
}

const body = (zone, sentence) => html`
  <header><h2 id="drawer-title">Zone ${shown}</h2><button type="button" @click=${() => drawer.close()}>Close</button></header>
  ${failure(sentence)}
  ${zone ? html`${facts(zone)}${installs(zone)}${lagging(zone)}${exceptions(zone)}` : nothing}`;

const facts = (zone) => html`
  <section aria-label="Facts">
    <dl class="facts">
      <dt>Nodes</dt><dd>${count(zone.nodes)}</dd>
      <dt>DPUs</dt><dd>${count(zone.dpus)} ${zone.frozen ? tag("frozen: nothing is written", "far") : nothing}</dd>
      <dt>Rules</dt><dd>${count(zone.rules)}, version <span class="mono">${zone.version}</span></dd>
      <dt>Digest</dt><dd class="mono">${zone.digest}</dd>
      <dt>Labels</dt><dd>${Object.entries(zone.labels).map(([key, value]) => tag(`${key}=${value}`))}${Object.keys(zone.labels).length ? nothing : "none"}</dd>
      <dt>Limits</dt><dd>${count(zone.parallel_installs)} installs at once, ${count(zone.unavailable_nodes)} nodes out of service</dd>
    </dl>
    <p><a href=${address("log", { subject: zone.zone })}>Events about this zone</a></p>
  </section>`;

const installs = (zone) => html`
  <section><h3>Its newest tables</h3>
    ${zone.installs.length ? html`<div class="scroll"><table class="stack">
      <thead><tr><th scope="col">version</th><th scope="col">received</th><th scope="col">applied</th><th scope="col">in hardware</th>
        <th scope="col" class="right">99 % after</th><th scope="col">appended</th></tr></thead>
      <tbody>${zone.installs.map((found) => html`
        <tr><td class="mono" data-column="version">${found.version}</td>
          ${[["received", found.received], ["applied", found.applied], ["in hardware", found.in_hardware]].map(([level, reached]) => html`
            <td data-column=${level}>${percent(reached, found.dpus)}${bar(reached, found.dpus, reached < found.dpus ? "" : "good")}</td>`)}
          <td class="right" data-column="99 % after">${milestone(found)}</td><td class="when soft" data-column="appended">${time(timeMs(found.append_time))}</td></tr>`)}</tbody>
    </table></div>${legend([["good", "every DPU"], ["moving", "some of the DPUs"]])}` : empty("No DPU has reported a table.", "A relay reports what its connected DPUs hold.")}
  </section>`;

function milestone(found) {
  const reached = found.milestones.find(({ level, permille }) => level === "in_hardware" && permille === 990);
  return reached ? milliseconds(durationMs(reached.latency)) : "–";
}

const lagging = (zone) => zone.lagging.length ? html`
  <section><h3>DPUs behind the newest table</h3>
    <p>${zone.lagging.map((dpu) => tag(dpu, "behind"))}${zone.lagging.length >= 20 ? " and perhaps more" : ""}</p>
    ${command(`dpuplane zones show ${quoted(zone.zone)} --output json`)}
  </section>` : nothing;

const whatHappened = ({ version, reason }) => version < 0
  ? `${reason.startsWith("DRIFT: ") ? "lost" : "refused"} its table: ${reason}` : `went back to version ${version}`;

const exceptions = (zone) => zone.exceptions.length ? html`
  <section><h3>Out of the ordinary</h3><div class="scroll"><table class="stack">
    <thead><tr><th scope="col">DPU</th><th scope="col">what</th><th scope="col">said</th></tr></thead>
    <tbody>${zone.exceptions.map((found) => html`
      <tr><td class="name" data-column="DPU">${found.dpu}</td><td class="wide" data-column="what">${whatHappened(found)}</td>
        <td class="when soft" data-column="said">${time(timeMs(found.report_time))}</td></tr>`)}</tbody>
  </table></div></section>` : nothing;
