// The form that starts a run: each field has the type of an input of the workflow.
import { segment, send } from "./api.js";

const form = document.getElementById("run-form");

/** The value of a field; undefined if it was left empty. An Error says what is wrong. */
function valueOf(control) {
  const text = control.value;
  if (text.trim() === "" && !(control.dataset.type === "string" && text !== "")) {
    if (control.required) throw new Error("it is needed");
    return undefined;
  }
  if (control.localName === "select") return JSON.parse(text);
  const kind = control.dataset.type;
  if (kind === "string") return text;
  if (kind === "integer" || kind === "number") {
    const number = Number(text);
    if (!Number.isFinite(number) || (kind === "integer" && !Number.isInteger(number))) throw new Error(kind === "integer" ? "it must be a whole number" : "it must be a number");
    return number;
  }
  try {
    const value = JSON.parse(text);
    if (kind === "array" && !Array.isArray(value)) throw new Error("it must be a JSON list, such as [1, 2]");
    if (kind === "object" && (value === null || typeof value !== "object" || Array.isArray(value))) throw new Error('it must be a JSON object, such as {"a": 1}');
    return value;
  } catch (error) {
    if (kind === "any") return text;
    throw error instanceof SyntaxError ? new Error(`it is not JSON: ${error.message}`) : error;
  }
}

/** The labels in `a=1, b=2`. */
function labelsOf(text) {
  const parts = text.split(",").map((one) => one.trim()).filter(Boolean);
  const wrong = parts.find((one) => !one.includes("="));
  if (wrong) throw new Error(`the label '${wrong}' is not key=value`);
  return Object.fromEntries(parts.map((one) => [one.slice(0, one.indexOf("=")).trim(), one.slice(one.indexOf("=") + 1).trim()]));
}

// One key for this form: pressed twice, it starts one run.
const key = [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const problem = document.getElementById("run-problem");
  problem.textContent = "";
  const inputs = {};
  let first = null;
  for (const control of form.querySelectorAll("[data-input]")) {
    const name = control.dataset.input;
    const said = form.querySelector(`[data-problem="${CSS.escape(name)}"]`);
    said.textContent = "";
    control.removeAttribute("aria-invalid");
    try {
      const value = valueOf(control);
      if (value !== undefined) inputs[name] = value;
    } catch (error) {
      said.textContent = error.message;
      control.setAttribute("aria-invalid", "true");
      first ??= control;
    }
  }
  if (first) return first.focus();
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  try {
    const body = { workflow: form.dataset.workflow, inputs, labels: labelsOf(form.elements.labels.value) };
    if (form.dataset.version) body.version = Number(form.dataset.version);
    const sent = `${key}-${await digestOf(body)}`;
    const started = await send("POST", "runs", body, { headers: { "idempotency-key": sent } });
    location.assign(`/runs/${segment(started.run_id)}`);
  } catch (error) {
    problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
    button.disabled = false;
  }
});

/** A short name for what is asked for: other inputs are another run. */
function digestOf(body) {
  let found = 0;
  for (const one of JSON.stringify(body)) found = (Math.imul(found, 31) + one.codePointAt(0)) | 0;
  return (found >>> 0).toString(16);
}
