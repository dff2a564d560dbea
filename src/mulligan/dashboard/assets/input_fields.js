// The fields of the typed inputs of a workflow, which the server makes: of a run, and of a schedule.

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
  // In a schedule: the server evaluates it for each start.
  if ("placeholders" in control.dataset && text.trim().startsWith("${")) return text.trim();
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

/** The inputs that were given, and the first field that is wrong; each wrong one says why, unless `isQuiet`. */
export function readFields(form, { isQuiet = false } = {}) {
  const inputs = {};
  let wrong = null;
  for (const control of form.querySelectorAll("[data-input]")) {
    const name = control.dataset.input;
    const said = form.querySelector(`[data-problem="${CSS.escape(name)}"]`);
    said.textContent = "";
    control.removeAttribute("aria-invalid");
    try {
      const value = valueOf(control);
      if (value !== undefined) inputs[name] = value;
    } catch (error) {
      if (!isQuiet) {
        said.textContent = error.message;
        control.setAttribute("aria-invalid", "true");
      }
      wrong ??= control;
    }
  }
  return { inputs, wrong };
}
