// The log, the latest event first: who said what about whom. A filter looks back a bounded way at a time.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { asker } from "./api.js";
import { count, iso, localTime, logTime, moment, plural } from "./format.js";
import { empty, failure, tag } from "./parts.js";
import { address, go } from "./route.js";
import { on, state } from "./store.js";

const FILTERS = ["type", "subject", "actor"];
const FOLLOW_MS = 1000;

export function logView(root) {
  const put = asker();
  const page = { found: null, sentence: "", trail: [""], opened: new Set(), follows: false, isBusy: false };
  let asked = 0;
  const show = () => render(view(page, act), root);
  const refresh = () => {
    asked = performance.now();
    page.isBusy = true;
    show();
    const filters = Object.fromEntries(FILTERS.map((name) => [name, state.query.get(name) ?? ""]));
    put(
      "events",
      { ...filters, before: page.trail.at(-1) },
      (answer) => (Object.assign(page, { found: answer, sentence: "", isBusy: false }), show()),
      (reason) => (Object.assign(page, { found: null, sentence: reason, isBusy: false }), show()),
    );
  };
  const act = {
    older: () => (page.trail.push(page.found.before), refresh()),
    newer: () => (page.trail.pop(), refresh()),
    newest: () => ((page.trail.length = 1), refresh()),
    follow: (follows) => ((page.follows = follows), act.newest()),
    toggle: (key) => (page.opened.delete(key) || page.opened.add(key), show()),
    filter: (event) => {
      event.preventDefault();
      go(Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, value.trim()])));
    },
  };
  const stops = [
    on(["records"], () => page.follows && !page.isBusy && performance.now() - asked > FOLLOW_MS && act.newest()),
    on(["whole"], () => state.at && act.newest()),
    on(["route"], act.newest),
  ];
  refresh();
  return () => stops.forEach((stop) => stop());
}

const view = (page, act) => html`
  <div class="head"><h1>Log</h1><p>Every event, the latest first. Choose one to read all of it.</p></div>
  <form class="pages" @submit=${act.filter}>
    <label class="field">Type <select name="type">
      <option value="">all</option>${state.meta.types.map((type) => html`<option value=${type} ?selected=${type === state.query.get("type")}>${type}</option>`)}
    </select></label>
    <label class="field">Subject <input type="text" name="subject" autocomplete="off" .value=${state.query.get("subject") ?? ""}></label>
    <label class="field">Actor <input type="text" name="actor" autocomplete="off" .value=${state.query.get("actor") ?? ""}></label>
    <button type="submit" class="primary">Search</button>
    ${state.at ? nothing : html`<label class="field"><input type="checkbox" .checked=${page.follows} @change=${(event) => act.follow(event.target.checked)}>Follow</label>`}
  </form>
  <br>
  <section class="panel" aria-label="Events" aria-busy=${page.isBusy}>
    <div class="body">
      ${failure(page.sentence)}
      ${page.found && !page.found.events.length ? none(page.found) : nothing}
      ${page.found?.events.length ? table(page, act) : nothing}
      <div class="pages">
        ${page.trail.length > 1 ? html`<button type="button" @click=${act.newest}>Latest</button><button type="button" @click=${act.newer}>Newer</button>` : nothing}
        <button type="button" ?disabled=${!page.found?.before} @click=${act.older}>Older</button>
        ${page.found ? html`<span>${count(page.found.looked_at)} records looked at${page.found.before ? "" : ", back to the beginning"}</span>` : nothing}
      </div>
    </div>
  </section>`;

const none = (found) => found.before
  ? empty(`None of the latest ${count(found.looked_at)} records fits.`, "“Older” looks further back.")
  : empty("No event fits.", "Subject and actor are matched as a whole, as they stand in the log.");

const table = (page, act) => html`
  <div class="scroll"><table class="stack events">
    <thead><tr><th scope="col">appended (UTC)</th><th scope="col">type</th><th scope="col">subject</th><th scope="col">actor</th><th scope="col">what</th><th scope="col">where</th></tr></thead>
    <tbody>${page.found.events.map((event) => rows(event, page.opened, act))}</tbody>
  </table></div>`;

function rows(event, opened, act) {
  const key = `${event.partition}@${event.offset}`;
  const isOpen = opened.has(key);
  return html`
    <tr><td class="when"><time datetime=${iso(event.timestamp_ms)} title=${`${moment(event.timestamp_ms)}, ${localTime(event.timestamp_ms)}`}>${logTime(event.timestamp_ms, state.now)}</time></td>
      <td><button type="button" class="plain" aria-expanded=${isOpen} @click=${() => act.toggle(key)}>${event.type}</button></td>
      <td class="name">${event.envelope?.subject ?? ""}</td><td class="name">${event.envelope?.actor ?? ""}</td>
      <td class="wide what">${summary(event)}</td><td class="name soft">${event.partition} <span class="unseen">offset</span> ${event.offset}</td></tr>
    ${isOpen ? html`<tr><td colspan="6"><p class="then"><a href=${address("fleet", { at: event.timestamp_ms })}>The fleet as it was then</a></p><pre tabindex="0" aria-label=${`${event.type} in full`}>${JSON.stringify(event, null, 2)}</pre></td></tr>` : nothing}`;
}

/** A few words of what an event says, whatever its type. */
function summary(event) {
  const parts = [];
  if (event.zone && event.zone !== event.envelope?.subject) parts.push(`zone ${event.zone}`);
  if (event.type === "InstallsReported") parts.push(installed(event));
  if (event.names) parts.push(event.names.slice(0, 3).join(", ") + (event.names.length > 3 ? " …" : ""));
  if (event.dpu) parts.push(`dpu ${event.dpu}`);
  if (event.domain) parts.push(`${event.domain}/${event.clique}`);
  if (event.node) parts.push(`node ${event.node}`);
  for (const name of ["request", "phase", "kind", "message", "action", "hold", "to_offset", "reason"]) {
    if (event[name]) parts.push(`${name.replace("_", " ")} ${event[name]}`);
  }
  if (event.type === "undecodable") return tag("no schema of this plane reads it", "far");
  return parts.join(" · ");
}

const LEVELS = ["received", "applied", "in hardware"];

/** What a relay saw, in words: up to which version, how far, and what went wrong. */
function installed(event) {
  const last = event.versions.length - 1; // a long list ends with how many more there are
  const reached = last < 0 || typeof event.versions[last] === "string" ? "" : `version ${event.versions[last]} ${LEVELS[event.levels[last]]}, `;
  const refused = Object.keys(event.refused).length;
  const back = Object.keys(event.regressed).length;
  return `${reached}${plural(event.dpu_count, "DPU")}${refused ? `, ${count(refused)} refused it` : ""}${back ? `, ${count(back)} went back` : ""}`;
}
