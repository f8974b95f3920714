// The live connection. The browser reconnects by itself; the first message after that brings everything anew.

import { state, take, tell } from "./store.js";

const LOST_MS = 7000;
let source = null;
let isFresh = true;

export function open() {
  if (source) return;
  source = new EventSource("/page/feed");
  isFresh = true;
  source.onopen = () => (isFresh = true);
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    take(message, isFresh);
    isFresh = false;
    state.heard = performance.now();
    setLink("live");
  };
  source.onerror = () => {
    setLink("lost");
    if (source?.readyState === EventSource.CLOSED) setTimeout(reopen, 2000); // it was refused: the browser gives up
  };
  setLink("wait");
}

export function close() {
  source?.close();
  source = null;
}

function reopen() {
  if (!source) return;
  close();
  open();
}

setInterval(() => {
  if (source && state.link === "live" && performance.now() - state.heard > LOST_MS) setLink("lost");
  tell("now");
}, 1000);

function setLink(link) {
  if (state.link === link) return;
  state.link = link;
  tell("link");
}
