// Questions to the plane. Each is about the moment shown; an answer that nobody waits for any more is dropped.

import { state } from "./store.js";

/** The answer to a question, as JSON. Throws an Error with the plane's own sentence. */
export async function ask(name, parameters = {}, { signal, at = state.at } = {}) {
  if (state.wrong && at === state.at) throw new Error(state.wrong);
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries({ ...parameters, ...(at ? { at } : {}) })) {
    if (value !== "" && value !== undefined && value !== false) query.set(key, value === true ? 1 : value);
  }
  const text = query.toString();
  const response = await fetch(`/page/data/${name}${text ? `?${text}` : ""}`, { signal, headers: { Accept: "application/json" } });
  const answer = await response.json().catch(() => ({ error: `the plane answered ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(answer.error), { isTransient: response.status === 503 });
  return answer;
}

/** One question at a time: a newer one ends the one before. `then` hears the answer, `failed` the sentence. */
export function asker() {
  let running = null;
  return async function put(name, parameters, then, failed) {
    running?.abort();
    const own = (running = new AbortController());
    try {
      const answer = await ask(name, parameters, { signal: own.signal });
      if (!own.signal.aborted) then(answer);
    } catch (error) {
      if (!own.signal.aborted) failed(error.message);
    } finally {
      if (running === own) running = null;
    }
  };
}
