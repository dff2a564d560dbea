// The timeline of a run: a row for each step that has started, of which only the visible ones exist. Rows are asked for
// in blocks; a change asks again for the blocks that are on the screen.
import { get, segment } from "./api.js";
import { Timescale, duration } from "./timescale.js";

const ROW = 24;
const BLOCK = 50;
const BLOCKS_MAX = 24;
const AGAIN_MS = 1_000;
// With more rows the time axis shows what is on the screen.
const ZOOMED_MIN = 60;
const SVG = "http://www.w3.org/2000/svg";
const TONES = { succeeded: "good", failed: "bad", running: "now", queued: "idle", lost: "odd", interrupted: "odd", cancelled: "odd" };
const WAITS = { queue: "queued", delay: "waits for a delay", parked: "waits for a decision", calls: "waits for its calls" };
const PARTS = { handler: "handler", script: "recovery script", check: "check", undo: "undo", triager: "triager", model: "question", tool: "tool call" };

export class Gantt {
  constructor(view, path) {
    this.view = view;
    this.path = path;
    this.list = view.firstElementChild;
    this.axis = document.getElementById("gantt-axis");
    this.note = document.getElementById("gantt-note");
    this.legend = document.getElementById("gantt-legend");
    this.blocks = new Map();
    this.rows = new Map();
    this.total = 0;
    this.hidden = false;
    this.ended = false;
    this.generation = 0;
    this.stale = false;
    this.timer = 0;
    this.kinds = new Set();
    this.zoom = false;
    this.zoomBox = document.getElementById("gantt-zoom");
    this.zoomBox.addEventListener("change", () => this.setZoom(this.zoomBox.checked));
    view.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(view);
    setInterval(() => !this.ended && !document.hidden && this.again(), 5_000);
  }

  setEnded(ended) {
    if (ended && !this.ended) this.again();
    this.ended = ended;
  }

  setZoom(zoom) {
    this.zoom = this.zoomBox.checked = zoom;
    this.isZoomChosen = true;
    this.draw();
  }

  hideCompleted(hidden) {
    this.hidden = hidden;
    this.generation++;
    this.blocks.clear();
    this.view.scrollTop = 0;
    this.load();
  }

  /** Some steps have changed: what is on the screen is asked for again, at most once a second. */
  update() {
    this.again();
  }

  again() {
    this.stale = true;
    this.timer ||= setTimeout(() => ((this.timer = 0), this.load()), AGAIN_MS);
  }

  range() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - 4);
    const last = Math.ceil((this.view.scrollTop + (this.view.clientHeight || 400)) / ROW) + 4;
    return [first, Math.min(last, Math.max(0, this.total - 1))];
  }

  /** Ask for the blocks on the screen that are not there, or that have changed. */
  async load() {
    if (this.loading) return void (this.wanted = true);
    this.loading = true;
    try {
      const [first, last] = this.range();
      const stale = this.stale;
      this.stale = false;
      for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block++) {
        if (!stale && this.blocks.has(block)) continue;
        await this.ask(block);
      }
    } catch {
      // Said by the state of the connection.
    } finally {
      this.loading = false;
    }
    const begun = performance.now();
    this.draw();
    window.mulliganUpdates?.push(performance.now() - begun);
    if (this.wanted) {
      this.wanted = false;
      this.load();
    }
  }

  async ask(block) {
    const mine = this.generation;
    const found = await get(`${this.path}/timeline?first=${block * BLOCK}&limit=${BLOCK}${this.hidden ? "&hide_completed=true" : ""}`);
    if (mine !== this.generation) return;
    this.total = found.total;
    if (!this.isZoomChosen) this.zoom = this.zoomBox.checked = found.total > ZOOMED_MIN;
    this.length = found.length;
    this.whole = new Timescale(found.length, found.folds);
    this.blocks.delete(block);
    this.blocks.set(block, found.rows);
    if (this.blocks.size > BLOCKS_MAX) this.blocks.delete(this.blocks.keys().next().value);
    const left = found.last_seq - found.seq;
    this.note.hidden = !left && found.total > 0;
    this.note.textContent = left ? `Reading the log: ${Math.floor((found.seq / found.last_seq) * 100)} %` : found.total ? "" : this.hidden ? "All that has started has completed." : "Nothing has run yet.";
    if (left) {
      this.stale = true;
      this.wanted = true;
    }
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
      const [first, last] = this.range();
      for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block++) if (!this.blocks.has(block)) return void this.load();
    });
  }

  draw() {
    if (!this.whole) return;
    this.view.hidden = this.axis.hidden = this.legend.hidden = !this.total;
    this.list.style.height = `${this.total * ROW}px`;
    const [first, last] = this.range();
    this.scale = this.zoom ? this.zoomedTo(first, last) : this.whole;
    for (const [number, row] of this.rows) {
      if (number >= first && number <= last && number < this.total) continue;
      row.remove();
      this.rows.delete(number);
    }
    for (let number = first; number <= last && number < this.total; number++) {
      const data = this.blocks.get(Math.floor(number / BLOCK))?.[number % BLOCK];
      let row = this.rows.get(number);
      if (!row) {
        row = makeRow();
        row.style.transform = `translateY(${number * ROW}px)`;
        this.rows.set(number, row);
        this.list.append(row);
      }
      this.fill(row, data);
    }
    this.drawAxis();
    for (const item of this.legend.children) item.hidden = !this.kinds.has(item.dataset.kind);
  }

  /** The time in which the rows on the screen ran: of a long run the whole would be a few pixels for each. */
  zoomedTo(first, last) {
    let begin = Infinity;
    let end = 0;
    for (let number = first; number <= last; number++) {
      for (const [kind, since, until] of this.blocks.get(Math.floor(number / BLOCK))?.[number % BLOCK]?.spans ?? []) {
        if (kind in WAITS) continue;
        begin = Math.min(begin, since);
        end = Math.max(end, until ?? this.length);
      }
    }
    if (begin >= end) return this.whole;
    const margin = (end - begin) * 0.02;
    return this.whole.zoomed(Math.max(0, begin - margin), Math.min(this.length, end + margin));
  }

  fill(row, data) {
    const key = data ? JSON.stringify([data, data.spans.some((one) => one[2] === null) ? this.length : 0, this.scale.key]) : "";
    if (row.dataset.key === key) return;
    row.dataset.key = key;
    const [name, track, took] = row.children;
    track.replaceChildren();
    name.textContent = data?.name ?? "…";
    took.textContent = "";
    if (!data) return;
    name.href = `/${this.path}/steps/${segment(data.name)}`;
    name.title = `${data.name}: ${data.status.replaceAll("_", " ")}`;
    const parts = [];
    for (const span of data.spans) parts.push(...this.drawSpan(span, data));
    track.append(...parts);
    const ran = data.spans.filter(([kind]) => !(kind in WAITS));
    if (ran.length) took.textContent = duration(Math.max(...ran.map(([, , until]) => until ?? this.length)) - Math.min(...ran.map(([, since]) => since)));
  }

  drawSpan([kind, since, until, outcome, attempt], data) {
    const end = until ?? this.length;
    if (end < this.scale.begin || since > this.scale.end) return [];
    const left = this.scale.share(since) * 100;
    const width = Math.max(this.scale.share(end) * 100 - left, 0.3);
    const x = Math.min(left, 100 - width);
    if (kind in WAITS) {
      this.kinds.add(kind);
      const line = make("line", { class: kind, x1: `${x}%`, x2: `${x + width}%`, y1: 12, y2: 12 });
      line.append(title(`${data.name}: ${WAITS[kind]}, ${duration(end - since)}`));
      return [line];
    }
    const isSmall = kind in PARTS;
    this.kinds.add(TONES[outcome]);
    if (isSmall) this.kinds.add("small");
    const bar = make("rect", { class: TONES[outcome], x: `${x}%`, width: `${width}%`, y: isSmall ? 9 : 5, height: isSmall ? 6 : 14, rx: 2 });
    const what = isSmall ? PARTS[kind] : data.span_count > data.spans.length ? "several attempts" : `attempt ${attempt}`;
    bar.append(title(`${data.name}, ${what}: ${outcome}, ${duration(end - since)}, started after ${duration(since)}`));
    if (isSmall || attempt < 2) return [bar];
    this.kinds.add("retry");
    // A retry has a mark at its beginning.
    return [bar, make("rect", { class: "retry", x: `${x}%`, width: 2, y: 2, height: 20 })];
  }

  drawAxis() {
    const key = this.scale.key + this.axis.clientWidth;
    if (this.axisKey === key) return;
    this.axisKey = key;
    this.axis.replaceChildren();
    for (const { share, label, isFold } of this.scale.marks(this.axis.clientWidth)) {
      const mark = Object.assign(document.createElement("span"), { textContent: label, className: isFold ? "fold" : "" });
      // The rows are narrower by their scroll bar.
      mark.style.left = `calc((100% - ${this.view.offsetWidth - this.view.clientWidth}px) * ${share})`;
      this.axis.append(mark);
    }
  }
}

function makeRow() {
  const row = Object.assign(document.createElement("div"), { className: "gantt-row" });
  const name = Object.assign(document.createElement("a"), { className: "name" });
  const track = make("svg", { class: "track", height: ROW, "aria-hidden": "true" });
  row.append(name, track, Object.assign(document.createElement("span"), { className: "took" }));
  return row;
}

function make(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function title(text) {
  const made = document.createElementNS(SVG, "title");
  made.textContent = text;
  return made;
}
