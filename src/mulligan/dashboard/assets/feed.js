// The live stream of all tabs of a browser: a shared worker with one connection, since a browser has only six of them to
// one server. Each tab says what it watches; the worker watches all of it and hands on what concerns each tab.
// Where there are no shared workers, the page itself runs this file as a module of its own (see `live.js`).

const ports = new Map(); // port -> { watches: Set of names, seen: time of its last sign of life }
const changedAt = new Map(); // name -> when something was last told about it
let connection = null; // { key, controller }
let cursor = ""; // Last-Event-ID, of the watches of `cursorKey`
let cursorKey = "";
let state = "connecting";
let timer = 0;
let delay = 500;

const RETRY_MAX = 10_000;
// A port says that its tab is still there; a tab that was killed never says goodbye.
const SILENT_MS = 70_000;

function wanted() {
  const names = new Set();
  for (const { watches } of ports.values()) for (const name of watches) names.add(name);
  return [...names].sort();
}

function tell(message, watch = null) {
  if (watch !== null) changedAt.set(watch, Date.now());
  for (const [port, { watches }] of ports) {
    if (watch === null || watches.has(watch)) port.postMessage(message);
  }
}

function setState(next, detail = "") {
  if (state === next) return;
  state = next;
  tell({ kind: "state", state, detail });
}

/** Connect to what is wanted now, unless that is what we are connected to. */
function reconcile() {
  const now = Date.now();
  for (const [port, { seen }] of ports) if (now - seen > SILENT_MS) ports.delete(port);
  const key = wanted().join(",");
  if (connection && connection.key === key) return;
  connection?.controller.abort();
  connection = null;
  clearTimeout(timer);
  if (key) open(key);
}

async function open(key) {
  const controller = new AbortController();
  const mine = (connection = { key, controller });
  const headers = { accept: "text/event-stream" };
  if (cursor && cursorKey === key) headers["last-event-id"] = cursor;
  try {
    const answer = await fetch(`/api/v1/stream?watch=${encodeURIComponent(key)}`, { headers, signal: controller.signal });
    if (answer.status === 401) return setState("logged_out");
    if (answer.status === 404 || answer.status === 403) {
      // One of the runs is gone: each tab finds out when it reads its page again.
      tell({ kind: "event", event: "reset", watch: null, data: { reason: "refused" } });
      throw new Error("refused");
    }
    if (!answer.ok) throw new Error(String(answer.status));
    setState("live");
    delay = 500;
    await readEvents(answer.body, key);
  } catch (error) {
    if (error.name === "AbortError") return;
  }
  if (connection !== mine) return;
  connection = null;
  setState("lost");
  timer = setTimeout(reconcile, delay * (0.75 + Math.random() / 2));
  delay = Math.min(delay * 2, RETRY_MAX);
}

async function readEvents(body, key) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      handle(rest.slice(0, end), key);
      rest = rest.slice(end + 2);
    }
  }
}

function handle(block, key) {
  let event = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
    else if (line.startsWith("id: ")) [cursor, cursorKey] = [line.slice(4), key];
  }
  if (!data) return;
  const content = JSON.parse(data);
  if (event === "run") tell({ kind: "event", event, watch: `run:${content.run_id}`, data: content }, `run:${content.run_id}`);
  else if (event === "runs" || event === "pending") tell({ kind: "event", event, watch: event, data: content }, event);
  else if (event === "reset" || event === "removed") {
    for (const watch of content.watch ?? []) tell({ kind: "event", event, watch, data: content }, watch);
  } else if (event === "end" && content.reason === "token_ended") setState("logged_out");
}

export function attach(port) {
  ports.set(port, { watches: new Set(), seen: Date.now() });
  port.onmessage = ({ data }) => {
    const entry = ports.get(port) ?? { watches: new Set(), seen: 0 };
    entry.seen = Date.now();
    if (data.kind === "watch") {
      // What has changed after the page was rendered, and before it said what it watches.
      const missed = data.watches.filter((name) => !entry.watches.has(name) && changedAt.get(name) > data.since);
      entry.watches = new Set(data.watches);
      for (const watch of missed) port.postMessage({ kind: "event", event: "reset", watch, data: { reason: "missed" } });
    }
    if (data.kind === "bye") ports.delete(port);
    else ports.set(port, entry);
    // Several tabs that are restored at once cause one connection.
    clearTimeout(settling);
    settling = setTimeout(reconcile, 30);
  };
  port.postMessage({ kind: "state", state, detail: "" });
}
let settling = 0;

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  self.onconnect = ({ ports: [port] }) => attach(port);
  setInterval(reconcile, 30_000);
}
