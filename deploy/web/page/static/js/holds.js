// Withdrawals over their budget: what would happen, who agreed so far, and the command to agree.

import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import { asker } from "./api.js";
import { ago, count, plural, timeMs } from "./format.js";
import { command, empty, failure, tag, time } from "./parts.js";
import { on, state } from "./store.js";

const NEEDED = 2;

export function holdsView(root) {
  const put = asker();
  let found = null;
  let sentence = "";
  const show = () => render(view(found, sentence), root);
  const refresh = () => put("holds", {}, (answer) => ((found = answer), (sentence = ""), show()), (reason) => ((found = null), (sentence = reason), show()));
  const stop = on(["holds", "whole"], refresh);
  show();
  refresh();
  return stop;
}

const view = (found, sentence) => html`
  <div class="head"><h1>Holds</h1>
    <p>A change that would deny too many addresses at once is kept from the devices until two people agree. The old rules stay meanwhile.</p></div>
  ${failure(sentence)}
  ${found && !found.holds.length ? empty("Nothing waits for approval.", "Leaves, policy edits and new drops within their budgets go through by themselves: dpuplane budgets list") : nothing}
  ${(found?.holds ?? []).map(card)}`;

const card = (hold) => html`
  <section class="panel" aria-labelledby=${`hold-${hold.hold}`}>
    <header><h2 id=${`hold-${hold.hold}`}>Hold ${hold.hold}</h2>
      ${tag(`${hold.kind} ${hold.subject}`, "behind")}
      ${tag(`${hold.approved_by.length} of ${NEEDED} approvals`, "moving")}
      <p class="tools"><span>since ${time(timeMs(hold.create_time))}, ${ago(timeMs(hold.create_time), state.now)}</span></p></header>
    <div class="body">
      <p>${hold.reason}</p><br>
      <dl class="facts">
        <dt>Would deny</dt><dd>${plural(hold.addresses, "address", "addresses")} in the table that loses most</dd>
        <dt>Concerns</dt><dd>${plural(hold.node_count, "node")}${hold.policy ? html`, policy ${tag(hold.policy)}` : nothing}</dd>
        <dt>Zones</dt><dd>${hold.zones.length ? some(hold.zones, 12) : "all that the rule reaches"}</dd>
        <dt>Nodes</dt><dd class="mono">${hold.nodes.length ? some(hold.nodes, 12, hold.node_count) : "–"}</dd>
        <dt>Asked for by</dt><dd>${hold.requested_by || "–"}</dd>
        <dt>Approved by</dt><dd>${hold.approved_by.join(", ") || "nobody yet"}</dd>
        <dt>Hash</dt><dd class="mono">${hold.hash}</dd>
      </dl><br>
      <h3>To approve exactly this</h3>
      ${command(`dpuplane holds approve ${hold.hold} --hash ${hold.hash} --as YOUR-NAME`)}
      <br><h3>To keep the old rules</h3>
      ${command(`dpuplane holds reject ${hold.hold} --as YOUR-NAME`)}
    </div>
  </section>`;

function some(names, most, total = names.length) {
  const left = total - Math.min(most, names.length);
  return `${names.slice(0, most).join(", ")}${left > 0 ? ` and ${count(left)} more` : ""}`;
}
