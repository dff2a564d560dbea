// One log by line, read in blocks when they are needed. At most a megabyte of it is kept, however long it is.
import { get, segment } from "./api.js";
import { noStyle, styleBehind } from "./ansi.js";

const KEPT_BYTES = 1_000_000;
// Of a longer line the beginning is shown.
const LINE_BYTES = 4096;
const MATCHES_MAX = 100_000;

const RECORD = /^\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) /;

/** The level of a line that was logged, in small letters; "" of any other. */
export function levelOf(line) {
  return RECORD.exec(line)?.[1].toLowerCase() ?? "";
}

/** `onChange` is called when lines have come. */
export class LogText {
  #blocks = new Map(); // number -> { data, lines, asked }; the one that was used last is the last
  #starts = [0]; // the number of line ends before each block
  #blockBytes = 65_536;
  #ends = 0;
  #isLineOpen = false;

  constructor({ run, place, attempt, stream }, onChange) {
    this.path = `runs/${run}/attempts/${segment(place)}/${attempt}/log`;
    this.stream = stream;
    this.onChange = onChange;
    this.size = 0;
    this.controller = new AbortController();
  }

  get lines() {
    return this.#ends + (this.#isLineOpen ? 1 : 0);
  }

  get url() {
    return `/api/v1/${this.path}?stream=${this.stream}`;
  }

  /** Ask how long it is. */
  async open() {
    const found = await get(`${this.path}/index?stream=${this.stream}`, { signal: this.controller.signal });
    this.size = found.size;
    this.#starts = found.blocks;
    this.#blockBytes = found.block_bytes;
    this.#ends = found.lines;
    this.#isLineOpen = false;
    if (found.size) {
      // Whether the last line has its end: then as many lines end as there are.
      const last = await this.#read(found.size - 1, found.size);
      this.#isLineOpen = last.at(-1) !== 10;
      this.#ends = found.lines - (this.#isLineOpen ? 1 : 0);
    }
    this.#blocks.clear();
  }

  close() {
    this.controller.abort();
  }

  /** `{text, style, isCut}` of a line; undefined while it is read. */
  line(number) {
    const index = this.#blockOf(number);
    let block = this.#blocks.get(index);
    if (!block) {
      block = { data: null, lines: null };
      this.#blocks.set(index, block);
      this.#load(index, block);
      return undefined;
    }
    this.#blocks.delete(index);
    this.#blocks.set(index, block);
    if (!block.data) return undefined;
    block.lines ??= this.#split(index, block.data);
    return block.lines[number - this.#firstOf(index)];
  }

  /** What was written since, as bytes. */
  append(data) {
    const from = this.size;
    for (const [index, block] of this.#blocks) {
      const begin = index * this.#blockBytes;
      const room = this.#blockBytes + LINE_BYTES - (from - begin);
      if (!block.data || room <= 0 || block.data.length !== from - begin) continue;
      const joined = new Uint8Array(block.data.length + Math.min(room, data.length));
      joined.set(block.data);
      joined.set(data.subarray(0, room), block.data.length);
      [block.data, block.lines] = [joined, null];
    }
    let at = 0;
    while (at < data.length) {
      const room = this.#blockBytes - (this.size % this.#blockBytes);
      const piece = data.subarray(at, at + room);
      if (this.size && this.size % this.#blockBytes === 0) this.#starts[this.size / this.#blockBytes] = this.#ends;
      for (const byte of piece) if (byte === 10) this.#ends += 1;
      this.#isLineOpen = piece.at(-1) !== 10;
      this.size += piece.length;
      at += piece.length;
    }
  }

  /** The lines that have a text. `onMatches(lines, isAll)` is called as they come. */
  async search(text, onMatches, signal) {
    const found = [];
    let start = 0;
    while (start !== null && found.length < MATCHES_MAX) {
      const query = `stream=${this.stream}&start=${start}&text=${encodeURIComponent(text)}`;
      const answer = await get(`${this.path}/matches?${query}`, { signal });
      // A line that is longer than a part of the search may come twice.
      for (const one of answer.lines) if (found.at(-1) !== one) found.push(one);
      start = answer.next;
      onMatches(found, start === null);
    }
    onMatches(found, true);
    return found;
  }

  #blockOf(number) {
    // Block i has the lines behind the line ends in it: from starts[i] + 1 on.
    let [low, high] = [0, this.#starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#starts[middle] < number) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #firstOf(index) {
    return index ? this.#starts[index] + 1 : 0;
  }

  async #load(index, block) {
    const begin = index * this.#blockBytes;
    try {
      block.data = await this.#read(begin, begin + this.#blockBytes + LINE_BYTES);
    } catch (error) {
      this.#blocks.delete(index);
      if (error.name !== "AbortError") setTimeout(() => this.onChange(), 1000);
      return;
    }
    let kept = 0;
    for (const [key, one] of [...this.#blocks].reverse()) {
      kept += one.data?.length ?? 0;
      if (kept > KEPT_BYTES && key !== index && one.data) this.#blocks.delete(key);
    }
    this.onChange();
  }

  async #read(begin, end) {
    const answer = await fetch(this.url, { headers: { range: `bytes=${begin}-${end - 1}` }, signal: this.controller.signal });
    if (answer.status === 416) return new Uint8Array();
    if (!answer.ok) throw new Error(String(answer.status));
    const data = new Uint8Array(await answer.arrayBuffer());
    // A server that ignores the range sends everything.
    return answer.status === 206 ? data : data.subarray(begin, end);
  }

  #split(index, data) {
    const decoder = new TextDecoder();
    const lines = [];
    const inside = Math.min(this.#blockBytes, data.length);
    let style = noStyle;
    const add = (start) => {
      const found = data.indexOf(10, start);
      const end = found < 0 ? data.length : found;
      const text = decoder.decode(data.subarray(start, Math.min(end, start + LINE_BYTES)));
      lines.push({ text, style, isCut: end - start > LINE_BYTES });
      style = styleBehind(text, style);
    };
    if (index === 0) add(0);
    for (let at = data.indexOf(10); at >= 0 && at < inside; at = data.indexOf(10, at + 1)) add(at + 1);
    return lines;
  }
}
