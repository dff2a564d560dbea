// Making a token: the form, and then its secret, once.
import { send } from "./api.js";
import { refresh } from "./dashboard.js";

const DAY = 86_400;
const EXPIRIES = [["a day", DAY], ["a week", 7 * DAY], ["30 days", 30 * DAY], ["90 days", 90 * DAY], ["a year", 365 * DAY], ["for ever", ""]];

const button = document.getElementById("new-token");
button?.addEventListener("click", () => openForm(JSON.parse(button.dataset.form)));

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter(Boolean));
  return made;
};

function openForm({ meanings, verdicts, project }) {
  const name = make("input", { name: "user", required: true, maxLength: 100, autocomplete: "off" });
  const user = field("For whom", name, "the name in which its changes are recorded");
  const agent = make("input", { type: "checkbox", name: "agent", id: "for-agent" });
  const forAgent = make("p", { className: "field check" }, agent, make("label", { htmlFor: agent.id, textContent: "it is an agent: recorded as agent:NAME, and held to the guard rails below" }));
  const scopes = make("fieldset", {}, make("legend", { textContent: "It may" }));
  for (const [name, meaning] of Object.entries(meanings)) {
    const box = make("input", { type: "checkbox", name: "scope", value: name, id: `scope-${name}`, checked: name === "read" });
    scopes.append(make("p", { className: "field check" }, box, make("label", { htmlFor: box.id }, make("b", { textContent: name }), `: ${meaning}`)));
  }
  const choose = make("select", { name: "expires" });
  for (const [text, seconds] of EXPIRIES) choose.append(make("option", { value: seconds, textContent: text, selected: seconds === 90 * DAY }));
  const workflows = make("input", { name: "workflows", placeholder: "all", autocomplete: "off" });
  const decisions = make("input", { name: "decisions", type: "number", min: 0, placeholder: "no limit" });
  const confidence = make("input", { name: "confidence", type: "number", min: 0, max: 1, step: 0.05, placeholder: "any" });
  const may = make("fieldset", {}, make("legend", { textContent: "It may decide (nothing chosen: anything)" }));
  for (const verdict of verdicts) {
    const box = make("input", { type: "checkbox", name: "verdict", value: verdict, id: `verdict-${verdict}` });
    may.append(make("p", { className: "field check" }, box, make("label", { htmlFor: box.id, textContent: verdict })));
  }
  const where = make("input", { name: "project", value: project ?? "", placeholder: "the default project", autocomplete: "off" });
  const everywhere = make("input", { type: "checkbox", name: "everywhere", id: "all-projects" });
  const problem = make("p", { className: "problem" });
  problem.setAttribute("role", "alert");
  const confirm = make("button", { type: "submit", className: "primary", textContent: "Make the token" });
  const cancel = make("button", { type: "button", className: "quiet", textContent: "Back" });
  const limits = make("details", {}, make("summary", { textContent: "Limits" }),
    field("Only these workflows", workflows, "names, with commas between them"),
    field("Decisions an hour", decisions),
    may,
    field("Sure of a decision", confidence, "from 0 to 1: an agent says how sure it is, and less is left to a person"),
    // Who sees one project makes tokens for that one.
    project === null && field("Project", where),
    project === null && make("p", { className: "field check" }, everywhere, make("label", { htmlFor: "all-projects", textContent: "all projects" })));
  agent.addEventListener("change", () => {
    // What an agent gets unless something else is chosen, shown before it is made.
    limits.open ||= agent.checked;
    for (const one of may.querySelectorAll("input")) one.checked = agent.checked && ["retry", "fail"].includes(one.value);
    decisions.value = agent.checked ? 20 : "";
    for (const one of scopes.querySelectorAll("input")) {
      if (one.value === "decide") one.checked = agent.checked;
      // Whoever makes tokens has no guard rails, and a worker decides nothing.
      if (["admin", "worker"].includes(one.value)) {
        one.disabled = agent.checked;
        one.checked &&= !agent.checked;
      }
    }
  });
  const form = make("form", { method: "dialog" }, make("h2", { textContent: "New token", id: "token-title" }), user, forAgent, scopes, field("Valid for", choose), limits, field("Note (optional)", make("input", { name: "note", maxLength: 1000, autocomplete: "off" })), problem, make("div", { className: "buttons" }, confirm, cancel));
  const dialog = make("dialog", { className: "action" }, form);
  dialog.setAttribute("aria-labelledby", "token-title");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    problem.textContent = "";
    const given = form.elements;
    const body = { [agent.checked ? "agent" : "user"]: name.value.trim(), scopes: [...form.querySelectorAll("[name=scope]:checked")].map((one) => one.value), note: given.note.value.trim() };
    if (choose.value !== "") body.expires_in_seconds = Number(choose.value);
    if (workflows.value.trim()) body.workflows = workflows.value.split(",").map((one) => one.trim()).filter(Boolean);
    if (decisions.value !== "") body.decisions_per_hour = Number(decisions.value);
    if (confidence.value !== "") body.min_confidence = Number(confidence.value);
    const verdict = [...may.querySelectorAll(":checked")].map((one) => one.value);
    if (verdict.length) body.verdicts = verdict;
    if (everywhere.checked) body.all_projects = true;
    else if (where.value.trim()) body.project = where.value.trim();
    try {
      const made = await send("POST", "tokens", body);
      showSecret(dialog, made);
      refresh();
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
      confirm.disabled = false;
    }
  });
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => (dialog.remove(), button.focus()));
  document.body.append(dialog);
  dialog.showModal();
}

function showSecret(dialog, { token, secret }) {
  const copy = make("button", { type: "button", textContent: "Copy", className: "primary" });
  copy.dataset.copy = secret;
  const done = make("button", { type: "button", textContent: "I have kept it" });
  done.addEventListener("click", () => dialog.close());
  // Escape must not lose it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.replaceChildren(
    make("h2", { textContent: `The token of ${token.user}`, id: "token-title" }),
    make("p", { textContent: "Keep it now: it is shown here once, and nobody can read it again.", className: "sentence" }),
    make("div", { className: "secret" }, make("code", { textContent: secret }), copy),
    make("div", { className: "buttons" }, done),
  );
  copy.focus();
}

let number = 0;

function field(label, input, hint = "") {
  input.id ||= `token-field-${++number}`;
  return make("p", { className: "field" }, make("label", { textContent: label, htmlFor: input.id }), input, hint && make("small", { textContent: hint }));
}
