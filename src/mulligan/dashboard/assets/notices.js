// The rules for all workflows, edited as JSON.
import { send } from "./api.js";
import { refresh } from "./dashboard.js";
import { say } from "./notes.js";

const button = document.getElementById("edit-rules");
button?.addEventListener("click", () => openEditor(button.dataset.rules, button.dataset.revision));

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
};

function openEditor(rules, revision) {
  const text = make("textarea", { id: "rules-text", rows: 14, value: JSON.stringify(JSON.parse(rules), null, 2), className: "mono", spellcheck: false });
  const problem = make("p", { className: "problem" });
  problem.setAttribute("role", "alert");
  const confirm = make("button", { type: "submit", className: "primary", textContent: "Save" });
  const cancel = make("button", { type: "button", className: "quiet", textContent: "Back" });
  const example = '[{"on": ["failed", "needs_person"], "to": ["ops"]}]';
  const form = make("form", { method: "dialog" }, make("h2", { textContent: "Rules for all workflows", id: "rules-title" }), make("p", { className: "field" }, make("label", { htmlFor: text.id, textContent: "As JSON" }), text, make("small", { textContent: `such as ${example}; the targets are in the configuration of the server` })), problem, make("div", { className: "buttons" }, confirm, cancel));
  const dialog = make("dialog", { className: "action" }, form);
  dialog.setAttribute("aria-labelledby", "rules-title");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    let given;
    try {
      given = JSON.parse(text.value);
    } catch (error) {
      problem.textContent = `this is not JSON: ${error.message}`;
      return;
    }
    try {
      await send("PUT", "hooks", { rules: given }, { headers: { "if-match": `"${revision}"` } });
      dialog.close();
      say("the rules count for runs that start from now on", { tone: "good" });
      refresh();
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
    }
  });
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => (dialog.remove(), button.focus()));
  document.body.append(dialog);
  dialog.showModal();
}
