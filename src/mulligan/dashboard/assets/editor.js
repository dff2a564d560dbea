// The editor of workflows: text, problems and graph in step, a draft that is saved while somebody types, publishing.
import { EditorState, EditorView, Transaction, basicSetup, indentWithTab, keymap, lintGutter, setDiagnostics, yaml } from "./vendor/codemirror.js";
import { get, send, segment } from "./api.js";
import { confirmAction, openAction } from "./actions.js";
import { say, sayError } from "./notes.js";
import { appearance } from "./editor_theme.js";
import { schemaHelp } from "./editor_schema.js";
import { DraftKeeper, changedLines } from "./editor_draft.js";
import { GraphPane } from "./editor_graph.js";

const START = `# What this workflow is for.
steps:
  - step: first
    shell: echo hello
`;
const SAVE_MS = 900;
const SAVE_AGAIN_MS = 4000;
// What is not saved, kept in this tab: a session may end while somebody writes.
const UNSAVED = `mulligan-unsaved:${location.pathname}`;

const host = document.getElementById("editor");
const isReadOnly = host.hasAttribute("data-readonly");
const nameBox = document.getElementById("workflow-name");
const stateText = document.getElementById("draft-state");
const keeper = new DraftKeeper({ name: host.dataset.name, show: showState });
let checked = null; // the last answer of a check
let view = null;
let file = "workflow.yaml";

// -- the text --------------------------------------------------------------------------------------------------------

function makeView(text) {
  // In a shadow root CodeMirror uses constructed style sheets, which the policy of the page allows.
  const parent = document.getElementById("editor-text");
  const root = parent.attachShadow({ mode: "open" });
  view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        basicSetup,
        yaml(),
        lintGutter(),
        appearance,
        ...schemaHelp(() => checked?.graph?.steps.map((one) => one.name) ?? []),
        keymap.of([indentWithTab, { key: "Mod-s", preventDefault: true, run: () => (saveSoon(0), true) }]),
        EditorState.readOnly.of(isReadOnly),
        EditorView.contentAttributes.of({ "aria-label": "Text of the workflow", tabindex: "0" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) {
            check();
            saveSoon();
          }
          if (update.selectionSet || update.docChanged) graph.showLine(stepLineOf(update.state));
        }),
      ],
    }),
  });
}

/** The line of the cursor; 0 if it is outside the steps of a file of ours. */
function stepLineOf(state) {
  const { number } = state.doc.lineAt(state.selection.main.head);
  if (checked?.format !== "mulligan") return number;
  for (let line = number; line >= 1; line--) {
    const key = /^["']?(\w+)["']?\s*:/.exec(state.doc.line(line).text);
    if (key) return key[1] === "steps" || key[1] === "end" ? number : 0;
  }
  return 0;
}

const textOf = () => view.state.doc.toString();

/** Move the cursor to a line, and show it in the middle. */
function goTo(line, column = 1, focus = true) {
  const found = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
  const at = Math.min(found.from + toUnits(found.text, column - 1), found.to);
  view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
  if (focus) view.focus();
}

/** Replace the text, as one change that can be undone, and leave equal beginnings and ends alone. */
function replaceText(next) {
  const old = textOf();
  let from = 0;
  while (from < old.length && from < next.length && old[from] === next[from]) from++;
  let tail = 0;
  while (tail < old.length - from && tail < next.length - from && old[old.length - 1 - tail] === next[next.length - 1 - tail]) tail++;
  view.dispatch({ changes: { from, to: old.length - tail, insert: next.slice(from, next.length - tail) }, annotations: Transaction.userEvent.of("input.edit") });
}

// The server counts characters; JavaScript counts units of 16 bits.
function toUnits(text, count) {
  let units = 0;
  for (const one of text) {
    if (count-- <= 0) break;
    units += one.length;
  }
  return units;
}

// -- problems and graph: one round trip per change, never two at once ------------------------------------------------

let isChecking = false;
let isStale = false;

async function check() {
  if (isChecking) return void (isStale = true);
  isChecking = true;
  try {
    do {
      isStale = false;
      const answer = await send("POST", "workflows:validate", { text: textOf(), file, graph: true });
      if (isStale) continue;
      checked = answer.graph ? answer : { ...answer, format: checked?.format ?? "mulligan", graph: checked?.graph ?? null };
      showProblems(answer.problems, answer.warnings);
      graph.show(answer.graph, answer.steps);
      graph.showLine(stepLineOf(view.state));
      showOrigin(answer.format);
    } while (isStale);
  } catch (error) {
    if (error.status) showProblems([{ message: error.message, hint: error.hint, line: 0 }], []);
  } finally {
    isChecking = false;
  }
}

function showProblems(errors, warnings) {
  const { doc } = view.state;
  const problems = [...errors.map((one) => ({ ...one, kind: "error" })), ...warnings.map((one) => ({ ...one, kind: "warning" }))];
  const marks = problems
    .filter((one) => one.line > 0 && one.line <= doc.lines)
    .map((one) => {
      const line = doc.line(one.line);
      const from = Math.min(line.from + toUnits(line.text, one.column - 1), line.to);
      const to = Math.min(from + toUnits(line.text.slice(from - line.from), one.length || 1), line.to);
      return { from, to: Math.max(to, from), severity: one.kind, message: [one.message, one.hint].filter(Boolean).join("\n") };
    });
  view.dispatch(setDiagnostics(view.state, marks));
  const list = document.getElementById("problems");
  list.replaceChildren(...problems.slice(0, 50).map(problemItem));
  list.dataset.count = problems.length;
  const button = document.getElementById("publish");
  if (button) Object.assign(button, { disabled: errors.length > 0, title: errors.length ? "the text has errors" : "" });
}

/** A problem: its place and message; an error also as a terminal shows it, with carets under the words. */
function problemItem(one) {
  const item = document.createElement("li");
  item.className = one.kind === "warning" ? "try" : "bad";
  const button = Object.assign(document.createElement("button"), { type: "button", className: "problem-line" });
  const place = Object.assign(document.createElement("span"), { className: "place", textContent: one.line ? `${one.line}:${one.column}` : "" });
  const message = Object.assign(document.createElement("span"), { className: "message", textContent: one.message });
  button.append(place, message);
  button.addEventListener("click", () => one.line && goTo(one.line, one.column));
  item.append(button);
  if (one.kind === "error" && one.line && one.line <= view.state.doc.lines) {
    const excerpt = Object.assign(document.createElement("pre"), { className: "caret" });
    const carets = " ".repeat(Math.max(0, one.column - 1)) + "^".repeat(Math.max(1, one.length ?? 1));
    excerpt.textContent = `${view.state.doc.line(one.line).text}\n${carets}${one.hint ? ` ${one.hint}` : ""}`;
    item.append(excerpt);
  } else if (one.hint) {
    message.append(Object.assign(document.createElement("small"), { textContent: ` ${one.hint}` }));
  }
  return item;
}

// -- files of other systems ------------------------------------------------------------------------------------------

const foreign = document.getElementById("foreign");
const converted = document.getElementById("converted");

function showOrigin(format) {
  const isForeign = Boolean(format) && format !== "mulligan";
  if (format === null) return;
  foreign.hidden = !isForeign;
  if (!isForeign) return void (converted.hidden = true);
  const words = document.createElement("span");
  words.textContent = `This is a file of ${format}. It runs as it is.`;
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: converted.hidden ? "Show it as a Mulligan file" : "Hide the Mulligan file" });
  button.addEventListener("click", () => (converted.hidden ? showConverted() : ((converted.hidden = true), showOrigin(format))));
  const use = Object.assign(document.createElement("button"), { type: "button", textContent: "Use this text", hidden: converted.hidden || isReadOnly });
  use.addEventListener("click", () => ((file = "workflow.yaml"), replaceText(converted.textContent), (converted.hidden = true)));
  foreign.replaceChildren(words, button, use);
  if (!converted.hidden) showConverted();
}

async function showConverted() {
  try {
    const answer = await send("POST", "workflows:convert", { text: textOf(), file });
    const wasHidden = converted.hidden;
    converted.textContent = answer.text;
    converted.hidden = false;
    if (wasHidden) showOrigin(answer.origin || "mulligan");
  } catch (error) {
    sayError(error);
  }
}

document.getElementById("open-file")?.addEventListener("click", () => document.getElementById("file").click());
document.getElementById("file").addEventListener("change", async ({ target }) => {
  const [chosen] = target.files;
  target.value = "";
  if (!chosen) return;
  file = chosen.name;
  if (nameBox && !nameBox.value) nameBox.value = chosen.name.split(".")[0].replace(/[^A-Za-z0-9._-]+/g, "-");
  replaceText(await chosen.text());
  check();
});

// -- the graph -------------------------------------------------------------------------------------------------------

const graph = new GraphPane({
  figure: document.getElementById("graph"),
  note: document.getElementById("graph-note"),
  stepBar: document.getElementById("graph-step"),
  isReadOnly,
  goTo,
  edit: async (change) => {
    const before = textOf();
    const answer = await send("POST", "workflows:edit", { text: before, file, ...change });
    // What the form would break is said in the form, and the text stays as it is.
    const [problem] = answer.validation.problems;
    if (problem && (checked?.problems ?? []).length < answer.validation.problems.length) throw problem;
    replaceText(answer.text);
    if (answer.line) goTo(answer.line, 1);
    return answer;
  },
});
document.getElementById("add-step")?.addEventListener("click", () => graph.addStep());
document.getElementById("add-edge")?.addEventListener("click", () => graph.connect());

// -- the draft -------------------------------------------------------------------------------------------------------

let timer = 0;

function saveSoon(after = SAVE_MS) {
  if (isReadOnly) return;
  keeper.touch(textOf());
  keepHere();
  clearTimeout(timer);
  timer = setTimeout(save, after);
}

async function save() {
  clearTimeout(timer);
  if (nameBox && !nameBox.disabled && !(await takeName())) return false;
  const saved = await keeper.save(textOf(), file, { replace: replaceText });
  if (saved) sessionStorage.removeItem(UNSAVED);
  else if (stateText?.dataset.state === "lost") timer = setTimeout(save, SAVE_AGAIN_MS);
  if (saved && nameBox && !nameBox.disabled) {
    nameBox.disabled = true;
    history.replaceState(null, "", `/workflows/${segment(keeper.name)}/edit`);
  }
  return saved;
}

function keepHere() {
  try {
    if (keeper.isDirty) sessionStorage.setItem(UNSAVED, textOf());
    else sessionStorage.removeItem(UNSAVED);
  } catch {
    // A text that is too large for the storage of a tab is only saved on the server.
  }
}

const WORKFLOW_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

/** Take the name in the box, which may change until there is a draft under it. False if it cannot be used. */
async function takeName() {
  const name = nameBox.value.trim();
  const refuse = (text) => (nameBox.setAttribute("aria-invalid", "true"), showState("refused", text), false);
  nameBox.removeAttribute("aria-invalid");
  if (!name) return void showState("name", "give it a name to save it");
  if (!WORKFLOW_NAME.test(name)) return refuse("a name has letters, digits, '.', '_' and '-', and begins with a letter or digit");
  if (name === keeper.name) return true;
  for (const path of [`workflows/${segment(name)}`, `workflows/${segment(name)}/draft`]) {
    try {
      await get(path);
      return refuse(`there is a workflow '${name}' already: choose another name, or edit that one`);
    } catch (error) {
      if (error.status !== 404) return refuse(error.status ? error.message : "not saved: the server does not answer");
    }
  }
  keeper.name = name;
  return true;
}

function showState(state, text) {
  if (!stateText) return;
  stateText.dataset.state = state;
  stateText.textContent = text;
  const discard = document.getElementById("discard");
  if (discard) discard.disabled = !keeper.revision;
}

nameBox?.addEventListener("change", () => saveSoon(0));
document.getElementById("publish")?.addEventListener("click", publish);
document.getElementById("discard")?.addEventListener("click", discard);
stateText?.addEventListener("click", () => stateText.dataset.state === "conflict" && save());

async function publish() {
  if (!(await save())) return void (nameBox && !nameBox.disabled && nameBox.focus());
  const name = keeper.name;
  const action = {
    path: `workflows/${segment(name)}:publish`,
    title: `Publish ${name}`,
    label: "Publish",
    done: "published",
    preview: true,
    headers: { "if-match": `"${keeper.revision}"` },
    fields: [{ name: "note", label: "What changed (optional)" }],
  };
  const newest = keeper.version ? await get(`workflows/${segment(name)}`).catch(() => null) : null;
  const answer = await confirmAction(action, (plan) => describePublication(plan, newest));
  if (answer === undefined) return void view.focus();
  keeper.forget();
  location.assign(`/workflows/${segment(name)}`);
}

function describePublication(plan, newest) {
  const lines = [plan.is_new ? `It becomes version ${plan.version}.` : `Version ${plan.version} has this text already.`];
  if (keeper.version && plan.is_new && plan.version > keeper.version + 1) lines.push(`Version ${plan.version - 1} was published since you began with version ${keeper.version}.`);
  if (plan.schedules?.length) lines.push(`Its schedules are in force then: ${plan.schedules.join(", ")}`);
  if (plan.warnings?.length) lines.push(`${plan.warnings.length} warnings, see below the text.`);
  const changes = newest && plan.is_new ? changedLines(newest.text, textOf()) : null;
  return changes ? [...lines, `Against version ${newest.version}:`, changes] : lines;
}

async function discard() {
  const name = keeper.name;
  const answer = await openAction({ method: "DELETE", path: `workflows/${segment(name)}/draft`, title: "Discard the draft", text: "The text of the draft is lost. The published versions stay.", label: "Discard the draft", danger: true, bodyless: true, headers: { "if-match": `"${keeper.revision}"` }, done: "the draft is discarded" });
  if (answer === null) return;
  keeper.forget();
  location.assign(keeper.version ? `/workflows/${segment(name)}` : "/workflows");
}

addEventListener("beforeunload", (event) => keeper.isDirty && event.preventDefault());
addEventListener("focus", () => keeper.name && !isReadOnly && view && keeper.look(textOf(), { replace: replaceText }));

// -- begin -----------------------------------------------------------------------------------------------------------

async function begin() {
  try {
    const found = host.dataset.name ? await keeper.open(Number(host.dataset.version) || null, host.hasAttribute("data-draft")) : { text: START, file: "workflow.yaml" };
    file = found.file || "workflow.yaml";
    const unsaved = isReadOnly ? null : sessionStorage.getItem(UNSAVED);
    makeView(found.text);
    check();
    if (unsaved !== null && unsaved !== found.text) {
      replaceText(unsaved);
      say("what you had not saved is here again; Ctrl+Z takes it back");
    } else if (host.dataset.version && found.isOther) saveSoon();
    if (!nameBox) view.focus();
    // A finding of coverage leads to its line.
    const at = /^#line-(\d+)$/.exec(location.hash);
    if (at) goTo(Number(at[1]));
  } catch (error) {
    sayError(error);
  }
}

begin();
