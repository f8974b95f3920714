// What a zone's numbers mean: which of six states it is in. A newer table than any report is on its way, not missing,
// until somebody has waited for it too long.

import { count, percent } from "./format.js";

export const PATIENCE_MS = 10_000;

export const STATES = {
  far: { mark: "▲", label: "under 90 % up to date", order: 0 },
  behind: { mark: "△", label: "some DPUs behind", order: 1 },
  frozen: { mark: "❄", label: "frozen", order: 2 },
  moving: { mark: "›", label: "change on its way", order: 3 },
  current: { mark: "", label: "every DPU up to date", order: 4 },
  empty: { mark: "", label: "no DPUs", order: 5 },
};

/** How many DPUs count as up to date, and the state that this is. */
export function standing(zone, now) {
  const isLate = (since) => since > 0 && now - since > PATIENCE_MS;
  const holding = isLate(zone.unreported_start_time_ms) ? 0 : zone.in_hardware;
  return { holding, state: stateOf(zone, holding, isLate(zone.unreported_start_time_ms) || isLate(zone.pending_start_time_ms)) };
}

function stateOf(zone, holding, isLate) {
  if (!zone.dpus) return "empty";
  if (zone.frozen) return "frozen";
  if (isLate) return holding < 0.9 * zone.dpus ? "far" : "behind";
  return zone.pending_start_time_ms || zone.unreported_start_time_ms ? "moving" : "current";
}

export function spoken(zone, { holding, state }) {
  if (state === "empty") return `${zone.zone}: no DPUs, ${count(zone.nodes)} nodes`;
  const stuck = zone.stuck ? `, ${count(zone.stuck)} stuck` : "";
  return `${zone.zone}: ${count(holding)} of ${count(zone.dpus)} DPUs up to date, ${STATES[state].label}${stuck}`;
}

export const short = (zone, { holding, state }) => (state === "empty" ? "no DPUs" : percent(holding, zone.dpus));
