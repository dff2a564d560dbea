// What a program wrote for a terminal, as pieces of text with classes. Nothing of it becomes markup: who shows a piece
// uses textContent. Colours become one of sixteen classes, so that both themes can show them.

const SEQUENCE = /\u001b\[([0-9;:?<=>]*)([ -/]*)([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[PX^_][^\u001b]*(?:\u001b\\)?|\u001b[ -/]*[0-~]?|\u009b([0-9;:]*)([@-~])/g;
// Control characters, and those that change the direction of what follows.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const PLAIN = Object.freeze({ fg: -1, bg: -1, bold: false, dim: false, italic: false, under: false, swap: false });

/** The state at the beginning of a text. */
export const noStyle = PLAIN;

/** The pieces of one line as `{text, name}`, and the style behind it. */
export function parseLine(line, style = PLAIN) {
  const pieces = [];
  const add = (text) => {
    if (text) pieces.push({ text: spell(text), name: nameOf(style) });
  };
  // What stands before a carriage return was written over.
  const text = lastOverwritten(line);
  if (text !== line) style = styleBehind(line.slice(0, line.length - text.length), style);
  let at = 0;
  for (const match of text.matchAll(SEQUENCE)) {
    add(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[3] === "m" && !match[2]) style = changed(style, match[1]);
    else if (match[5] === "m") style = changed(style, match[4]);
  }
  add(text.slice(at));
  return { pieces, style };
}

/** The style behind a line, without its pieces. */
export function styleBehind(line, style) {
  if (!line.includes("\u001b")) return style;
  for (const match of line.matchAll(SEQUENCE)) if (match[3] === "m" && !match[2]) style = changed(style, match[1]);
  return style;
}

/** The text of a line alone. */
export function plainText(line) {
  return spell(lastOverwritten(line).replace(SEQUENCE, ""));
}

function lastOverwritten(line) {
  const text = line.replace(/\r+$/, "");
  const at = text.lastIndexOf("\r");
  return at < 0 ? text : text.slice(at + 1);
}

function spell(text) {
  return text.replace(HIDDEN, (one) => {
    const code = one.codePointAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

function changed(style, parameters) {
  const codes = parameters.split(/[;:]/).map((one) => (one === "" ? 0 : Number(one)));
  let next = { ...style };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.under = true;
    else if (code === 7) next.swap = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.under = false;
    else if (code === 27) next.swap = false;
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code === 39) next.fg = -1;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code === 49) next.bg = -1;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, at + 1);
      at += used;
      if (colour >= 0) next[code === 38 ? "fg" : "bg"] = colour;
    }
  }
  return next;
}

/** One of 256 colours or of all colours as the nearest of sixteen, and how many numbers it took. */
function extended(codes, at) {
  if (codes[at] === 5) return [nearestOf256(codes[at + 1] ?? 0), 2];
  if (codes[at] === 2) return [nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  return [-1, 0];
}

function nearestOf256(number) {
  if (number < 16) return number;
  if (number >= 232) return nearest(...Array(3).fill((number - 232) * 10 + 8));
  const level = (one) => (one ? one * 40 + 55 : 0);
  const cube = number - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function nearest(red, green, blue) {
  const high = Math.max(red, green, blue);
  if (high < 50) return 0;
  const bit = (one) => (one > high * 0.6 ? 1 : 0);
  const colour = bit(red) + 2 * bit(green) + 4 * bit(blue);
  if (colour === 7) return high > 200 ? 15 : high > 110 ? 7 : 8;
  return high > 200 ? colour + 8 : colour;
}

function nameOf(style) {
  const [fg, bg] = style.swap ? [style.bg < 0 ? 16 : style.bg, style.fg < 0 ? 16 : style.fg] : [style.fg, style.bg];
  const names = [];
  if (fg >= 0) names.push(`ansi-${fg}`);
  if (bg >= 0) names.push(`ansi-on-${bg}`);
  if (style.bold) names.push("ansi-bold");
  if (style.dim) names.push("ansi-dim");
  if (style.italic) names.push("ansi-italic");
  if (style.under) names.push("ansi-under");
  return names.join(" ");
}
