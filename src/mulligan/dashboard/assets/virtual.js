// Rows of one height in a box that scrolls, of which only the visible ones exist. Logs and items use it.

// Browsers lose precision in higher elements; then one pixel of the scroll bar stands for several of the list.
const HEIGHT_MAX = 8_000_000;
const OVERSCAN = 12;

/** A list in `box`. `render(index)` makes the element of a row; rows are kept until `invalidate`. */
export class VirtualList {
  #count = 0;
  #rows = new Map();
  #frame = 0;

  constructor(box, { rowHeight, render, onScroll = () => {} }) {
    this.box = box;
    this.rowHeight = rowHeight;
    this.render = render;
    this.onScroll = onScroll;
    this.sizer = document.createElement("div");
    this.sizer.className = "virtual-size";
    this.rows = document.createElement("div");
    this.rows.className = "virtual-rows";
    this.sizer.append(this.rows);
    box.append(this.sizer);
    box.addEventListener("scroll", () => (this.onScroll(), this.#later()), { passive: true });
    new ResizeObserver(() => this.#later()).observe(box);
  }

  get count() {
    return this.#count;
  }

  set count(count) {
    if (count < this.#count) this.#rows.clear();
    this.#count = count;
    this.sizer.style.height = `${Math.min(this.#height, HEIGHT_MAX)}px`;
    this.#later();
  }

  get #height() {
    return this.#count * this.rowHeight;
  }

  /** How many pixels of the list one pixel of the scroll bar is. */
  get #scale() {
    const room = Math.min(this.#height, HEIGHT_MAX) - this.box.clientHeight;
    return room > 0 ? (this.#height - this.box.clientHeight) / room : 1;
  }

  /** The first row that is visible. */
  get first() {
    return Math.floor((this.box.scrollTop * this.#scale) / this.rowHeight);
  }

  get isAtEnd() {
    return this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - this.rowHeight;
  }

  /** Show a row, in the middle of the box. */
  scrollTo(index) {
    const top = (index + 0.5) * this.rowHeight - this.box.clientHeight / 2;
    this.box.scrollTop = Math.max(0, top) / this.#scale;
    this.draw();
  }

  scrollToEnd() {
    this.box.scrollTop = this.box.scrollHeight;
    this.draw();
  }

  /** Make the rows again: all of them, or those from `first` up to and without `end`. */
  invalidate(first = 0, end = Infinity) {
    for (const index of [...this.#rows.keys()]) if (index >= first && index < end) this.#rows.delete(index);
    this.#later();
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => this.draw());
  }

  /** Draw what is visible now. */
  draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const top = this.box.scrollTop * this.#scale;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN);
    const end = Math.min(this.#count, Math.ceil((top + this.box.clientHeight) / this.rowHeight) + OVERSCAN);
    const kept = new Map();
    for (let index = first; index < end; index += 1) kept.set(index, this.#rows.get(index) ?? this.render(index));
    this.#rows = kept;
    this.rows.style.transform = `translateY(${this.box.scrollTop + first * this.rowHeight - top}px)`;
    replace(this.rows, [...kept.values()]);
  }
}

/** Make the children of an element these, and touch only what differs: a selection of text survives. */
function replace(parent, children) {
  const wanted = new Set(children);
  for (const old of [...parent.children]) if (!wanted.has(old)) old.remove();
  let at = parent.firstChild;
  for (const child of children) {
    if (child === at) at = at.nextSibling;
    else parent.insertBefore(child, at);
  }
}
