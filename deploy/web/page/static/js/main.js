// Starts the page: what never changes first, then the view and the moment that the address names.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { ask } from "./api.js";
import { cliquesView } from "./cliques.js";
import { follow as followDrawer } from "./drawer.js";
import { fleetView } from "./fleet.js";
import { count } from "./format.js";
import { holdsView } from "./holds.js";
import { lifecycleView } from "./lifecycle.js";
import { logView } from "./log.js";
import { address, read, VIEWS } from "./route.js";
import { on, state } from "./store.js";
import { follow as followTime, show as showTime } from "./time.js";

const BUILD = { "": noView, fleet: fleetView, lifecycle: lifecycleView, cliques: cliquesView, holds: holdsView, log: logView };
const RETRY_MS = 2000;
const main = document.getElementById("main");
let close = null;

function showView() {
  close?.();
  const root = document.createElement("div");
  main.replaceChildren(root);
  close = BUILD[state.view](root);
  document.title = `${titled(state.view) || "No such view"} · dpuplane`;
}

const titled = (view) => view.slice(0, 1).toUpperCase() + view.slice(1);

/** Where the address names no view: which ones there are. */
function noView(root) {
  const show = () =>
    render(html`<div class="head"><h1>No such view</h1></div>
      <p class="empty"><strong>This page has no view “${state.path}”.</strong>
        It has ${VIEWS.map((view, place) => html`${place ? ", " : ""}<a href=${address(view)}>${titled(view)}</a>`)}.</p>`, root);
  show();
  return on(["route"], show);
}

function showViews() {
  const badges = { holds: state.holds.length, lifecycle: state.totals.stuck };
  render(
    VIEWS.map((view) => html`
      <a href=${address(view)} aria-current=${view === state.view ? "page" : nothing}>${titled(view)}
        ${badges[view] ? html`<span class="badge">${count(badges[view])}<span class="unseen"> ${view === "holds" ? "waiting" : "stuck"}</span></span>` : nothing}</a>`),
    document.getElementById("views"),
  );
  document.querySelector(".brand").href = address("fleet");
}

function showNotices() {
  const sentences = [...(state.error ? [state.error] : []), ...state.alerts];
  render(sentences.map((sentence) => html`<p class="notice" role="alert">${sentence}</p>`), document.getElementById("notices"));
}

function showPulse() {
  const texts = { live: "Live", past: "The past", travel: "Looking back", refused: "No such moment", lost: "Connection lost; trying again", wait: "Connecting" };
  const pulse = document.getElementById("pulse");
  pulse.dataset.state = state.link;
  main.setAttribute("aria-busy", state.link === "wait" || state.link === "travel");
  render(html`<span>${texts[state.link]}</span><span class="unseen">replica </span><span>${state.meta.replica}</span>`, pulse);
}

async function start() {
  try {
    state.meta = await ask("span", {}, { at: 0 });
  } catch (error) {
    render(html`<p class="notice" role="alert">${error.message || "the plane does not answer"}</p>`, document.getElementById("notices"));
    return setTimeout(start, RETRY_MS);
  }
  state.meta.asked = performance.now();
  on(["view"], showView);
  on(["view", "at", "holds", "totals", "route"], showViews);
  on(["error", "alerts"], showNotices);
  on(["link"], showPulse);
  on(["at"], followTime);
  on(["route"], followDrawer);
  addEventListener("hashchange", read);
  read();
  showView();
  showViews();
  showNotices();
  showPulse();
  showTime();
  followTime();
  followDrawer();
}

start();
