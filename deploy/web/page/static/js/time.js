// The bar at the bottom: the moment shown, from the log's first record to now.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { ask } from "./api.js";
import * as feed from "./feed.js";
import { ago, iso, localTime, moment } from "./format.js";
import { go } from "./route.js";
import { fail, on, state, take, tell } from "./store.js";

const SETTLE_MS = 250;
const AGAIN_MS = 700;
const SLIDER_STEP_MS = 1000;
const NOW = 0;
const STEPS = [[-600_000, "−10 min"], [-60_000, "−1 min"], [-1_000, "−1 s"], [1_000, "+1 s"], [60_000, "+1 min"], [600_000, "+10 min"]];
/** What is shown of a moment that cannot be: least of all what is true now. */
const NOTHING = { zones: [], totals: { nodes: 0, dpus: 0, stuck: 0, phases: {} }, latency: { changes: [], buckets: [] }, holds: [], alerts: [] };
const bar = document.getElementById("timebar");
let settling = 0;
let slidTo = NOW;
let running = null;

/** Show the moment of the address: live, or as it was. */
export async function follow() {
  running?.abort();
  running = null;
  if (state.wrong) return refuse(state.wrong);
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
  if (typeof found === "string") return refuse(found);
  state.link = "past";
  tell("link");
  fail("");
  take({ ...found, now_ms: state.at, cliques: state.at, records: state.at }, true);
}

/** Show nothing at all, and why. */
function refuse(sentence) {
  feed.close();
  state.link = "refused";
  fail(sentence);
  tell("link");
  take({ ...NOTHING, now_ms: state.at || latest() }, true);
}

/** The fleet at the moment shown, or the sentence that refuses it; a plane that still folds up to it is asked again. */
async function travelled(signal) {
  while (!signal.aborted) {
    try {
      return await ask("fleet", {}, { signal });
    } catch (error) {
      if (signal.aborted || !error.isTransient) return error.message;
      state.progress = error.message.replace(/^as_of: /, "").replace(/; ask again.*/, ""); // this asks again by itself
      tell("link");
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
  return "";
}

/** What the slider is over, while it is held. Its right end is now, though its last step may lie up to a step before. */
function preview({ value, max }) {
  slidTo = Number(value) + SLIDER_STEP_MS > Number(max) ? NOW : Number(value); // before `show` moves the end
  state.preview = Number(value);
  show();
}

/** Show this moment, or what happens now if it is NOW or not past. */
function choose(at, quietly) {
  const isNow = at === NOW || at >= latest(); // decided at once: a moment later, `at` is in the past
  clearTimeout(settling);
  state.preview = 0;
  settling = setTimeout(() => go({ at: isNow ? "" : String(Math.max(state.meta.first_ms, Math.round(at))) }, quietly), quietly ? SETTLE_MS : 0);
}

const latest = () => Math.max(state.meta.first_ms + 1000, state.meta.now_ms + (performance.now() - state.meta.asked));

on(["now", "at", "link", "whole"], show);

export function show() {
  if (!state.meta) return;
  const isNow = !state.at && !state.wrong;
  bar.toggleAttribute("data-past", !isNow);
  const end = latest();
  const at = state.preview || state.at || end;
  const isPast = at < end - 500;
  render(
    html`
      <button type="button" class=${isNow ? "" : "primary"} ?disabled=${isNow} @click=${() => choose(NOW, false)}>
        ${isNow ? "Now" : "Back to now"}</button>
      <span class="steps" role="group" aria-label="Step in time">
        ${STEPS.map(([step, label]) => html`<button type="button" class="small" ?disabled=${step > 0 && !state.at}
          @click=${() => choose(at + step, false)}>${label}</button>`)}
      </span>
      <label class="unseen" for="moment">Moment shown</label>
      <input id="moment" type="range" min=${state.meta.first_ms} max=${Math.round(end)} step=${SLIDER_STEP_MS} .value=${String(at)}
        aria-valuetext=${isPast ? `${moment(at)}, ${ago(at, end)}` : "now"}
        @input=${(event) => preview(event.target)} @change=${() => choose(slidTo, true)}>
      <time class="moment" datetime=${iso(at)} title=${localTime(at)}>${moment(at)}</time>
      <span class="ago">${state.wrong ? "not shown" : isPast ? ago(at, end) : "live"}</span>
      ${state.at ? html`<span class="unseen" role="status">You see the past: ${moment(at)}</span>` : nothing}`,
    bar,
  );
}
