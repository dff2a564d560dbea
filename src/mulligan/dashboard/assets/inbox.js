// The inbox: moving through the entries, selecting them, and deciding about one or many.
import { refresh } from "./dashboard.js";
import { addKey } from "./keyboard.js";
import { morph } from "./morph.js";
import { send } from "./api.js";
import { say, sayError } from "./notes.js";
import { showTimes } from "./times.js";
import { openDecision } from "./decision.js";

const main = document.getElementById("main");
const rows = () => [...main.querySelectorAll(".entries li")];
const decides = () => main.querySelector("#inbox[data-decides]") !== null;

// -- the entry that is shown -----------------------------------------------------------------------------------------

let loading = null;

/** Show an entry: mark its row, and put its details beside the list. */
async function showEntry(row) {
  const link = row.querySelector("a");
  // From here on the address names the entry, so that it stays when the list changes.
  history.replaceState(null, "", link.href);
  if (link.hasAttribute("aria-current")) return void row.setAttribute("data-current", "");
  for (const one of main.querySelectorAll(".entries [data-current]")) one.removeAttribute("data-current");
  for (const one of main.querySelectorAll(".entries [aria-current]")) one.removeAttribute("aria-current");
  row.setAttribute("data-current", "");
  link.setAttribute("aria-current", "true");
  loading?.abort();
  const mine = (loading = new AbortController());
  try {
    const answer = await fetch(link.href, { headers: { accept: "text/html" }, signal: mine.signal });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("detail");
    const pane = document.getElementById("detail");
    if (mine.signal.aborted || !fresh || !pane) return;
    showTimes(fresh);
    morph(pane, fresh);
    pane.scrollTop = 0;
  } catch {
    // Aborted for the next one, or the server is away, which the top of the page says.
  }
}

main.addEventListener("focusin", (event) => {
  const row = event.target.closest(".entries li");
  if (row) showEntry(row);
});
main.addEventListener("click", (event) => {
  const link = event.target.closest(".entries li a");
  if (link && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
    event.preventDefault();
    showEntry(link.closest("li"));
    // Where the details are below the list they have to be brought into view; for a keyboard they are the next stop.
    const pane = document.getElementById("detail");
    if (pane.getBoundingClientRect().top > innerHeight / 2) pane.scrollIntoView({ behavior: "smooth" });
    if (event.detail === 0) pane.focus({ preventScroll: true });
    return;
  }
  const row = event.target.closest(".entries li");
  if (row && !event.target.closest("input, a")) row.querySelector("a").focus();
  const agreed = event.target.closest("[data-accept]");
  if (agreed) accept(agreed);
  const button = event.target.closest("[data-decide]");
  if (button) decide(button.dataset.decide, button.closest("#selection") ? selected() : shown());
});
addKey("Escape", "back to the list", () => {
  if (document.activeElement?.closest(".detail")) main.querySelector(".entries [data-current] a")?.focus();
  else clearSelection();
});

/** The entry that the pane shows, if it still waits. */
function shown() {
  const row = main.querySelector(".entries li[data-current]");
  if (row) return [target(row)];
  // A list of many has it on another page.
  const pane = document.getElementById("detail");
  const head = pane?.querySelector(".detail-head[data-kind]");
  return head ? [target({ id: pane.id, dataset: { ...pane.dataset, ...head.dataset } })] : [];
}

function target(row) {
  const { run, step, name, kind, attempt } = row.dataset;
  return { id: row.id, run_id: Number(run), step: step ?? "", name: name ?? step ?? "", kind, attempt: Number(attempt ?? 0) };
}

// -- selecting -------------------------------------------------------------------------------------------------------

const selected = () => rows().filter((row) => row.querySelector(".one")?.checked).map(target);

// The bar belongs to this script: a fresh page has none.
const bar = Object.assign(document.createElement("div"), { id: "selection", className: "selection", hidden: true });
bar.setAttribute("role", "toolbar");
bar.setAttribute("aria-label", "Selected entries");
document.body.append(bar);
bar.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.decide) decide(button.dataset.decide, selected());
  else if (button) clearSelection();
});

function clearSelection() {
  for (const one of main.querySelectorAll(".entries input")) one.checked = one.indeterminate = false;
  showSelection();
}

/** Say how many are selected and what can be done with them; the boxes of groups follow those of their rows. */
function showSelection() {
  for (const group of main.querySelectorAll(".group")) {
    const boxes = [...group.querySelectorAll(".one")];
    const all = group.querySelector(".all");
    const checked = boxes.filter((one) => one.checked).length;
    if (all) [all.checked, all.indeterminate] = [checked === boxes.length, checked > 0 && checked < boxes.length];
  }
  for (const row of rows()) row.toggleAttribute("data-selected", row.querySelector(".one")?.checked ?? false);
  const chosen = selected();
  bar.hidden = !chosen.length;
  if (!chosen.length) return;
  const parked = chosen.filter((one) => one.kind === "parked").length;
  const buttons = [];
  if (parked) buttons.push(["retry", `Retry ${count(parked, "step")}`, "r", "primary"]);
  if (parked < chosen.length) buttons.push(["approve", `Approve ${chosen.length - parked}`, "a", "primary"]);
  buttons.push(["fail", parked ? "Let fail" : "Refuse", "f", ""]);
  const made = buttons.map(([verdict, label, key, tone]) => {
    const button = Object.assign(document.createElement("button"), { type: "button", className: tone });
    button.dataset.decide = verdict;
    button.append(`${label} `, Object.assign(document.createElement("kbd"), { textContent: key }));
    return button;
  });
  const clear = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Clear" });
  const text = Object.assign(document.createElement("span"), { textContent: `${chosen.length.toLocaleString()} selected` });
  text.setAttribute("role", "status");
  bar.replaceChildren(text, ...made, clear);
}

main.addEventListener("change", (event) => {
  const all = event.target.closest(".group .all");
  if (all) for (const one of all.closest(".group").querySelectorAll(".one")) one.checked = all.checked;
  if (event.target.closest(".entries")) showSelection();
});
main.addEventListener("refreshed", showSelection);

const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;

// -- deciding --------------------------------------------------------------------------------------------------------

const FITS = { retry: ["parked"], approve: ["approval"], fail: ["parked", "approval"] };

/** Ask about a decision, make it, and go on to the entry that follows in the list. */
async function decide(verdict, targets) {
  if (!decides()) return;
  const fitting = targets.filter((one) => FITS[verdict].includes(one.kind));
  if (!fitting.length) {
    const nouns = { retry: "a parked step", approve: "an approval", fail: "a parked step or an approval" };
    return say(targets.length ? `this is not ${nouns[verdict]}` : "nothing is selected");
  }
  const current = main.querySelector(".entries li[data-current]");
  if (current) showEntry(current);
  const position = rows().findIndex((row) => fitting.some((one) => one.id === row.id));
  const done = await openDecision(verdict, fitting, { onRefresh: (handler) => main.addEventListener("refreshed", handler) });
  if (!done.length) return void main.querySelector(".entries [data-current] a")?.focus();
  for (const one of done) {
    const box = document.getElementById(one.id)?.querySelector(".one");
    if (box) box.checked = false;
  }
  await goOn(position, new Set(done.map((one) => one.id)));
}

/** Do what an agent suggests: the ordinary decision, with its reason. Refused if somebody else was first. */
async function accept(button) {
  const current = main.querySelector(".entries li[data-current]");
  const position = rows().indexOf(current);
  button.disabled = true;
  try {
    const answer = await send("POST", "decisions", { decisions: [JSON.parse(button.dataset.accept)] });
    const refused = answer.decisions[0].error;
    if (refused) return void say([refused.message, refused.hint].filter(Boolean).join("; "), { tone: "bad" });
    say("decided as the agent suggests", { tone: "good" });
    await goOn(Math.max(0, position), new Set(current ? [current.id] : []));
  } catch (error) {
    sayError(error);
  } finally {
    button.disabled = false;
  }
}

/** After a decision: the entry that has taken its position in the list. */
async function goOn(position, ids) {
  const left = rows().filter((row) => !ids.has(row.id));
  const before = rows().slice(0, position).filter((row) => !ids.has(row.id)).length;
  const next = left[Math.min(before, left.length - 1)];
  const link = next?.querySelector("a")?.href;
  history.replaceState(null, "", link ?? `${location.pathname}`);
  await refresh();
  showSelection();
  if (next) document.getElementById(next.id)?.querySelector("a")?.focus();
}

/** Whoever came by a link to one entry finds it marked, in sight and ready for a key. */
function showLinked() {
  if (!new URLSearchParams(location.search).has("run")) return;
  const row = main.querySelector(".entries li[data-current]");
  const pane = document.getElementById("detail");
  row?.scrollIntoView({ block: "nearest" });
  if (pane?.getBoundingClientRect().top > innerHeight / 2) pane.scrollIntoView();
  (row?.querySelector("a") ?? pane)?.focus({ preventScroll: true });
}

const chosen = () => (selected().length ? selected() : shown());
if (decides()) {
  addKey("r", "retry what is selected, or this entry", () => decide("retry", chosen()));
  addKey("f", "let it fail, or refuse the approval", () => decide("fail", chosen()));
  addKey("a", "approve", () => decide("approve", chosen()));
  addKey("y", "accept what an agent suggests", () => main.querySelector("[data-accept]")?.click());
  addKey("e", "select everything with the same error", () => {
    const group = main.querySelector(".entries li[data-current]")?.closest(".group");
    for (const one of group?.querySelectorAll(".one") ?? []) one.checked = true;
    showSelection();
  });
}
showSelection();
showLinked();
