// DPUs by the phase of their lifecycle, and those that need somebody: which, since when, why, and what to try.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { asker } from "./api.js";
import { ago, count, plural, quoted, timeMs } from "./format.js";
import { command, empty, failure, legend, tag } from "./parts.js";
import { address, go } from "./route.js";
import { on, state } from "./store.js";

const AGAIN_MS = 1500;

export function lifecycleView(root) {
  const put = asker();
  let found = null;
  let sentence = "";
  let asked = 0;
  const trail = [""];
  const wanted = () => ({ phase: state.query.get("phase") ?? "", stuck: !state.query.get("phase") });
  const show = () => render(view(found, sentence, trail, turn), root);
  const refresh = () => {
    asked = performance.now();
    put("dpus", { ...wanted(), page_token: trail.at(-1) }, (answer) => ((found = answer), (sentence = ""), show()), (reason) => ((found = null), (sentence = reason), show()));
  };
  const turn = (token) => {
    if (token) trail.push(token);
    else trail.pop();
    refresh();
  };
  const stops = [
    on(["totals", "whole"], (told) => {
      show();
      if (told.has("whole") || performance.now() - asked > AGAIN_MS) refresh();
    }),
    on(["route"], () => {
      trail.length = 1;
      refresh();
    }),
  ];
  show();
  refresh();
  return () => stops.forEach((stop) => stop());
}

function view(found, sentence, trail, turn) {
  const phase = state.query.get("phase") ?? "";
  const title = phase ? `DPUs in phase ${phase}` : "Stuck";
  return html`
    <div class="head"><h1>Lifecycle</h1><p>${plural(state.totals.dpus, "DPU")}, by phase. Choose one to see its DPUs.</p></div>
    <ol class="phases">${state.meta.phases.map((name) => card(name, phase))}</ol>
    ${legend([["ready", "DPUs that are ready"], ["error", "DPUs that failed"], ["", "on the way, or none"]])}
    <br>
    <section class="panel" aria-labelledby="dpus-title">
      <header><h2 id="dpus-title">${title}</h2>
        <p>${phase ? "" : `${plural(state.totals.stuck, "DPU")} failed, paused, or with another card in its place`}</p>
        <div class="tools">${phase ? html`<button type="button" @click=${() => go({ phase: "" })}>Show what is stuck</button>` : nothing}</div>
      </header>
      <div class="body">${failure(sentence)}${found ? table(found.dpus, phase) : nothing}
        <div class="pages">
          ${trail.length > 1 ? html`<button type="button" @click=${() => turn("")}>Previous page</button>` : nothing}
          ${found?.next_page_token ? html`<button type="button" @click=${() => turn(found.next_page_token)}>Next page</button>` : nothing}
        </div>
      </div>
    </section>`;
}

function card(name, chosen) {
  const dpus = state.totals.phases[name] ?? 0;
  const kind = { Error: "error", Ready: "ready" }[name] ?? "step";
  return html`<li data-kind=${kind} data-some=${dpus > 0}>
    <button type="button" aria-pressed=${name === chosen} @click=${() => go({ phase: name === chosen ? "" : name })}>
      <span class="label">${name}</span><span class="count">${count(dpus)}</span></button></li>`;
}

function table(dpus, phase) {
  if (!dpus.length && phase) return empty("No DPU is in this phase.", "");
  if (!dpus.length) return empty("Nothing is stuck.", "A DPU is listed here once a step of its lifecycle fails, somebody pauses it, or its card was exchanged.");
  return html`<div class="scroll"><table class="stack">
    <thead><tr><th scope="col">DPU</th><th scope="col">zone</th><th scope="col">phase</th><th scope="col">why</th>
      <th scope="col">since</th><th scope="col" class="right">attempts</th><th scope="col">to try</th></tr></thead>
    <tbody>${dpus.map((dpu) => html`
      <tr><td class="name" data-column="DPU" title=${dpu.dpu}>${dpu.dpu}</td><td class="name" data-column="zone" title=${dpu.zone}><a href=${address(state.view, { ...Object.fromEntries(state.query), zone: dpu.zone })}>${dpu.zone}</a></td>
        <td data-column="phase">${tag(dpu.phase, { Error: "far", Ready: "good" }[dpu.phase] ?? "")}</td><td class="wide" data-column="why">${why(dpu)}</td>
        <td class="when soft" data-column="since">${ago(timeMs(dpu.phase_start_time), state.now)}</td><td class="right" data-column="attempts">${dpu.phase_attempts}</td>
        <td class="act" data-column="to try">${attempt(dpu)}</td></tr>`)}</tbody>
  </table></div>`;
}

function why(dpu) {
  const reasons = [];
  if (dpu.swapped) reasons.push("another card is in its place than was provisioned");
  if (dpu.paused) reasons.push("paused");
  if (dpu.message) reasons.push(dpu.message);
  if (dpu.step_state === "running") reasons.push(`${dpu.provisioner} works on it${dpu.percent ? `, ${dpu.percent} %` : ""}`);
  if (dpu.step_state === "open") reasons.push("waits for a provisioner");
  if (!reasons.length && dpu.phase === "Initializing") reasons.push("nobody has asked to provision it");
  if (!reasons.length && dpu.phase === "Pending") reasons.push("waits for room under its zone's limits");
  return reasons.join("; ") || "–";
}

/** The next thing to try, or to look at. */
function attempt(dpu) {
  const verb = dpu.swapped ? "provision" : dpu.paused ? "resume" : dpu.phase === "Error" ? "retry" : "show";
  return command(`dpuplane dpus ${verb} ${quoted(dpu.dpu)} --zone ${quoted(dpu.zone)}`);
}
