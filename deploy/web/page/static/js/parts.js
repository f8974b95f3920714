// Pieces that several views show alike.

import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { iso, localTime, moment } from "./format.js";

export const bar = (part, total, kind = "") =>
  html`<span class="bar" data-state=${kind || nothing} aria-hidden="true"><span .style=${`--share:${total ? Math.min(1, part / total) : 0}`}></span></span>`;

export const time = (ms) => (ms > 0 ? html`<time datetime=${iso(ms)} title=${localTime(ms)}>${moment(ms)}</time>` : "–");

/** A command to copy. */
export const command = (text) => html`
  <div class="command">
    <code>${text}</code>
    <button type="button" class="small" @click=${(event) => copy(event.currentTarget, text)}>Copy</button>
  </div>`;

export const failure = (sentence) => (sentence ? html`<p class="notice" role="alert">${sentence}</p>` : nothing);

export const empty = (what, then) => html`<p class="empty"><strong>${what}</strong>${then}</p>`;

/** What colours mean: a name of the state as tags and bars have it, and its meaning, each. */
export const legend = (meanings, shape = "swatch") => html`
  <ul class="legend" aria-label="What colours mean">${meanings.map(([kind, meaning]) => html`
    <li><span class=${shape} data-state=${kind || nothing} aria-hidden="true"></span>${meaning}</li>`)}</ul>`;

export const tag = (text, kind = "") => html`<span class="tag" data-state=${kind || nothing}>${text}</span>`;

export function announce(sentence) {
  document.getElementById("announcer").textContent = sentence;
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
    button.textContent = "Copied";
  } catch {
    const range = document.createRange(); // no clipboard without TLS off the loopback: select it instead
    range.selectNodeContents(button.previousElementSibling);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}
