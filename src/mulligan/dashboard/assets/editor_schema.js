// Completion and hover, from the JSON Schema of workflow files. The place in the text is found by its indentation.
import { autocompletion, hoverTooltip } from "./vendor/codemirror.js";
import { get } from "./api.js";

// Where the name of a step is expected.
const STEP_PLACES = new Set(["needs", "next", "to", "from_step", "step_of"]);

/** The extensions for CodeMirror. `stepNames()` gives the steps of the text. */
export function schemaHelp(stepNames) {
  let schema = null;
  const loading = get("workflows:schema").then((found) => (schema = found)).catch(() => null);
  const complete = async (context) => {
    await loading;
    if (!schema) return null;
    const place = placeAt(context.state.doc, context.pos);
    if (!place || (!place.word && !context.explicit && !place.isAfterColon)) return null;
    const options = [...(place.isValue ? [] : keyOptions(schema, place)), ...valueOptions(schema, place, stepNames())];
    return options.length ? { from: context.pos - place.word.length, options, validFor: /^[\w.-]*$/ } : null;
  };
  const hover = hoverTooltip(async (view, pos) => {
    await loading;
    const found = schema && keyAt(view.state.doc, pos);
    if (!found) return null;
    const described = schemasAt(schema, found.path).filter((one) => one.description);
    return described.length ? { pos: found.from, end: found.to, create: () => ({ dom: helpElement(found.path.at(-1), described) }) } : null;
  });
  return [autocompletion({ override: [complete], icons: false }), hover];
}

function helpElement(key, described) {
  const dom = document.createElement("div");
  dom.className = "cm-help";
  dom.append(Object.assign(document.createElement("code"), { textContent: key }));
  for (const text of new Set(described.map((one) => one.description))) dom.append(Object.assign(document.createElement("p"), { textContent: text }));
  const values = described.flatMap((one) => one.enum ?? []);
  if (values.length) dom.append(Object.assign(document.createElement("p"), { textContent: `one of ${values.join(", ")}` }));
  return dom;
}

function keyOptions(schema, place) {
  const found = new Map();
  for (const one of schemasAt(schema, place.path)) {
    for (const [key, about] of Object.entries(one.properties ?? {})) {
      if (!found.has(key) && !place.siblings.has(key)) found.set(key, { label: key, info: about.description, detail: one.required?.includes(key) ? "needed" : "", type: "property", apply: `${key}: `, boost: one.required?.includes(key) ? 2 : 0 });
    }
  }
  return [...found.values()];
}

function valueOptions(schema, place, names) {
  const path = place.isValue ? [...place.path, place.key] : place.path;
  const found = new Map();
  const add = (value, about) => found.has(value) || found.set(value, { label: String(value), ...about });
  const nearest = [...path].reverse().find((one) => one !== "[]");
  if (STEP_PLACES.has(nearest) && (place.isValue || path.at(-1) === "[]")) for (const name of names) add(name, { detail: "step", type: "variable", boost: 3 });
  for (const one of schemasAt(schema, path)) {
    for (const value of one.enum ?? (one.const === undefined ? [] : [one.const])) add(value, { type: "enum", info: one.description });
    if (one.type === "boolean") for (const value of ["true", "false"]) add(value, { type: "enum", info: one.description });
  }
  return [...found.values()];
}

// -- the schema ------------------------------------------------------------------------------------------------------

/** All schemas that may hold at a path; "[]" is any item of a list. */
export function schemasAt(schema, path) {
  let here = expand(schema, schema);
  for (const name of path) {
    const next = [];
    for (const one of here) {
      if (name === "[]") next.push(one.items);
      else if (one.properties?.[name]) next.push(one.properties[name]);
      else {
        const pattern = Object.entries(one.patternProperties ?? {}).find(([text]) => matches(text, name));
        next.push(pattern?.[1] ?? (typeof one.additionalProperties === "object" ? one.additionalProperties : null));
      }
    }
    here = next.filter(Boolean).flatMap((one) => expand(schema, one));
  }
  return here;
}

function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return false;
  }
}

function expand(root, one, depth = 0) {
  if (!one || depth > 8) return [];
  const found = [one];
  if (one.$ref) {
    const target = one.$ref.replace(/^#\//, "").split("/").reduce((at, name) => at?.[name], root);
    found.push(...expand(root, target, depth + 1));
  }
  for (const list of [one.anyOf, one.oneOf, one.allOf]) for (const each of list ?? []) found.push(...expand(root, each, depth + 1));
  return found;
}

// -- the place in the text -------------------------------------------------------------------------------------------

const LINE = /^(\s*)((?:-\s+)*)(?:("[^"]*"|'[^']*'|[\w$.{}-]+)\s*:(?=\s|$)(.*))?/;

/** The dashes and the key of a line, each with its column. */
function tokensOf(text) {
  const found = LINE.exec(text);
  const tokens = [];
  let column = found[1].length;
  for (const dash of found[2].match(/-\s+/g) ?? []) {
    tokens.push({ kind: "dash", column });
    column += dash.length;
  }
  if (/^\s*(-\s+)*-$/.test(text)) tokens.push({ kind: "dash", column: text.lastIndexOf("-") });
  if (found[3] !== undefined) tokens.push({ kind: "key", column, name: found[3].replace(/^["']|["']$/g, ""), value: found[4].trim() });
  return tokens;
}

/** The path to what begins at a column of a line. Null inside a script. */
function pathTo(doc, number, column) {
  const path = [];
  let at = column;
  let isBelowDash = false;
  for (let line = number; line >= 1 && at > 0; line--) {
    const { text } = doc.line(line);
    if (!text.trim() || /^\s*#/.test(text)) continue;
    for (const token of tokensOf(text).reverse()) {
      if (token.kind === "dash" && token.column < at) {
        path.unshift("[]");
        at = token.column;
        isBelowDash = true;
      } else if (token.kind === "key" && line < number && (token.column < at || (isBelowDash && token.column === at))) {
        if (/^[|>]/.test(token.value)) return null;
        path.unshift(token.name);
        at = token.column;
        isBelowDash = false;
      }
    }
  }
  // A list may begin in the column of its key, also in the first one.
  if (isBelowDash && at === 0) {
    for (let line = number; line >= 1; line--) {
      const key = tokensOf(doc.line(line).text).find((token) => token.kind === "key" && token.column === 0);
      if (key) return [key.name, ...path];
    }
  }
  return path;
}

/** Where the cursor is: the path, the word before it, and whether that is a value. Null where nothing can be said. */
function placeAt(doc, pos) {
  const line = doc.lineAt(pos);
  const before = line.text.slice(0, pos - line.from);
  if (/(^|\s)#/.test(before)) return null;
  const word = /[\w.-]*$/.exec(before)[0];
  const tokens = tokensOf(before);
  const key = tokens.find((token) => token.kind === "key");
  const dash = tokens.filter((token) => token.kind === "dash").at(-1);
  const column = key ? key.column : dash ? before.length - before.trimStart().length + /^\s*((?:-\s+)*)/.exec(before)[1].length : before.length - word.length;
  const path = pathTo(doc, line.number, column);
  if (!path) return null;
  const siblings = siblingsOf(doc, line.number, column);
  if (!key) return { path, word, isValue: false, key: "", siblings };
  // Inside { } and [ ] of this line.
  const flow = flowPath(key.value);
  if (flow === null) return { path, word, isValue: true, key: key.name, siblings, isAfterColon: true };
  const inside = [...path, key.name, ...flow.path];
  return { path: inside, word, isValue: flow.key !== null, key: flow.key ?? "", siblings: flow.siblings, isAfterColon: true };
}

/** The path inside the brackets that are open at the end of a text; null if none is. */
function flowPath(text) {
  const stack = [];
  let quote = "";
  let token = "";
  for (const one of text) {
    const top = stack.at(-1);
    if (quote) {
      if (one === quote) quote = "";
    } else if (one === '"' || one === "'") quote = one;
    else if (one === "{" || one === "[") {
      stack.push({ kind: one, key: null, siblings: new Set() });
      token = "";
    } else if (one === "}" || one === "]") (stack.pop(), (token = ""));
    else if (one === ":" && top?.kind === "{") {
      top.key = token.trim();
      top.siblings.add(top.key);
      token = "";
    } else if (one === "," && top) ((top.key = null), (token = ""));
    else token += one;
  }
  if (!stack.length) return null;
  const path = [];
  for (const [at, one] of stack.entries()) {
    if (one.kind === "[") path.push("[]");
    else if (at < stack.length - 1 && one.key) path.push(one.key);
  }
  const top = stack.at(-1);
  return { path, key: top.kind === "{" ? top.key : null, siblings: top.siblings };
}

/** The keys that the mapping around a line has already. */
function siblingsOf(doc, number, column) {
  const found = new Set();
  for (const step of [-1, 1]) {
    for (let line = number + (step > 0 ? 1 : 0); line >= 1 && line <= doc.lines; line += step) {
      const { text } = doc.line(line);
      if (!text.trim()) continue;
      const tokens = tokensOf(text);
      const key = tokens.find((token) => token.kind === "key");
      const start = text.length - text.trimStart().length;
      if (step > 0 && start < column) break;
      if (key?.column === column && line !== number) found.add(key.name);
      if (step < 0 && (start < column || tokens.some((token) => token.kind === "dash" && token.column < column && key?.column === column))) break;
    }
  }
  return found;
}

/** The key under the pointer, with its path. */
function keyAt(doc, pos) {
  const line = doc.lineAt(pos);
  const key = tokensOf(line.text).find((token) => token.kind === "key");
  const at = pos - line.from;
  if (key && at >= key.column && at <= key.column + key.name.length) {
    const path = pathTo(doc, line.number, key.column);
    return path && { path: [...path, key.name], from: line.from + key.column, to: line.from + key.column + key.name.length };
  }
  // A key inside { }.
  const word = /([\w-]+)\s*:/g;
  for (let found = word.exec(line.text); found; found = word.exec(line.text)) {
    if (at < found.index || at > found.index + found[1].length || !key) continue;
    const path = pathTo(doc, line.number, key.column);
    const offset = key.column + line.text.slice(key.column).indexOf(":") + 1;
    const flow = flowPath(line.text.slice(offset, found.index));
    return path && flow && { path: [...path, key.name, ...flow.path, found[1]], from: line.from + found.index, to: line.from + found.index + found[1].length };
  }
  return null;
}
