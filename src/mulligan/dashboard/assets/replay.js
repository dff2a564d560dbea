// The tab Replay of a run: the slider asks the server for the run after another event, and replaces what differs. A run
// that goes on gets more events, and stays where it is.
import { morph } from "./morph.js";
import { showTimes } from "./times.js";
import { watch } from "./live.js";
import "./run_tabs.js";

const PLAY_MS = 450;
// The same for long logs: the whole of it passes in about two minutes.
const FRAMES = 250;

const root = document.getElementById("replay");
let wanted = Number(root.dataset.seq);
let asked = 0;
let playing = 0;

const slider = () => document.getElementById("replay-at");
const last = () => Number(slider().max);

/** Show the run after an event. While one is asked for, only the newest wish is remembered. */
async function show(seq, { push = false } = {}) {
  wanted = Math.min(Math.max(1, seq), last());
  slider().value = wanted;
  const query = new URLSearchParams(location.search);
  query.set("at", wanted);
  history[push ? "pushState" : "replaceState"](null, "", `${location.pathname}?${query}`);
  if (asked) return;
  asked = wanted;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 401) return location.reload();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("replay");
    showTimes(fresh);
    const top = last();
    fresh.querySelector("#replay-at").max = Math.max(top, Number(fresh.dataset.last));
    if (wanted !== asked) fresh.querySelector("#replay-at").value = wanted;
    morph(root, fresh);
    slider().value = wanted;
    slider().max = Math.max(top, Number(root.dataset.last));
    prepare();
    window.mulliganReplayed = Number(root.dataset.seq);
  } catch {
    // The server is away; the state of the connection says so.
  } finally {
    const next = wanted !== asked;
    asked = 0;
    if (next) show(wanted);
    else if (root.querySelector("[data-again]")) setTimeout(() => show(wanted), 200);
  }
}

/** What only makes sense with this module. */
function prepare() {
  document.getElementById("replay-show").hidden = true;
  const play = document.getElementById("replay-play");
  play.hidden = false;
  play.textContent = playing ? "Stop" : "Play";
}

function stop() {
  clearInterval(playing);
  playing = 0;
  prepare();
}

function play() {
  if (playing) return stop();
  if (wanted >= last()) wanted = 0;
  const step = Math.max(1, Math.ceil(last() / FRAMES));
  playing = setInterval(() => {
    if (asked) return;
    if (wanted >= last()) return stop();
    show(wanted + step);
  }, PLAY_MS);
  show(wanted + 1);
}

root.addEventListener("input", (event) => event.target.id === "replay-at" && show(Number(event.target.value)));
root.addEventListener("submit", (event) => {
  event.preventDefault();
  show(Number(slider().value));
});
root.addEventListener("click", (event) => {
  const step = event.target.closest("a[data-at]");
  if (step && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    show(Number(step.dataset.at));
  }
  if (event.target.id === "replay-play") play();
});
// The arrow keys move it also where nothing has the focus.
document.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!move || event.target !== document.body || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  show(wanted + move);
});
window.addEventListener("popstate", () => show(Number(new URLSearchParams(location.search).get("at")) || last()));
watch(`run:${root.dataset.run}`, (event, data) => {
  if (event === "run" && data.seq > last()) slider().max = data.seq;
});
prepare();
if (root.querySelector("[data-again]")) show(wanted);
