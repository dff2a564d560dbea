// The items of a map step, or the steps of a matrix: failures first, by status, of any number. Pages of them are read
// when they become visible.
import { get, segment } from "./api.js";
import { VirtualList } from "./virtual.js";

const ROW_HEIGHT = 32;
const PAGE = 100;
const PAGES_KEPT = 40;
// What needs somebody comes first.
const ORDER = ["failed", "pending_failed", "handling", "backing_off", "running", "ready", "waiting", "not started", "cancelled", "skipped", "completed"];
const TONES = { completed: "good", failed: "bad", running: "now", ready: "now", backing_off: "try", handling: "try", paused: "ask", pending_failed: "ask" };
const LABELS = { pending_failed: "parked", backing_off: "waiting to retry" };
const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
};
const labelOf = (status) => LABELS[status] ?? status.replaceAll("_", " ");

/** Start the table in `root`. `setCounts` says how many items have each status now. */
export function startItems(root, { run, step, kind, counts }) {
  return new ItemTable(root, run, step, kind, counts);
}

class ItemTable {
  #pages = new Map(); // "status offset" -> { items, isStale, asked }
  #counts = {};
  #status = "";

  constructor(root, run, step, kind, counts) {
    this.run = run;
    this.path = `runs/${run}/steps/${segment(step)}/items`;
    this.page = `/runs/${run}/steps/`;
    this.step = step;
    this.isMatrix = kind === "matrix";
    this.#status = new URLSearchParams(location.search).get("status") ?? "";
    this.filters = make("div", { className: "filters" });
    this.filters.setAttribute("role", "group");
    this.filters.setAttribute("aria-label", "Status");
    const titles = [this.isMatrix ? "step" : "#", this.isMatrix ? "values" : "item", "status", "attempts", "failure or output"];
    this.head = make("div", { className: "item-row item-head" }, ...titles.map((one) => cell(one, "columnheader")));
    this.head.setAttribute("role", "row");
    this.box = make("div", { className: "item-box", tabIndex: 0 });
    this.box.setAttribute("role", "rowgroup");
    const table = make("div", { className: `item-table ${kind}` }, this.head, this.box);
    table.setAttribute("role", "table");
    table.setAttribute("aria-label", this.isMatrix ? "Steps" : "Items");
    this.table = table;
    root.replaceChildren(this.filters, table);
    this.list = new VirtualList(this.box, { rowHeight: ROW_HEIGHT, render: (index) => this.#row(index) });
    this.list.rows.setAttribute("data-rows", "");
    this.setCounts(counts);
  }

  /** How many there are now. What is shown is read again. */
  setCounts(counts) {
    this.#counts = counts;
    for (const page of this.#pages.values()) page.isStale = true;
    this.#draw();
  }

  #draw() {
    const statuses = this.#sections().map(([status]) => status);
    const total = Object.values(this.#counts).reduce((sum, one) => sum + one, 0);
    const known = Object.keys(this.#counts).sort((one, other) => rank(one) - rank(other));
    this.filters.replaceChildren(this.#filter("", "all", total), ...known.map((one) => this.#filter(one, labelOf(one), this.#counts[one])));
    const count = statuses.reduce((sum, one) => sum + (this.#counts[one] ?? 0), 0);
    this.table.setAttribute("aria-rowcount", count + 1);
    this.box.style.height = `${Math.min(Math.max(count, 1), 14) * ROW_HEIGHT + 2}px`;
    this.list.count = count;
    this.list.invalidate();
  }

  #filter(status, label, count) {
    const chip = make("button", { type: "button", className: `chip ${TONES[status] ?? ""}` }, `${label} `, make("span", { className: "muted", textContent: count.toLocaleString("en") }));
    chip.setAttribute("aria-pressed", String(status === this.#status));
    chip.addEventListener("click", () => {
      this.#status = status;
      const query = new URLSearchParams(location.search);
      if (status) query.set("status", status);
      else query.delete("status");
      history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
      this.box.scrollTop = 0;
      this.#draw();
      [...this.filters.children].find((one) => one.getAttribute("aria-pressed") === "true")?.focus();
    });
    return chip;
  }

  /** The statuses that are shown, with their numbers, in order. */
  #sections() {
    const names = Object.keys(this.#counts).sort((one, other) => rank(one) - rank(other));
    return names.filter((one) => !this.#status || one === this.#status).map((one) => [one, this.#counts[one]]);
  }

  /** The item at a position, or undefined while it is read. */
  #item(index) {
    let offset = index;
    for (const [status, count] of this.#sections()) {
      if (offset < count) {
        const first = offset - (offset % PAGE);
        const key = `${status} ${first}`;
        const page = this.#pages.get(key) ?? { items: null, isStale: true, asked: false };
        this.#pages.delete(key);
        this.#pages.set(key, page);
        if (page.isStale && !page.asked) this.#load(page, status, first);
        return page.items?.[offset - first];
      }
      offset -= count;
    }
    return undefined;
  }

  async #load(page, status, offset) {
    page.asked = true;
    page.isStale = false;
    try {
      const query = new URLSearchParams({ status, offset, limit: PAGE, brief: true });
      const found = await get(`${this.path}?${query}`);
      page.items = found.items;
      for (const key of [...this.#pages.keys()].slice(0, -PAGES_KEPT)) this.#pages.delete(key);
      const isOther = JSON.stringify(found.counts) !== JSON.stringify(this.#counts);
      page.asked = false;
      if (isOther) {
        this.#counts = found.counts;
        this.#draw();
      } else {
        this.list.invalidate();
      }
    } catch (error) {
      page.asked = false;
      page.isStale = true;
      setTimeout(() => this.list.invalidate(), 2000);
    }
  }

  #row(index) {
    const item = this.#item(index);
    const row = make("div", { className: "item-row" });
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", index + 2);
    if (!item) {
      row.append(cell("…"));
      return row;
    }
    const href = this.isMatrix ? `${this.page}${segment(item.name)}` : `${this.page}${segment(this.step)}/items/${item.index}`;
    const link = make("a", { href, textContent: this.isMatrix ? item.name : item.index });
    const status = make("span", { className: `status ${TONES[item.status] ?? "idle"}`, textContent: labelOf(item.status) });
    row.append(cell(link), cell(item.item ?? ""), cell(status), cell(item.attempts || ""), cell(this.#said(item)));
    row.title = item.failure?.message ?? "";
    return row;
  }

  #said(item) {
    if (item.failure && item.status !== "completed") {
      const line = item.failure.message.split("\n").filter(Boolean).at(-1) ?? "";
      const figure = item.failure.exit_code ?? "";
      return [make("b", { textContent: `${item.failure.code}${figure === "" ? "" : ` ${figure}`}` }), line ? ` ${line}` : ""];
    }
    if (item.recovered_by) return [make("span", { className: "muted", textContent: `recovered by ${item.recovered_by} ` }), item.output ?? ""];
    return item.output ?? "";
  }
}

function rank(status) {
  const found = ORDER.indexOf(status);
  return found < 0 ? ORDER.length - 1.5 : found;
}

function cell(inside, role = "cell") {
  const made = make("span", {}, ...[inside].flat());
  made.setAttribute("role", role);
  return made;
}
