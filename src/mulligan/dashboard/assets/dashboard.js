// What every page has: live content, times in the reader's zone, keyboard, actions, what happened.
import { get, send, segment } from "./api.js";
import { onState, watch } from "./live.js";
import { morph } from "./morph.js";
import { openAction } from "./actions.js";
import { showTimes } from "./times.js";
import { startKeyboard } from "./keyboard.js";
import { say } from "./notes.js";

const main = document.getElementById("main");

// -- live content ----------------------------------------------------------------------------------------------------

// How often a page is rendered again at most, while things change.
const REFRESH_MS = 700;
// How long an answer may take, and when a page is asked for again that was not answered.
const ANSWER_MS = 30_000;
const AGAIN_MS = 2_000;
let again = 0;
let refreshing = false;
let wantsRefresh = false;
let refreshedAt = 0;

/** Render the page again, and replace what differs. Pages call it after a change; the stream calls it for others. */
export async function refresh() {
  if (refreshing) {
    wantsRefresh = true;
    return;
  }
  refreshing = true;
  clearTimeout(again);
  try {
    do {
      wantsRefresh = false;
      const wait = refreshedAt + REFRESH_MS - performance.now();
      if (wait > 0) await new Promise((done) => setTimeout(done, wait));
      refreshedAt = performance.now();
      const text = await render();
      if (text === null) {
        // The server or its database is away: what was to be shown is not forgotten, also if nothing more happens.
        again = setTimeout(refresh, AGAIN_MS);
        return;
      }
      const fresh = new DOMParser().parseFromString(text, "text/html");
      // An address that is gone has another body.
      if (document.body.className !== fresh.body.className) return location.reload();
      showTimes(fresh.body);
      morph(main, fresh.getElementById("main"));
      document.title = fresh.title;
      main.dispatchEvent(new CustomEvent("refreshed"));
    } while (wantsRefresh);
  } finally {
    refreshing = false;
  }
}

/** The page as the server renders it now; null if it cannot. */
async function render() {
  try {
    const options = { headers: { accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) };
    const answer = await fetch(location.href, options);
    if (answer.status === 401) location.reload();
    return answer.ok || answer.status === 404 ? await answer.text() : null;
  } catch {
    return null;
  }
}

function startLive() {
  const watched = (main.dataset.live ?? "").split(",").filter(Boolean);
  // Also when the stream starts: something may have changed since the server rendered the page.
  for (const name of watched) watch(name, () => refresh());
  // The inbox has its count on every page.
  watch("pending", (event, data) => (event === "pending" ? showCount(data.total) : countPending()));
  const shown = document.getElementById("connection");
  const words = { connecting: "connecting", live: "live", lost: "server away, trying again", logged_out: "logged out" };
  onState((state, before) => {
    shown.dataset.state = state;
    shown.textContent = words[state];
    if (state === "logged_out") location.reload();
    if (state === "live" && before === "lost") refresh();
  });
}

async function countPending() {
  try {
    showCount((await get("pending?limit=1")).total);
  } catch {
    // Said by the state of the connection.
  }
}

function showCount(count) {
  const badge = document.getElementById("inbox-count");
  badge.hidden = !count;
  badge.textContent = count;
  badge.setAttribute("aria-label", `${count} waiting`);
}

// -- actions ---------------------------------------------------------------------------------------------------------

// <button data-action='{"method": "POST", "path": "runs/7:cancel", …}'>: see actions.js.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  if (button) openAction(JSON.parse(button.dataset.action), { refresh, opener: button });
  const copied = event.target.closest("[data-copy]");
  if (copied) navigator.clipboard?.writeText(copied.dataset.copy).then(() => say("copied"));
});

// -- the top of the page ---------------------------------------------------------------------------------------------

document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("mulligan.theme", next); } catch { /* for this page only */ }
  document.documentElement.dataset.theme = next;
});
document.getElementById("log-out").addEventListener("click", async () => {
  try {
    await send("POST", "logins:end", {});
  } finally {
    location.assign("/");
  }
});
// On a narrow screen the navigation is a row that scrolls: the entry of this page is in sight.
document.querySelector(".sidebar [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
const search = document.getElementById("search");
search.value = location.pathname === "/runs" ? new URLSearchParams(location.search).get("text") ?? "" : "";
search.form.addEventListener("submit", async (event) => {
  // A number is a run, if there is one; otherwise a word, such as an exit code.
  const number = search.value.trim().match(/^(#?)(\d{1,15})$/);
  if (!number) return;
  event.preventDefault();
  const run = Number(number[2]);
  let isRun = Boolean(number[1]);
  try {
    const [found] = (await get(`runs?limit=1&children=true&before=${run + 1}`)).runs;
    isRun ||= found?.run_id === run;
  } catch {
    // The page says what is wrong.
  }
  location.assign(isRun ? `/runs/${run}` : `/runs?text=${segment(search.value.trim())}`);
});

showTimes(document.body);
setInterval(() => showTimes(document.body), 30_000);
startKeyboard(search);
startLive();
