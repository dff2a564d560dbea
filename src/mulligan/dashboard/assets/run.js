// The overview of a run: draws the mosaic and the timeline, and follows the run by its changes. The text of the page is
// rendered again only when it would say something else: another status, another number of failures.
import { get } from "./api.js";
import { refresh } from "./dashboard.js";
import { watch } from "./live.js";
import { Gantt } from "./gantt.js";
import { Mosaic } from "./mosaic.js";

const charts = document.getElementById("run-charts");
const runId = Number(charts.dataset.run);
const path = `runs/${runId}`;
// What changes the words at the top of the page.
const TOLD = ["failed", "pending_failed", "backing_off", "handling", "running"];
const TEXT_MS = 2_000;

const mosaic = new Mosaic(document.getElementById("mosaic"), document.getElementById("mosaic-said"), path);
const gantt = new Gantt(document.getElementById("gantt"), path);
let seq = 0;
// What the text of the page says; the run may have gone on since the server wrote it.
let told = charts.dataset.shown ? wordsOf(JSON.parse(charts.dataset.shown)) : "";
let textTimer = 0;
let readTimer = 0;
let reading = false;

/** Read how all steps stand. Later changes come by the stream. */
async function read() {
  if (reading) return void (readTimer ||= setTimeout(() => ((readTimer = 0), read()), 1000));
  reading = true;
  try {
    const found = await get(`${path}/mosaic`);
    mosaic.show(found);
    showCounts(found.counts);
    if (!seq) performance.mark("run-data");
    seq = found.seq;
    tell(found.status, found.counts);
    gantt.setEnded(["completed", "failed", "cancelled"].includes(found.status));
    await loadText();
    follow();
    gantt.load();
  } catch {
    // Said by the state of the connection; its return reads again.
  } finally {
    reading = false;
  }
}

/** The server has to load a large run before it can say why it is as it is, which takes a moment. */
async function loadText() {
  if (!document.getElementById("run-loading")) return;
  await get(path);
  refresh();
}

/** Take in the steps that have changed. */
function apply(changes) {
  if (changes.seq <= seq) return;
  if (changes.after > seq || mosaic.stepsPerCell > 1) {
    // A cell that stands for several steps is made by the server.
    readTimer ||= setTimeout(() => ((readTimer = 0), read()), mosaic.stepsPerCell > 1 ? 1500 : 0);
    if (changes.after > seq) return;
  }
  const begun = performance.now();
  seq = changes.seq;
  mosaic.update(changes.steps);
  showCounts(changes.counts);
  gantt.setEnded(["completed", "failed", "cancelled"].includes(changes.status));
  gantt.update(changes.steps);
  tell(changes.status, changes.counts);
  // For bench/faces.py: how long an update takes.
  window.mulliganUpdates?.push(performance.now() - begun);
}

function wordsOf({ status, counts }) {
  return [status, ...TOLD.slice(0, 4).map((one) => counts[one] ?? 0), (counts.running ?? 0) > 0].join();
}

function tell(status, counts) {
  const now = wordsOf({ status, counts });
  if (told && told !== now) textTimer ||= setTimeout(() => ((textTimer = 0), refresh()), TEXT_MS);
  told = now;
}

/** The bar and the numbers below it. */
function showCounts(counts) {
  const root = document.getElementById("run-counts");
  if (!root || !Object.keys(counts).length) return;
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0) || 1;
  let left = 0;
  for (const piece of root.querySelectorAll("rect")) {
    const share = ((counts[piece.dataset.status] ?? 0) / total) * 100;
    piece.setAttribute("x", `${left}%`);
    piece.setAttribute("width", `${share}%`);
    left += share;
  }
  for (const word of root.querySelectorAll("li")) {
    const count = counts[word.dataset.status] ?? 0;
    word.hidden = !count;
    word.firstElementChild.textContent = count.toLocaleString("en");
  }
}

const hide = document.getElementById("hide-completed");
hide.addEventListener("change", () => {
  mosaic.hideCompleted(hide.checked);
  gantt.hideCompleted(hide.checked);
});

let following = false;
function follow() {
  if (following) return;
  following = true;
  watch(`run:${runId}`, (event, data) => {
    if (event === "run") apply(data);
    else if (event === "removed") refresh();
    else read();
  });
}
watch("pending", (event, data) => {
  const mine = [...(data.entries ?? []), ...(data.removed ?? [])].some((one) => one.run_id === runId);
  if (mine) textTimer ||= setTimeout(() => ((textTimer = 0), refresh()), 300);
});
// It may have forgotten the run meanwhile.
document.getElementById("main").addEventListener("refreshed", () => loadText().catch(() => {}));
new MutationObserver(() => (mosaic.draw(), gantt.draw())).observe(document.documentElement, { attributeFilter: ["data-theme"] });
read();
