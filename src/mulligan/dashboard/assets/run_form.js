// The form that starts a run: each field has the type of an input of the workflow.
import { segment, send } from "./api.js";
import { readFields } from "./input_fields.js";

const form = document.getElementById("run-form");

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
  const { inputs, wrong } = readFields(form);
  if (wrong) return wrong.focus();
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
