// The zones as tiles: one button each, touched only where something changed. The arrow keys move between them, as on a
// chessboard; one of them is in the order of the tab key.

import { byName } from "./format.js";
import { state, takeTouched } from "./store.js";
import { short, spoken, standing, STATES } from "./zones.js";

export const TILES_MAX = 2000;
const SORT_MS = 2000;
const TAIL = 7;

function part(text) {
  const span = document.createElement("span");
  span.textContent = text;
  return span;
}

export class Tiles {
  constructor(root, onOpen) {
    this.root = root;
    this.onOpen = onOpen;
    this.tiles = new Map(); // name to {button, name, share, text, state, told}
    this.order = "name";
    this.filter = "";
    this.sorted = 0;
    this.current = "";
    root.addEventListener("keydown", (event) => this.move(event));
    root.addEventListener("click", (event) => this.open(event.target.closest("button")));
    root.addEventListener("focusin", (event) => this.select(event.target.dataset.zone));
  }

  /** Bring what changed up to date; everything, if `all`. Returns how many zones are in which state. */
  update(all = false) {
    const touched = takeTouched();
    let isNew = all;
    const counts = { far: 0, behind: 0, frozen: 0, moving: 0, current: 0, empty: 0 };
    let holding = 0;
    for (const zone of state.zones.values()) {
      const found = standing(zone, state.now);
      counts[found.state] += 1;
      holding += found.holding;
      let tile = this.tiles.get(zone.zone);
      if (!tile) {
        tile = this.add(zone.zone);
        isNew = true;
      } else if (!all && !touched.has(zone.zone) && tile.state === found.state) continue;
      this.paint(tile, zone, found);
    }
    if (this.tiles.size > state.zones.size) isNew = this.dropGone() || isNew;
    const isStale = this.order !== "name" && performance.now() - this.sorted > SORT_MS;
    if (isNew || (isStale && !this.root.contains(document.activeElement))) this.arrange();
    return { counts, holding };
  }

  add(name) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "tile";
    button.tabIndex = -1;
    button.dataset.zone = name;
    const title = button.appendChild(document.createElement("span"));
    const share = button.appendChild(document.createElement("span"));
    title.className = "tile-name";
    share.className = "tile-share";
    // Cut in the middle where it is too long: zones differ in the ends of their names.
    title.append(...[name.slice(0, -TAIL), name.slice(-TAIL)].map(part));
    if (name.length > TAIL) button.title = name;
    const tile = { button, share, name, state: "", text: "", spoken: "", level: -1 };
    this.tiles.set(name, tile);
    return tile;
  }

  paint(tile, zone, found) {
    const text = short(zone, found);
    const level = zone.dpus ? Math.round((1000 * found.holding) / zone.dpus) / 1000 : 0;
    if (tile.state !== found.state) {
      tile.button.dataset.state = tile.state = found.state;
      tile.share.dataset.mark = STATES[found.state].mark;
    }
    if (tile.text !== text) tile.share.textContent = tile.text = text;
    if (tile.level !== level) tile.button.style.setProperty("--share", (tile.level = level));
    const sentence = spoken(zone, found);
    if (tile.spoken !== sentence) tile.button.setAttribute("aria-label", (tile.spoken = sentence));
  }

  dropGone() {
    const gone = [...this.tiles.keys()].filter((name) => !state.zones.has(name));
    for (const name of gone) {
      this.tiles.get(name).button.remove();
      this.tiles.delete(name);
    }
    return gone.length > 0;
  }

  arrange() {
    this.sorted = performance.now();
    const wanted = this.filter.toLowerCase();
    const shown = [...this.tiles.values()].filter((tile) => tile.name.toLowerCase().includes(wanted));
    shown.sort((one, other) => this.compare(one, other));
    const kept = shown.slice(0, TILES_MAX);
    const focused = document.activeElement;
    this.root.replaceChildren(...kept.map((tile) => tile.button));
    if (focused?.classList.contains("tile") && this.root.contains(focused)) focused.focus();
    this.root.style.setProperty("--tile", kept.length > 120 ? "70px" : kept.length > 60 ? "88px" : kept.length > 16 ? "124px" : "172px");
    this.root.classList.toggle("dense", kept.length > 120);
    this.shown = kept.length;
    this.found = shown.length;
    if (!this.root.querySelector('[tabindex="0"]')) this.select(kept[0]?.name);
  }

  compare(one, other) {
    if (this.order === "name") return byName(one.name, other.name);
    return STATES[one.state].order - STATES[other.state].order || one.level - other.level || byName(one.name, other.name);
  }

  select(name) {
    if (name === undefined) return;
    const before = this.tiles.get(this.current);
    if (before) before.button.tabIndex = -1;
    const tile = this.tiles.get(name);
    if (tile) tile.button.tabIndex = 0;
    this.current = name;
  }

  move(event) {
    const all = [...this.root.children];
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const columns = getComputedStyle(this.root).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: 5 * columns, PageUp: -5 * columns };
    let to;
    if (event.key === "Home") to = 0;
    else if (event.key === "End") to = all.length - 1;
    else if (event.key in steps) to = at + steps[event.key];
    else return;
    event.preventDefault();
    if (event.key.startsWith("Page")) to = Math.min(all.length - 1, Math.max(0, to));
    all[to]?.focus();
  }

  open(button) {
    if (button?.dataset.zone !== undefined) this.onOpen(button.dataset.zone);
  }
}
