// What the page knows, and who wants to hear of it. Whoever changes something names the topic; whoever shows it is told
// once per frame, however often it changed.

export const state = {
  meta: null, //       what never changes: phases, types, columns
  at: 0, //            the moment shown in ms, 0 for now
  wrong: "", //        why the address names no moment, empty if it does
  preview: 0, //       the moment that the slider is over while it is held
  path: "", //         the name of the view in the address, whether there is one or not
  view: "fleet", //    one of VIEWS, or "" if the address names none of them
  query: new URLSearchParams(),
  link: "wait", //     live, past, lost, wait, travel, refused
  progress: "", //     how far a plane has come that folds its log up to the moment shown
  heard: 0, //         when the feed last said something, by the clock of this browser
  now: Date.now(), //  by the plane's clock
  zones: new Map(), // name to {zone, nodes, ...}
  totals: { nodes: 0, dpus: 0, stuck: 0, phases: {} },
  latency: { changes: [], buckets: [] },
  holds: [],
  alerts: [],
  cliques: 0,
  records: 0,
  error: "",
};

const listeners = new Map();
const changed = new Set();
let isScheduled = false;

/** Call `listener` when one of these topics changed, until the function that is returned is called. */
export function on(topics, listener) {
  listeners.set(listener, new Set(topics));
  return () => listeners.delete(listener);
}

export function tell(...topics) {
  topics.forEach((topic) => changed.add(topic));
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    const told = new Set(changed);
    changed.clear();
    for (const [listener, wanted] of [...listeners]) {
      if (listeners.has(listener) && [...wanted].some((topic) => told.has(topic))) listener(told);
    }
  });
}

/** Zones that changed since they were last taken: the tiles touch no others. */
const touched = new Set();

export function takeTouched() {
  const taken = new Set(touched);
  touched.clear();
  return taken;
}

/** Take in a message of the feed, or the answer about a moment (`whole`: zones that it lacks were not there). */
export function take(message, whole = false) {
  if (whole) {
    state.zones.clear();
    touched.clear();
  }
  state.now = message.now_ms;
  for (const row of message.zones ?? []) {
    const zone = Object.fromEntries(state.meta.zone_columns.map((name, index) => [name, row[index]]));
    state.zones.set(zone.zone, zone);
    touched.add(zone.zone);
  }
  const topics = ["now"];
  if (whole || message.zones) topics.push("zones");
  for (const name of ["totals", "latency", "holds", "alerts", "cliques", "records"]) {
    if (message[name] === undefined) continue;
    state[name] = message[name];
    topics.push(name);
  }
  if (whole) topics.push("whole");
  tell(...topics);
}

export function fail(sentence) {
  if (state.error === sentence) return;
  state.error = sentence;
  tell("error");
}
