// Clique tables: who holds which index, whose daemon is ready, and who waits in line.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { asker } from "./api.js";
import { plural } from "./format.js";
import { empty, failure, legend, tag } from "./parts.js";
import { go } from "./route.js";
import { on, state } from "./store.js";

export function cliquesView(root) {
  const put = asker();
  let found = null;
  let sentence = "";
  const trail = [""];
  const show = () => render(view(found, sentence, trail, turn), root);
  const refresh = () =>
    put(
      "cliques",
      { domain: state.query.get("domain") ?? "", page_token: trail.at(-1) },
      (answer) => ((found = answer), (sentence = ""), show()),
      (reason) => ((found = null), (sentence = reason), show()),
    );
  const turn = (token) => {
    if (token) trail.push(token);
    else trail.pop();
    refresh();
  };
  const stops = [
    on(["cliques", "whole"], refresh),
    on(["route"], () => {
      trail.length = 1;
      refresh();
    }),
  ];
  show();
  refresh();
  return () => stops.forEach((stop) => stop());
}

const view = (found, sentence, trail, turn) => html`
  <div class="head"><h1>Cliques</h1><p>The dense index tables of GPU cliques: an index has at most one node, a node at most one index.</p></div>
  <form class="pages" @submit=${search}>
    <label class="field">Domain <input name="domain" type="search" autocomplete="off" .value=${state.query.get("domain") ?? ""}></label>
    <button type="submit">Show</button>
  </form>
  <br>
  ${failure(sentence)}
  ${found && !found.cliques.length ? empty("No clique yet.", "A clique is there once somebody claims an index in it: dpuplane cliques claim DOMAIN CLIQUE NODE") : nothing}
  ${found?.cliques.length ? legend([["ready", "index held, its daemon is ready"], ["claimed", "held, its daemon is not ready"], ["free", "free"]], "slot") : nothing}
  <div class="cards">${(found?.cliques ?? []).map(card)}</div>
  <div class="pages">
    ${trail.length > 1 ? html`<button type="button" @click=${() => turn("")}>Previous page</button>` : nothing}
    ${found?.next_page_token ? html`<button type="button" @click=${() => turn(found.next_page_token)}>Next page</button>` : nothing}
  </div>`;

function search(event) {
  event.preventDefault();
  go({ domain: new FormData(event.target).get("domain").trim() });
}

function card(clique) {
  const held = new Map(clique.members.map((member) => [member.index, member]));
  const ready = clique.members.filter((member) => member.ready).length;
  const slots = Array.from({ length: clique.capacity }, (_, index) => [index, held.get(index)]);
  return html`
    <article class="card">
      <header><h2>${clique.domain} / ${clique.clique}</h2>
        <p>${clique.members.length} of ${plural(clique.capacity, "index", "indices")} held, ${ready} ready</p>
        ${clique.waiting.length ? tag(`${clique.waiting.length} waiting`, "behind") : nothing}</header>
      <ul class="slots" aria-hidden="true">${slots.map(([index, member]) => html`
        <li class="slot" data-state=${!member ? "free" : member.ready ? "ready" : "claimed"}
          title=${member ? `${index}: ${member.node}, ${member.ready ? "ready" : "not ready"}` : `${index}: free`}>${index}</li>`)}</ul>
      <details><summary>Table</summary><div class="scroll"><table>
        <caption class="unseen">Clique ${clique.domain} / ${clique.clique}</caption>
        <thead><tr><th scope="col" class="right">index</th><th scope="col">node</th><th scope="col">address</th><th scope="col">daemon</th></tr></thead>
        <tbody>${clique.members.map((member) => html`
          <tr><td class="right">${member.index}</td><td class="name">${member.node}</td><td class="name">${member.address || "–"}</td>
            <td>${member.ready ? tag("ready", "good") : tag("not ready", "behind")}${member.session_alive ? nothing : tag("session expired", "far")}</td></tr>`)}
          ${clique.waiting.map((waiter) => html`
          <tr><td class="right">–</td><td class="name">${waiter.node}</td><td>–</td><td>${tag(`waits, place ${waiter.queue_position}`, "moving")}</td></tr>`)}</tbody>
      </table></div></details>
    </article>`;
}
