// The bar at the bottom: the moment shown, from the log's first record to now.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { ask } from "./api.js";
import * as feed from "./feed.js";
import { ago, iso, moment } from "./format.js";
import { go } from "./route.js";
import { fail, on, state, take, tell } from "./store.js";

const SETTLE_MS = 250;
const AGAIN_MS = 700;
const STEPS = [[-600_000, "−10 min"], [-60_000, "−1 min"], [-1_000, "−1 s"], [1_000, "+1 s"], [60_000, "+1 min"], [600_000, "+10 min"]];
/** What is shown of a moment that cannot be: least of all what is true now. */
const NOTHING = { zones: [], totals: { nodes: 0, dpus: 0, stuck: 0, phases: {} }, latency: { changes: [], buckets: [] }, holds: [], alerts: [] };
const bar = document.getElementById("timebar");
let settling = 0;
let running = null;

/** Show the moment of the address: live, or as it was. */
export async function follow() {
  running?.abort();
  running = null;
  if (!state.at) {
    fail("");
    feed.open();
    if (["past", "travel", "refused"].includes(state.link)) state.link = "wait";
    return tell("link");
  }
  feed.close();
  state.link = "travel";
  state.progress = "";
  fail("");
  tell("link");
  const own = (running = new AbortController());
  const found = await travelled(own.signal);
  if (own.signal.aborted) return;
  state.link = found ? "past" : "refused";
  tell("link");
  if (!found) return take({ ...NOTHING, now_ms: state.at }, true);
  fail("");
  take({ ...found, now_ms: state.at, cliques: state.at, records: state.at }, true);
}

/** The fleet at the moment shown; a plane that still folds up to it is asked again. */
async function travelled(signal) {
  while (!signal.aborted) {
    try {
      return await ask("fleet", {}, { signal });
    } catch (error) {
      if (signal.aborted) return null;
      if (!error.isTransient) {
        fail(error.message);
        return null;
      }
      state.progress = error.message.replace(/^at: /, "").replace(/; ask again.*/, ""); // this asks again by itself
      tell("link");
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
  return null;
}

/** What the slider is over, while it is held. */
function preview(at) {
  state.preview = at;
  show();
}

function choose(at, quietly) {
  const first = state.meta.first_ms;
  clearTimeout(settling);
  state.preview = 0;
  settling = setTimeout(() => go({ at: at >= latest() ? "" : String(Math.max(first, Math.round(at))) }, quietly), quietly ? SETTLE_MS : 0);
}

const latest = () => Math.max(state.meta.first_ms + 1000, state.meta.now_ms + (performance.now() - state.meta.asked));

on(["now", "at", "link", "whole"], show);

export function show() {
  if (!state.meta) return;
  bar.toggleAttribute("data-past", state.at > 0);
  const end = latest();
  const at = state.preview || state.at || end;
  const isPast = at < end - 500;
  render(
    html`
      <button type="button" class=${state.at ? "primary" : ""} ?disabled=${!state.at} @click=${() => choose(end, false)}>
        ${state.at ? "Back to now" : "Now"}</button>
      <span class="steps" role="group" aria-label="Step in time">
        ${STEPS.map(([step, label]) => html`<button type="button" class="small" ?disabled=${step > 0 && !state.at}
          @click=${() => choose(at + step, false)}>${label}</button>`)}
      </span>
      <label class="unseen" for="moment">Moment shown</label>
      <input id="moment" type="range" min=${state.meta.first_ms} max=${Math.round(end)} step="1000" .value=${String(at)}
        aria-valuetext=${isPast ? `${moment(at)}, ${ago(at, end)}` : "now"}
        @input=${(event) => preview(Number(event.target.value))} @change=${(event) => choose(Number(event.target.value), true)}>
      <time class="moment" datetime=${iso(at)}>${moment(at)}</time>
      <span class="ago">${isPast ? ago(at, end) : "live"}</span>
      ${state.at ? html`<span class="unseen" role="status">You see the past: ${moment(at)}</span>` : nothing}`,
    bar,
  );
}
