// What a tab knows of the live stream: `watch` for modules of single pages, and `onState` for the state of the connection.

const handlers = new Map(); // name -> Set of functions
const stateHandlers = new Set();
let port = null;
let state = "connecting";

const SIGN_MS = 20_000;

async function connect() {
  const url = new URL("./feed.js", import.meta.url);
  if (typeof SharedWorker === "undefined") {
    const { port1, port2 } = new MessageChannel();
    (await import(url)).attach(port2);
    port = port1;
  } else {
    port = new SharedWorker(url, { type: "module", name: "mulligan-feed" }).port;
  }
  port.onmessage = ({ data }) => {
    if (data.kind === "state") {
      const before = state;
      state = data.state;
      for (const one of stateHandlers) one(state, before);
    } else {
      const found = data.watch === null ? [...handlers.values()].flatMap((some) => [...some]) : handlers.get(data.watch) ?? [];
      for (const one of found) one(data.event, data.data);
    }
  };
  port.start?.();
  say();
  setInterval(say, SIGN_MS);
}

function say() {
  port?.postMessage({ kind: "watch", watches: [...handlers.keys()], since: performance.timeOrigin });
}

/** Call `handler(event, data)` for `runs`, `pending` or `run:7`. Returns a function that ends it. */
export function watch(name, handler) {
  if (!handlers.has(name)) handlers.set(name, new Set());
  handlers.get(name).add(handler);
  say();
  return () => {
    handlers.get(name)?.delete(handler);
    if (!handlers.get(name)?.size) handlers.delete(name);
    say();
  };
}

/** Call `handler(state, before)` now and whenever it changes: connecting, live, lost, logged_out. */
export function onState(handler) {
  stateHandlers.add(handler);
  handler(state, state);
}

addEventListener("pagehide", () => port?.postMessage({ kind: "bye" }));
addEventListener("pageshow", (event) => event.persisted && say());
connect();
