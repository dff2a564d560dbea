// One dialog for every change: what will happen, a reason, then the call. A button has its action as JSON:
//   {"method": "POST", "path": "runs/7:cancel", "title": "Cancel run 7", "body": {…},
//    "reason": "optional" | "required" | undefined,      a field for the reason
//    "preview": true,                                     asks with dry_run first, and shows what would happen
//    "danger": true, "label": "Cancel the run", "done": "the run is being cancelled",
//    "fields": [{"name": "now", "type": "checkbox", "label": "…", "value": …,
//                "if": ["version", "text"]}],             shown and sent only while that field has that value
//    "next": "/runs/{run_id}"}                            where to go then; names are taken from the answer
// A page that needs more (a list of decisions, an editor) makes its own dialog with `confirmAction`.
import { send } from "./api.js";
import { say, sayError } from "./notes.js";
import { describePlan } from "./plans.js";

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter(Boolean));
  return made;
};

/** Open the dialog of an action. Resolves to the answer, or null if the reader changed their mind. */
export async function openAction(action, { refresh = () => {}, opener = null, describe = describePlan } = {}) {
  const answer = await confirmAction(action, describe);
  opener?.focus();
  if (answer === undefined) return null;
  say(action.done ?? "done", { tone: "good" });
  if (action.next) location.assign(action.next.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer?.[name] ?? "")));
  else refresh();
  return answer;
}

/** The dialog itself: the answer of the interface, or undefined. `describe(plan)` gives lines of text or elements;
 * `shape(given)` makes the body of what was typed. */
export function confirmAction(action, describe = describePlan, shape = (given) => given) {
  return new Promise((resolve) => {
    const problem = make("p", { className: "problem" });
    problem.setAttribute("role", "alert");
    const preview = make("div", { className: "preview" });
    preview.setAttribute("aria-live", "polite");
    const inputs = (action.fields ?? []).map(makeField);
    const reason = action.reason
      ? makeField({ name: "reason", label: action.reason === "required" ? "Reason" : "Reason (optional)", required: action.reason === "required" })
      : null;
    const confirm = make("button", { type: "submit", className: action.danger ? "danger" : "primary", textContent: action.label ?? "OK" });
    const cancel = make("button", { type: "button", textContent: "Back", className: "quiet" });
    const form = make("form", { method: "dialog" }, make("h2", { textContent: action.title, id: "action-title" }), action.text && make("p", { textContent: action.text, className: "sentence" }), ...inputs.map((one) => one.row), preview, reason?.row, problem, make("div", { className: "buttons" }, confirm, cancel));
    const dialog = make("dialog", { className: "action" }, form);
    dialog.setAttribute("aria-labelledby", "action-title");
    const body = (isDry) => {
      const given = { ...action.body };
      for (const one of inputs) if (!one.row.hidden && one.value() !== undefined) given[one.name] = one.value();
      if (reason && !isDry && reason.value()) given.reason = reason.value();
      else if (reason && isDry) given.reason = reason.value() || "preview";
      if (isDry) given.dry_run = true;
      return shape(given);
    };
    let asked = 0;
    const showPreview = async () => {
      if (!action.preview) return;
      const mine = ++asked;
      try {
        const plan = await send(action.method ?? "POST", action.path, body(true));
        if (mine !== asked) return;
        preview.replaceChildren(...[describe(plan)].flat().map((one) => (typeof one === "string" ? make("p", { textContent: one }) : one)));
        problem.textContent = "";
        confirm.disabled = false;
      } catch (error) {
        if (mine !== asked) return;
        preview.replaceChildren();
        problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
        confirm.disabled = true;
      }
    };
    const showFields = () => {
      for (const { row, needs } of inputs) if (needs) row.hidden = inputs.find((one) => one.name === needs[0])?.value() !== needs[1];
    };
    let typing = 0;
    for (const one of inputs) {
      one.row.addEventListener("change", () => (showFields(), showPreview()));
      // A long text is checked while it is typed.
      if (one.row.querySelector("textarea")) one.row.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(showPreview, 400))));
    }
    showFields();
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      problem.textContent = "";
      try {
        const answer = await send(action.method ?? "POST", action.path, action.bodyless ? undefined : body(false), { headers: action.headers });
        resolve(answer);
        dialog.close();
      } catch (error) {
        problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
        confirm.disabled = false;
      }
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => (dialog.remove(), resolve(undefined)));
    document.body.append(dialog);
    dialog.showModal();
    showPreview();
  });
}

let fieldNumber = 0;

function makeField({ name, label, type = "text", value = "", required = false, options = null, suggestions = null, hint = "", rows = 4, if: needs = null }) {
  const id = `field-${++fieldNumber}`;
  let input;
  if (options) {
    input = make("select", { id, name });
    for (const one of options) input.append(make("option", { value: one.value ?? one, textContent: one.label ?? one, selected: (one.value ?? one) === value }));
  } else if (type === "textarea") {
    input = make("textarea", { id, name, value, required, rows, spellcheck: rows <= 4, className: rows > 4 ? "code" : "" });
  } else {
    input = make("input", { id, name, type, required });
    if (type === "checkbox") input.checked = Boolean(value);
    else input.value = type === "datetime-local" ? localTime(value) : value;
  }
  if (suggestions) input.setAttribute("list", `${id}-names`);
  const names = suggestions && make("datalist", { id: `${id}-names` }, ...suggestions.map((one) => make("option", { value: one })));
  const title = make("label", { textContent: label ?? name, htmlFor: id });
  const row = type === "checkbox" ? make("p", { className: "field check" }, input, title) : make("p", { className: "field" }, title, input, names, hint && make("small", { textContent: hint }));
  const read = () => {
    if (type === "checkbox") return input.checked;
    if (type === "number") return input.value === "" ? undefined : Number(input.value);
    if (type === "datetime-local") return input.value === "" ? undefined : new Date(input.value).toISOString();
    return input.value === "" ? undefined : input.value;
  };
  return { name, row, value: read, needs };
}

/** A time as a field has it that knows no zones: in that of the reader. */
function localTime(text) {
  const at = new Date(text);
  return text ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
}

export { sayError };
