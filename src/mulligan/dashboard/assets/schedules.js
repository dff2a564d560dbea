// The form of a schedule, which shows when it would start while one types; and the dialog of a backfill.
import { ApiError, segment, send } from "./api.js";
import { readFields } from "./input_fields.js";
import { openAction } from "./actions.js";
import { refresh } from "./dashboard.js";
import { formatTime } from "./times.js";

const TYPING_MS = 250;
// How much of the inputs of one start is shown.
const SHOWN_CHARS = 120;

// -- backfill --------------------------------------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-backfill]");
  if (button) openAction(JSON.parse(button.dataset.backfill), { refresh, opener: button, describe: describeBackfill });
});

function describeBackfill(plan) {
  const times = plan.instants.map((one) => new Date(one));
  if (!times.length) return [plan.with_run ? "each instant of this time has a run already" : "there is no instant in this time"];
  const shown = times.slice(0, 8).map((at, number) => [formatTime(at, "time"), inputTexts(plan.inputs[number])].filter(Boolean).join(" with "));
  const lines = [`${times.length.toLocaleString()} ${times.length === 1 ? "start" : "starts"}: ${shown.join(" · ")}${times.length > 8 ? " · …" : ""}`];
  if (plan.with_run) lines.push(`${plan.with_run.toLocaleString()} other ${plan.with_run === 1 ? "instant has" : "instants have"} a run already`);
  if (plan.is_paused) lines.push("the schedule is paused: they are started once it is resumed");
  return lines;
}

// -- the form --------------------------------------------------------------------------------------------------------

const form = document.getElementById("schedule-form");
if (form) startForm(form);

function startForm(form) {
  const preview = document.getElementById("preview");
  const problem = document.getElementById("form-problem");
  const submit = form.querySelector("[type=submit]");
  let timer = 0;
  let asked = 0;

  const showKind = () => {
    for (const one of form.querySelectorAll("[data-kind]")) one.hidden = one.dataset.kind !== form.elements.kind.value;
  };

  const look = async () => {
    const mine = ++asked;
    try {
      const found = await put(form, true);
      if (mine !== asked) return;
      problem.textContent = "";
      submit.disabled = false;
      showInstants(preview, found);
    } catch (error) {
      if (mine !== asked) return;
      problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
      preview.replaceChildren(line("When the form is right, the next ten instants are shown here.", "muted"));
    }
  };

  form.addEventListener("input", () => {
    showKind();
    clearTimeout(timer);
    timer = setTimeout(() => form.elements.name.value.trim() && form.elements.workflow.value.trim() && look(), TYPING_MS);
  });
  form.elements.workflow.addEventListener("change", async () => {
    await showFields(form.elements.workflow.value.trim()).catch(() => {});
    if (form.elements.name.value.trim()) look();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    // A preview that is under way would clear what the server says about this.
    clearTimeout(timer);
    asked += 1;
    try {
      const made = await put(form, false);
      location.assign(`/schedules/${segment(made.name)}`);
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
      submit.disabled = false;
    }
  });
  if (!form.elements.timezone.value && form.dataset.revision === "0") form.elements.timezone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  showKind();
  if (form.elements.name.value && form.elements.workflow.value) look();
}

function put(form, isDry) {
  const given = form.elements;
  const text = (name) => given[name].value.trim() || undefined;
  const number = (name) => (given[name].value === "" ? undefined : Number(given[name].value));
  const isCron = given.kind.value === "cron";
  const body = {
    workflow: text("workflow"),
    ...(isCron ? { cron: text("cron") ?? "", timezone: text("timezone") } : { every: text("every") ?? "", anchor: text("anchor") }),
    overlap: given.overlap.value,
    catch_up: text("catch_up") ?? "last",
    pause_after: number("pause_after"),
    version: number("version"),
    inputs: readInputs(form, isDry),
    labels: JSON.parse(form.dataset.labels),
  };
  // A new one must not replace one of the same name; a change must not undo that of somebody else.
  const headers = isDry ? {} : { "if-match": `"${form.dataset.revision}"` };
  return send("PUT", `schedules/${segment(given.name.value.trim())}${isDry ? "?dry_run=true" : ""}`, body, { headers });
}

/** The inputs of the fields; while somebody types, those that are right. */
function readInputs(form, isDry) {
  const fields = document.getElementById("schedule-inputs");
  // A workflow that is not published has no fields: what the schedule had stays.
  if (!fields.querySelector("[data-input]")) return JSON.parse(fields.dataset.given || "{}");
  const { inputs, wrong } = readFields(fields, { isQuiet: isDry });
  if (wrong && !isDry) {
    wrong.focus();
    throw new ApiError({ detail: `the input '${wrong.dataset.input}' is not right` });
  }
  return inputs;
}

/** The fields of another workflow. */
async function showFields(workflow) {
  const answer = await fetch(`/schedules/new?workflow=${segment(workflow)}`, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("schedule-inputs");
  if (fresh) document.getElementById("schedule-inputs").replaceWith(fresh);
}

function showInstants(preview, found) {
  if (!found.next.length) return preview.replaceChildren(line(found.is_paused ? "It is paused: nothing is started until it is resumed." : "It has no instant.", "muted"));
  const zone = found.timezone ?? "UTC";
  const there = new Intl.DateTimeFormat("en-GB", { timeZone: zone, weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  const hasInputs = found.next_inputs.length > 0;
  for (const title of [zone, "Your time", "", ...(hasInputs ? ["Inputs"] : [])]) head.append(Object.assign(document.createElement("th"), { textContent: title, scope: "col" }));
  const body = table.createTBody();
  for (const [number, one] of found.next.entries()) {
    const at = new Date(one);
    const row = body.insertRow();
    const isSoon = at.getTime() - Date.now() < 7 * 86_400_000;
    for (const words of [there.format(at), formatTime(at, "time"), isSoon ? formatTime(at) : ""]) Object.assign(row.insertCell(), { textContent: words, className: "nowrap" });
    if (hasInputs) Object.assign(row.insertCell(), { textContent: inputTexts(found.next_inputs[number]), className: "given" });
  }
  preview.replaceChildren(table);
}

/** What a start gets for its instant: `day=2026-11-16`. */
function inputTexts(inputs) {
  const texts = Object.entries(inputs ?? {}).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  const text = texts.join(", ");
  return text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text;
}

function line(text, className) {
  return Object.assign(document.createElement("p"), { textContent: text, className });
}
