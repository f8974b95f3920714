// Numbers, times and lengths of time, as a person reads them.

const whole = new Intl.NumberFormat("en");
// Every time is shown in UTC, as in the log and on the command line, so that colleagues in two countries read the same.
const day = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium", timeZone: "UTC" });
const clock = new Intl.DateTimeFormat("sv", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, timeZone: "UTC" });

/** Milliseconds of a time of the API, such as 2026-11-25T03:30:00.250Z; 0 for one that is absent. */
export const timeMs = (text) => (text ? Date.parse(text) : 0);

/** Milliseconds of a duration of the API, such as 1.500s; -1 for one that is absent. */
export const durationMs = (text) => (text ? 1000 * parseFloat(text) : -1);

export const count = (value) => whole.format(value);

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A share that says 100 % only of everything, and 0 % only of nothing. */
export function percent(part, total) {
  if (!total) return "–";
  if (part >= total) return "100 %";
  if (part <= 0) return "0 %";
  const share = (100 * part) / total;
  if (share >= 99.99) return "99.99 %";
  if (share < 0.01) return "0.01 %";
  const digits = share > 99 || share < 1 ? 2 : share > 90 ? 1 : 0;
  const factor = 10 ** digits;
  return `${(Math.floor(share * factor) / factor).toFixed(digits)} %`;
}

export function milliseconds(value) {
  if (value < 0) return "unknown";
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return duration(value);
}

export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return both(Math.floor(seconds / 60), "min", seconds % 60, "s");
  if (seconds < 86_400) return both(Math.floor(seconds / 3600), "h", Math.floor((seconds % 3600) / 60), "min");
  return both(Math.floor(seconds / 86_400), "d", Math.floor((seconds % 86_400) / 3600), "h");
}

const both = (many, unit, rest, smaller) => `${many} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;

export const ago = (ms, now) => (now - ms < 1000 ? "just now" : `${duration(now - ms)} ago`);

export const moment = (ms) => `${day.format(ms)} UTC`;

const local = new Intl.DateTimeFormat("sv", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

/** The time in the viewer's zone, for the hover text of a time that is shown in UTC. */
export const localTime = (ms) => `${local.format(ms)} (your time)`;

export const clockTime = (ms) => clock.format(ms).replace(",", ".");

/** The time of day, with its date before it unless that is today's. A heading beside it names the time zone. */
export const logTime = (ms, now) => `${moment(ms).slice(0, 10) === moment(now).slice(0, 10) ? "" : `${moment(ms).slice(0, 10)} `}${clockTime(ms)}`;

export const iso = (ms) => new Date(ms).toISOString();

/** Names with numbers in them, in the order in which a person counts. */
export const byName = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;

/** Text as one word of a POSIX shell, so that a command can be copied whatever a name holds. */
export const quoted = (text) => (/^[A-Za-z0-9._\/:=-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);
