// The address says what is shown: `#/VIEW?zone=...&at=MS`. So a moment of the past can be sent to a colleague.

import { state, tell } from "./store.js";

export const VIEWS = ["fleet", "lifecycle", "cliques", "holds", "log"];
const AT_MAX = 8.64e15; // the last moment that a date can name

/** Read the address into the state. */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = VIEWS.includes(path) ? path : "fleet";
  state.query = new URLSearchParams(query);
  const at = Number(state.query.get("at") ?? 0);
  const moment = Number.isSafeInteger(at) && at > 0 && at < AT_MAX ? at : 0;
  const topics = ["route"];
  if (view !== state.view) topics.push("view");
  if (moment !== state.at) topics.push("at");
  state.view = view;
  state.at = moment;
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
