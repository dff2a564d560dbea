// The page of a step or an item: its log, its items, its keys, and what changes while somebody looks.
import { refresh } from "./dashboard.js";
import { addKey } from "./keyboard.js";
import { startItems } from "./items.js";
import { startLog } from "./log.js";
import { watch } from "./live.js";

const about = document.getElementById("step-page").dataset;
const main = document.getElementById("main");
let log = null;
let items = null;

function readAttempts() {
  return JSON.parse(document.getElementById("log-attempts")?.dataset.attempts ?? "[]");
}

function showParts() {
  const logRoot = document.getElementById("log-view");
  if (logRoot && !log) log = startLog(logRoot, { run: about.run, unit: document.getElementById("log-attempts").dataset.unit, readAttempts });
  else if (logRoot) log.setAttempts(readAttempts());
  const itemRoot = document.getElementById("item-view");
  const counts = document.getElementById("item-counts")?.dataset;
  if (itemRoot && !items) items = startItems(itemRoot, { run: about.run, step: about.step, kind: counts.kind, counts: JSON.parse(counts.counts) });
  else if (itemRoot) items.setCounts(JSON.parse(counts.counts));
}

/** Whether a change of the run may be seen on this page. */
function concerns(event, change) {
  if (event !== "run" || change.kind === "all") return true;
  if (change.status !== status) return true;
  return items !== null || (change.steps ?? []).some(({ name }) => name === about.step || name === about.matrix);
}

// A page with very many items takes the server a while.
const MANY_ITEMS = 5000;
const MANY_PAUSE_MS = 5000;
let timer = 0;

function refreshSoon() {
  if (timer) return;
  const counts = JSON.parse(document.getElementById("item-counts")?.dataset.counts ?? "{}");
  const isMany = Object.values(counts).reduce((sum, one) => sum + one, 0) > MANY_ITEMS;
  timer = setTimeout(() => ((timer = 0), refresh()), isMany ? MANY_PAUSE_MS : 0);
}

let status = null;
watch(`run:${about.run}`, (event, change) => {
  // What happened between the rendering of the page and the begin of the stream is in no event.
  if (change.reason === "start") return about.open === undefined ? undefined : refresh();
  if (concerns(event, change)) refreshSoon();
  status = change.status ?? status;
});
main.addEventListener("refreshed", showParts);

// The log of an attempt, from its row.
main.addEventListener("click", (event) => {
  const link = event.target.closest("[data-log-place]");
  if (!link || event.ctrlKey || event.metaKey || !log) return;
  event.preventDefault();
  log.show({ place: link.dataset.logPlace, attempt: Number(link.dataset.logAttempt), stream: "" });
  document.getElementById("log").scrollIntoView({ block: "start" });
});

for (const [key, rel, text] of [["n", "next", "next failed step or item"], ["p", "prev", "previous failed step or item"]]) {
  addKey(key, text, () => document.querySelector(`#main a[rel=${rel}]`)?.click());
}
addKey("l", "to the log", () => {
  document.getElementById("log")?.scrollIntoView({ block: "start" });
  document.querySelector(".log-box")?.focus({ preventScroll: true });
});

showParts();
