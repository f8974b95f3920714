// The address says what is shown: `#/VIEW?zone=...&at=MS`. So a moment of the past can be sent to a colleague.

import { state, tell } from "./store.js";

export const VIEWS = ["fleet", "lifecycle", "cliques", "holds", "log"];
const AT_MAX = 8.64e15; // the last moment that a date can name
const QUOTED_MAX = 40;

/** Read the address into the state. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = path === "" ? "fleet" : VIEWS.includes(path) ? path : "";
  state.query = new URLSearchParams(query);
  const text = state.query.get("at") ?? "";
  const isMoment = /^[0-9]+$/.test(text) && Number(text) > 0 && Number(text) < AT_MAX;
  const moment = isMoment ? Number(text) : 0;
  const wrong = text && !isMoment ? `at: “${text.slice(0, QUOTED_MAX)}” must be a moment in milliseconds since 1970, as in #/fleet?at=${Date.now()}` : "";
  const topics = ["route"];
  if (view !== state.view) topics.push("view");
  if (moment !== state.at || Boolean(wrong) !== Boolean(state.wrong)) topics.push("at");
  Object.assign(state, { view, at: moment, wrong, path: path.slice(0, QUOTED_MAX) });
  tell(...topics);
}

/** The address of a view at the moment shown. */
export function address(view, more = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ at: state.at || "", ...more })) if (value) query.set(key, value);
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** Go to the same view with some parameters changed; an empty one is left out. `quietly` adds nothing to the history. */
export function go(parameters, quietly = false) {
  const next = address(state.view, { ...Object.fromEntries(state.query), ...parameters });
  if (quietly) {
    history.replaceState(null, "", next);
    read();
  } else location.hash = next;
}
