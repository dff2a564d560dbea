// The log of an attempt: stdout and stderr, live, with search, line links and colours. `LogText` reads it.
import { LogText, levelOf } from "./log_text.js";
import { parseLine } from "./ansi.js";
import { VirtualList } from "./virtual.js";

const ROW_HEIGHT = 19;
const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
};

/** Start the viewer in `root`. `readAttempts()` gives the attempts whose logs there are. */
export function startLog(root, { run, unit, readAttempts }) {
  const viewer = new LogViewer(root, run, unit);
  viewer.setAttempts(readAttempts());
  return viewer;
}

class LogViewer {
  #text = null;
  #shown = null; // { place, attempt, stream }
  #attempts = [];
  #marked = null; // [first, last] line of the link
  #matches = [];
  #at = -1;
  #isAll = true;
  #wanted = "";
  #searching = null;
  #following = null;
  #sticks = false;
  #isMoving = false;

  constructor(root, run, unit) {
    this.run = run;
    this.unit = unit;
    this.select = make("select", { ariaLabel: "Attempt" });
    this.tabs = Object.fromEntries(["stdout", "stderr"].map((name) => [name, make("button", { type: "button", textContent: name, className: "chip" })]));
    this.input = make("input", { type: "search", placeholder: "Search the log", ariaLabel: "Search the log", maxLength: 200 });
    this.count = make("span", { className: "muted matches", role: "status" });
    this.count.setAttribute("role", "status");
    this.previous = make("button", { type: "button", textContent: "‹", className: "quiet", ariaLabel: "Previous match", disabled: true });
    this.next = make("button", { type: "button", textContent: "›", className: "quiet", ariaLabel: "Next match", disabled: true });
    this.follow = make("button", { type: "button", textContent: "Follow", className: "chip", hidden: true });
    this.size = make("span", { className: "muted size" });
    this.download = make("a", { textContent: "Download", className: "download" });
    this.box = make("div", { className: "log-box", tabIndex: 0 });
    this.box.setAttribute("role", "region");
    this.empty = make("p", { className: "muted log-empty", hidden: true });
    const bar = make("div", { className: "log-bar" }, this.select, this.tabs.stdout, this.tabs.stderr, this.follow, make("span", { className: "log-search" }, this.input, this.previous, this.next, this.count), this.size, this.download);
    root.replaceChildren(bar, this.empty, this.box);
    this.list = new VirtualList(this.box, { rowHeight: ROW_HEIGHT, render: (index) => this.#row(index), onScroll: () => this.#scrolled() });
    this.select.addEventListener("change", () => this.show({ ...this.#attempts[this.select.selectedIndex], stream: "" }));
    for (const [name, tab] of Object.entries(this.tabs)) tab.addEventListener("click", () => this.show({ ...this.#shown, stream: name }));
    this.input.addEventListener("input", () => this.#searchSoon());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") (event.preventDefault(), this.#step(event.shiftKey ? -1 : 1));
      if (event.key === "Escape") ((this.input.value = ""), this.#search(), this.box.focus());
    });
    this.previous.addEventListener("click", () => this.#step(-1));
    this.next.addEventListener("click", () => this.#step(1));
    this.follow.addEventListener("click", () => this.#stick(!this.#sticks));
    this.box.addEventListener("click", (event) => this.#clicked(event));
    addEventListener("hashchange", () => this.#goToLink());
    document.addEventListener("visibilitychange", () => this.#followWhileVisible());
  }

  /** The attempts that there are now; shows one if none is shown, and a new one while the end is followed. */
  setAttempts(attempts) {
    const last = this.#attempts.at(-1);
    this.#attempts = attempts;
    this.select.replaceChildren(...attempts.map((one) => make("option", { textContent: this.#title(one) })));
    this.select.hidden = attempts.length < 2;
    const newest = attempts.at(-1);
    if (!this.#shown) return this.show(this.#asked() ?? { ...(attempts.findLast(({ part }) => part === "own") ?? newest), stream: "" });
    const isNew = newest && (newest.place !== last?.place || newest.attempt !== last?.attempt);
    if (isNew && this.#sticks) return this.show({ ...newest, stream: "" });
    this.#select();
    // An attempt that was queued, or has ended, since.
    this.#followWhileVisible();
  }

  /** What the address asks for. */
  #asked() {
    const query = new URLSearchParams(location.search);
    const [place, attempt, stream] = [query.get("place"), Number(query.get("attempt")), query.get("stream") ?? ""];
    const found = this.#attempts.find((one) => one.attempt === attempt && (!place || one.place === place));
    return found ? { ...found, stream } : null;
  }

  #title({ place, attempt, outcome, part }) {
    const rest = place.startsWith(this.unit) ? place.slice(this.unit.length).replace(/^\./, "") : place;
    const name = { handler: "handler", script: "recovery script", check: "check", undo: "undo", triager: "triager", model: "question", tool: "tool call" }[part] ?? (/^\d+$/.test(rest) ? (rest === "0" ? "" : `command ${Number(rest) + 1}`) : rest);
    // The number of a question or a call in its attempt of the agent.
    const turn = part === "model" || part === "tool" ? ` ${Number(rest.split(".").at(-1)) + 1}` : "";
    return `${name ? `${name}${turn}, ` : ""}attempt ${attempt}, ${outcome}`;
  }

  #select() {
    this.select.selectedIndex = this.#attempts.findIndex((one) => one.place === this.#shown.place && one.attempt === this.#shown.attempt);
  }

  get #outcome() {
    return this.#attempts.find((one) => one.place === this.#shown?.place && one.attempt === this.#shown?.attempt)?.outcome;
  }

  /** Show a log. Without `stream` that which says most: stderr of what failed, unless it is empty. */
  async show({ place, attempt, stream }) {
    this.#text?.close();
    this.#following?.abort();
    this.#following = null;
    this.#shown = { place, attempt, stream };
    this.#select();
    let text = null;
    try {
      for (const name of stream ? [stream] : this.#outcome === "failed" ? ["stderr", "stdout"] : ["stdout", "stderr"]) {
        text = new LogText({ run: this.run, place, attempt, stream: name }, () => this.#changed());
        this.#text = text;
        await text.open();
        if (this.#text !== text) return;
        if (text.lines) break;
      }
    } catch (error) {
      if (error.name === "AbortError" || this.#text !== text) return;
      return this.#say(`The log cannot be read: ${error.message}`);
    }
    this.#shown = { place, attempt, stream: text.stream };
    for (const [name, tab] of Object.entries(this.tabs)) tab.setAttribute("aria-pressed", String(name === text.stream));
    this.box.setAttribute("aria-label", `${text.stream} of attempt ${attempt} at ${place}`);
    this.download.href = text.url;
    this.download.download = `run-${this.run}-${place}-${attempt}-${text.stream}.log`.replace(/[^\w.@-]+/g, "_");
    this.list.invalidate();
    this.list.count = 0;
    this.#measure();
    this.#marked = null;
    this.#search();
    if (!this.#goToLink()) {
      // The end says most, both of what failed and of what runs.
      this.#sticks = this.#outcome === "running";
      this.list.scrollToEnd();
    }
    this.#followWhileVisible();
  }

  #say(text) {
    this.empty.textContent = text;
    this.empty.hidden = !text;
    this.box.hidden = Boolean(text);
  }

  #measure() {
    const text = this.#text;
    this.list.count = text.lines;
    this.box.style.height = `${Math.min(Math.max(text.lines, 2), 26) * ROW_HEIGHT + 18}px`;
    this.box.style.setProperty("--digits", String(text.lines).length);
    this.size.textContent = text.size ? `${text.lines.toLocaleString("en")} ${text.lines === 1 ? "line" : "lines"}, ${formatSize(text.size)}` : "";
    this.download.hidden = !text.size;
    this.#say(text.size ? "" : this.#outcome === "running" ? `Nothing on ${text.stream} yet.` : `Nothing was written to ${text.stream}, or its log is not here any more.`);
  }

  #changed() {
    this.list.invalidate();
    if (this.#sticks) this.list.scrollToEnd();
  }

  // -- rows ----------------------------------------------------------------------------------------------------------

  #row(index) {
    const line = this.#text.line(index);
    const isMarked = this.#marked && index >= this.#marked[0] && index <= this.#marked[1];
    const isHit = this.#at >= 0 && this.#matches[this.#at] === index;
    const row = make("div", { className: `log-line${isMarked ? " marked" : ""}${isHit ? " hit" : ""}` });
    const number = make("a", { className: "line-number", textContent: index + 1, href: this.#link(index) });
    number.dataset.line = index;
    const text = make("span", { className: "line-text" });
    if (line) {
      const level = levelOf(line.text);
      if (level) text.classList.add(`level-${level}`);
      for (const { text: piece, name } of parseLine(line.text, line.style).pieces) this.#addPiece(text, piece, name);
      if (line.isCut) text.append(make("span", { className: "muted", textContent: " … the rest of this line is in the download" }));
    }
    row.append(number, text);
    return row;
  }

  #addPiece(parent, text, name) {
    const parts = this.#wanted ? splitAt(text, this.#wanted) : [text];
    parts.forEach((part, index) => {
      if (!part) return;
      if (index % 2 === 0 && !name) parent.append(part);
      else parent.append(make(index % 2 ? "mark" : "span", { className: name, textContent: part }));
    });
  }

  #link(first, last = first) {
    const { place, attempt, stream } = this.#shown;
    const query = new URLSearchParams({ place, attempt, stream });
    return `${location.pathname}?${query}#L${first + 1}${last > first ? `-L${last + 1}` : ""}`;
  }

  #clicked(event) {
    const number = event.target.closest?.(".line-number");
    if (!number || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const line = Number(number.dataset.line);
    const first = event.shiftKey && this.#marked ? Math.min(this.#marked[0], line) : line;
    const last = event.shiftKey && this.#marked ? Math.max(this.#marked[0], line) : line;
    history.replaceState(null, "", this.#link(first, last));
    this.#marked = [first, last];
    this.#sticks = false;
    this.list.invalidate();
  }

  /** Go to the lines that the address names; whether it names some. */
  #goToLink() {
    const found = location.hash.match(/^#L(\d+)(?:-L(\d+))?$/);
    if (!found || !this.#text?.lines) return false;
    const first = Math.min(Number(found[1]), this.#text.lines) - 1;
    this.#marked = [first, Math.max(first, Number(found[2] ?? 0) - 1)];
    this.#sticks = false;
    this.list.invalidate();
    this.list.scrollTo(first);
    this.box.scrollIntoView({ block: "nearest" });
    return true;
  }

  // -- live ----------------------------------------------------------------------------------------------------------

  #stick(sticks) {
    this.#sticks = sticks;
    this.follow.setAttribute("aria-pressed", String(sticks));
    if (sticks) this.list.scrollToEnd();
  }

  #scrolled() {
    if (!this.follow.hidden && !this.#isMoving) {
      const isAtEnd = this.list.isAtEnd;
      if (isAtEnd !== this.#sticks) {
        this.#sticks = isAtEnd;
        this.follow.setAttribute("aria-pressed", String(isAtEnd));
      }
    }
  }

  /** Read on while the attempt runs and somebody looks: a hidden tab holds no connection. */
  #followWhileVisible() {
    const isWanted = this.#outcome === "running" && document.visibilityState === "visible" && this.#text;
    this.follow.hidden = this.#outcome !== "running";
    this.follow.setAttribute("aria-pressed", String(this.#sticks));
    if (isWanted && !this.#following) this.#readOn(this.#text);
    else if (!isWanted && document.visibilityState !== "visible") {
      this.#following?.abort();
      this.#following = null;
    }
  }

  async #readOn(text) {
    const controller = (this.#following = new AbortController());
    try {
      const answer = await fetch(`${text.url}&follow=true&start=${text.size}`, { signal: controller.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const reader = answer.body.getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done || this.#text !== text) break;
        const before = text.lines;
        text.append(value);
        this.#isMoving = true;
        this.#measure();
        this.list.invalidate(Math.max(0, before - 1));
        if (this.#sticks) this.list.scrollToEnd();
        this.#isMoving = false;
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      // The server is away: try again as long as the attempt is said to run.
      setTimeout(() => this.#followWhileVisible(), 2000);
    }
    if (this.#following === controller) this.#following = null;
  }

  // -- search --------------------------------------------------------------------------------------------------------

  #searchSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#search(), 200);
  }

  async #search() {
    this.#searching?.abort();
    const controller = (this.#searching = new AbortController());
    const text = this.#text;
    this.#wanted = this.input.value;
    [this.#matches, this.#at, this.#isAll] = [[], -1, false];
    this.searchedSize = text.size;
    this.list.invalidate();
    this.#showCount();
    if (!this.#wanted) return;
    const from = this.list.first;
    try {
      await text.search(this.#wanted, (lines, isAll) => {
        if (this.#searching !== controller) return;
        [this.#matches, this.#isAll] = [lines, isAll];
        if (this.#at < 0 && lines.length) {
          const next = lines.findIndex((one) => one >= from);
          if (next >= 0 || isAll) this.#go(next >= 0 ? next : 0);
        }
        this.#showCount();
      }, controller.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.count.textContent = error.message;
    }
  }

  #step(by) {
    clearTimeout(this.timer);
    if (this.input.value !== this.#wanted || (this.#text && this.#text.size !== this.searchedSize && this.#at + by >= this.#matches.length)) return this.#search();
    if (this.#matches.length) this.#go((this.#at + by + this.#matches.length) % this.#matches.length);
  }

  #go(index) {
    this.#at = index;
    this.#stick(false);
    this.list.invalidate();
    this.list.scrollTo(this.#matches[index]);
    this.#showCount();
  }

  #showCount() {
    const found = this.#matches.length;
    this.previous.disabled = this.next.disabled = !found;
    if (!this.#wanted) this.count.textContent = "";
    else if (!found) this.count.textContent = this.#isAll ? "not found" : "searching";
    else this.count.textContent = `${(this.#at + 1).toLocaleString("en")} of ${found.toLocaleString("en")}${this.#isAll ? "" : "+"} ${found === 1 ? "line" : "lines"}`;
  }
}

/** Parts of a text: every second one is what was looked for. As the server does, lower case finds any case. */
function splitAt(text, wanted) {
  const searched = wanted === wanted.toLowerCase() ? text.toLowerCase() : text;
  if (searched.length !== text.length) return [text];
  const parts = [];
  let at = 0;
  for (let found = searched.indexOf(wanted); found >= 0; found = searched.indexOf(wanted, at)) {
    parts.push(text.slice(at, found), text.slice(found, found + wanted.length));
    at = found + wanted.length;
  }
  parts.push(text.slice(at));
  return parts;
}

function formatSize(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let amount = bytes / 1024;
  while (amount >= 1024 && units.length > 1) {
    amount /= 1024;
    units.shift();
  }
  return `${amount.toFixed(amount < 10 ? 1 : 0)} ${units[0]}`;
}
