// All steps of a run as cells of a canvas, in the order of the file. Names are asked for when somebody points at a cell.
import { get, segment } from "./api.js";

const WORDS = { f: "failed", p: "parked", b: "waiting to retry", n: "handling", r: "running", y: "ready", h: "failed, handled", x: "cancelled", w: "waiting", s: "skipped", c: "completed" };
// A colour of the style sheet, and how much of it.
const COLOURS = { f: ["bad", 1], p: ["ask", 1], b: ["try", 1], n: ["try", 0.75], r: ["now", 1], y: ["now", 0.4], h: ["bad", 0.4], x: ["line", 1], w: ["border", 0.75], s: ["border", 0.45], c: ["good", 0.85] };
const LETTERS = { failed: "f", pending_failed: "p", backing_off: "b", handling: "n", running: "r", ready: "y", cancelled: "x", waiting: "w", skipped: "s", completed: "c" };
const BLOCK = 100;
const BLOCKS_MAX = 100;

/** The letter of a line of the list of steps. */
const letterOf = (line) => (line.status === "failed" && line.is_handled ? "h" : LETTERS[line.status] ?? "w");

export class Mosaic {
  constructor(canvas, said, path) {
    Object.assign(this, { canvas, said, path, cells: [], stepsPerCell: 1, count: 0, hidden: false, shown: null, current: -1, blocks: new Map(), pointing: 0 });
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    canvas.addEventListener("pointermove", (event) => this.point(this.cellAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("click", (event) => this.open(this.cellAt(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.point(-1));
  }

  /** Show what the interface says of all steps. */
  show(found) {
    this.cells = [...found.cells];
    this.stepsPerCell = found.steps_per_cell;
    this.count = found.step_count;
    this.shown = null;
    this.blocks.clear();
    this.canvas.setAttribute("aria-label", this.describe(found.counts));
    this.draw();
  }

  /** Some steps have changed. */
  update(lines) {
    const places = this.hidden ? null : this.layout();
    const context = this.canvas.getContext("2d");
    for (const line of lines) {
      if (line.index < 0) continue;
      this.blocks.delete(Math.floor(line.index / BLOCK));
      if (this.stepsPerCell > 1) continue;
      const letter = letterOf(line);
      if (this.cells[line.index] === letter) continue;
      this.cells[line.index] = letter;
      if (places) this.paint(context, line.index, line.index, places);
    }
    if (!places) {
      this.shown = null;
      this.draw();
    }
  }

  hideCompleted(hidden) {
    this.hidden = hidden;
    this.shown = null;
    this.current = -1;
    this.draw();
  }

  describe(counts) {
    const words = Object.entries(counts).map(([status, count]) => `${count.toLocaleString("en")} ${WORDS[LETTERS[status]] ?? status}`);
    return `${this.count.toLocaleString("en")} steps: ${words.join(", ")}. Arrow keys move, Enter opens a step. The tab Grid has them as a table.`;
  }

  /** The numbers of the cells that are shown. */
  visible() {
    if (!this.hidden) return null;
    this.shown ??= this.cells.flatMap((letter, index) => (letter === "c" ? [] : [index]));
    return this.shown;
  }

  length() {
    return this.visible()?.length ?? this.cells.length;
  }

  layout() {
    const count = this.length();
    const pitch = count > 4000 ? 6 : count > 1000 ? 8 : count > 200 ? 12 : 18;
    const width = this.canvas.parentElement.clientWidth - 36;
    const columns = Math.max(1, Math.floor(width / pitch));
    return { pitch, columns, rows: Math.ceil(count / columns), gap: pitch > 12 ? 3 : pitch > 6 ? 2 : 1 };
  }

  draw() {
    const places = this.layout();
    const { pitch, columns, rows } = places;
    const ratio = devicePixelRatio || 1;
    const width = columns * pitch;
    const height = Math.max(1, rows) * pitch;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.hidden = !this.length();
    if (!this.length()) this.said.textContent = this.count ? "All steps completed." : "";
    const styles = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(Object.entries(COLOURS).map(([letter, [name, alpha]]) => [letter, [styles.getPropertyValue(`--${name}`).trim(), alpha]]));
    this.ring = styles.getPropertyValue("--text").trim();
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const visible = this.visible();
    for (let place = 0; place < this.length(); place++) this.paint(context, visible ? visible[place] : place, place, places);
  }

  paint(context, cell, place, { pitch, columns, gap }) {
    const x = (place % columns) * pitch;
    const y = Math.floor(place / columns) * pitch;
    const [colour, alpha] = this.colours[this.cells[cell]] ?? this.colours.w;
    context.clearRect(x, y, pitch, pitch);
    context.globalAlpha = alpha;
    context.fillStyle = colour;
    context.fillRect(x, y, pitch - gap, pitch - gap);
    context.globalAlpha = 1;
    if (place !== this.current) return;
    context.strokeStyle = this.ring;
    context.lineWidth = 1.5;
    context.strokeRect(x + 0.25, y + 0.25, pitch - gap - 0.5, pitch - gap - 0.5);
  }

  cellAt(event) {
    const { pitch, columns } = this.layout();
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / pitch);
    const place = Math.floor((event.clientY - box.top) / pitch) * columns + column;
    return column < columns && place >= 0 && place < this.length() ? place : -1;
  }

  /** Say what a cell is. */
  async point(place) {
    if (place === this.current) return;
    const before = this.current;
    this.current = place;
    const places = this.layout();
    const context = this.canvas.getContext("2d");
    const visible = this.visible();
    for (const one of [before, place]) if (one >= 0 && one < this.length()) this.paint(context, visible ? visible[one] : one, one, places);
    this.canvas.style.cursor = place < 0 ? "" : "pointer";
    const mine = ++this.pointing;
    if (place < 0) return void (this.said.textContent = " ");
    const cell = visible ? visible[place] : place;
    const lines = await this.linesOf(cell).catch(() => []);
    if (mine === this.pointing && lines.length) this.said.textContent = this.sentence(cell, lines);
  }

  sentence(cell, lines) {
    if (lines.length === 1) {
      const [line] = lines;
      const tries = line.attempts > 1 ? `, ${line.attempts} attempts` : "";
      return `${line.name}: ${WORDS[letterOf(line)]}${tries}${line.failure ? `; ${line.failure}` : ""}`;
    }
    const counts = new Map();
    for (const line of lines) counts.set(letterOf(line), (counts.get(letterOf(line)) ?? 0) + 1);
    const words = [...counts].map(([letter, count]) => `${count} ${WORDS[letter]}`).join(", ");
    return `${lines[0].name} … ${lines.at(-1).name}: ${words}`;
  }

  /** The steps of a cell, with the ones that need attention first in mind. */
  async linesOf(cell) {
    const first = cell * this.stepsPerCell;
    const last = Math.min(this.count, first + this.stepsPerCell) - 1;
    const found = [];
    for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block++) found.push(...(await this.block(block)));
    return found.filter((line) => line.index >= first && line.index <= last);
  }

  block(number) {
    if (!this.blocks.has(number)) {
      if (this.blocks.size >= BLOCKS_MAX) this.blocks.delete(this.blocks.keys().next().value);
      const asked = get(`${this.path}/steps?skip=${number * BLOCK}&limit=${BLOCK}`).then((page) => page.steps);
      asked.catch(() => this.blocks.delete(number));
      this.blocks.set(number, asked);
    }
    return this.blocks.get(number);
  }

  async open(place) {
    if (place < 0) return;
    const visible = this.visible();
    const cell = visible ? visible[place] : place;
    const lines = await this.linesOf(cell);
    // Of several steps the one whose colour the cell has.
    const line = lines.find((one) => letterOf(one) === this.cells[cell]) ?? lines[0];
    if (line) location.assign(`/${this.path}/steps/${segment(line.name)}`);
  }

  key(event) {
    const { columns } = this.layout();
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter") this.open(this.current);
    if (by === undefined || !this.length()) return;
    event.preventDefault();
    this.point(Math.min(this.length() - 1, Math.max(0, this.current < 0 ? 0 : this.current + by)));
  }
}
