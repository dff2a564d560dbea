// The list of runs: filters that apply at once, views saved in this browser, and changes to many runs.
import { send, segment } from "./api.js";
import { refresh } from "./dashboard.js";
import { say } from "./notes.js";

const main = document.getElementById("main");
const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter(Boolean));
  return made;
};

// -- filters ---------------------------------------------------------------------------------------------------------

const form = document.getElementById("filters");

/** The address without the fields of the form that are empty. */
function apply() {
  const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
  location.assign(given.size ? `/runs?${given}` : "/runs");
}

form.addEventListener("submit", (event) => (event.preventDefault(), apply()));
form.addEventListener("change", apply);
// On a narrow screen the runs come first.
document.getElementById("more-filters").addEventListener("click", ({ currentTarget }) => {
  const isOpen = form.classList.toggle("all");
  currentTarget.setAttribute("aria-expanded", String(isOpen));
  currentTarget.textContent = isOpen ? "Fewer filters" : "More filters";
});

// -- saved views -----------------------------------------------------------------------------------------------------

const STORED = "mulligan.views";
const views = document.getElementById("views");

function savedViews() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.name === "string" && typeof one?.query === "string") : [];
  } catch {
    return [];
  }
}

function store(saved) {
  try {
    localStorage.setItem(STORED, JSON.stringify(saved));
  } catch {
    say("this browser keeps nothing for this page", { tone: "bad", hint: "bookmark the address instead" });
  }
  showViews();
}

/** The filters of an address, without the page, so that two that filter alike are equal. */
function filtersOf(address) {
  const query = new URLSearchParams(new URL(address, location.href).search);
  query.delete("before");
  query.sort();
  return query.toString();
}

function showViews() {
  for (const old of views.querySelectorAll(".saved")) old.remove();
  const button = document.getElementById("save-view");
  for (const { name, query } of savedViews()) {
    const link = make("a", { className: "chip", href: `/runs?${query}`, textContent: name });
    const remove = make("button", { type: "button", className: "quiet", textContent: "×" });
    remove.setAttribute("aria-label", `Forget the view ${name}`);
    remove.addEventListener("click", () => (store(savedViews().filter((one) => one.name !== name)), document.getElementById("save-view").focus()));
    button.before(make("span", { className: "saved" }, link, remove));
  }
  const here = filtersOf(location.href);
  let isKnown = false;
  for (const link of views.querySelectorAll("a")) {
    const isHere = filtersOf(link.href) === here;
    isKnown ||= isHere;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  button.hidden = isKnown;
}

document.getElementById("save-view").addEventListener("click", () => {
  const name = make("input", { id: "view-name", required: true, maxLength: 60, autocomplete: "off" });
  const dialog = openDialog("Save this view", make("p", { className: "field" }, make("label", { htmlFor: "view-name", textContent: "Name" }), name, make("small", { textContent: "It is kept in this browser." })), "Save", async () => {
    const others = savedViews().filter((one) => one.name !== name.value.trim());
    store([...others, { name: name.value.trim(), query: filtersOf(location.href) }]);
    dialog.close();
  });
  name.focus();
});
addEventListener("storage", showViews);
showViews();

// -- many runs -------------------------------------------------------------------------------------------------------

const bulk = document.getElementById("bulk");
const VERBS = {
  cancel: { title: "Cancel", label: "Cancel the runs", danger: true, done: "is being cancelled", text: "Cleanup, undo and end steps still run. A run that has ended stays as it is." },
  retry: { title: "Retry", label: "Retry the runs", done: "runs again", text: "What did not complete runs again, in a new round. A run that has not failed stays as it is." },
};
// How many calls are under way at once.
const AT_ONCE = 4;

const boxes = () => [...main.querySelectorAll("input.select")];
const selected = () => boxes().filter((one) => one.checked);

function showSelected() {
  if (!bulk) return;
  const count = selected().length;
  bulk.hidden = !count;
  const compare = bulk.querySelector("[data-bulk=compare]");
  compare.hidden = count !== 2;
  document.getElementById("selected-count").textContent = count === 1 ? "1 run selected" : `${count} runs selected`;
  const all = document.getElementById("select-all");
  if (all) {
    all.checked = count > 0 && count === boxes().length;
    all.indeterminate = count > 0 && !all.checked;
  }
}

main.addEventListener("change", (event) => {
  if (event.target.id === "select-all") for (const one of boxes()) one.checked = event.target.checked;
  showSelected();
});
main.addEventListener("refreshed", showSelected);
bulk?.addEventListener("click", (event) => {
  const verb = event.target.closest("[data-bulk]")?.dataset.bulk;
  if (verb === "clear") {
    for (const one of boxes()) one.checked = false;
    showSelected();
  } else if (verb === "compare") {
    // The earlier one on the left.
    const [a, b] = selected().map((one) => Number(one.value)).sort((one, other) => one - other);
    location.assign(`/compare?a=${a}&b=${b}`);
  } else if (verb) changeMany(verb);
});

/** Ask for a reason, then change each selected run with a call of its own, and say what came of each. */
function changeMany(verb) {
  const { title, label, done, danger, text } = VERBS[verb];
  const runs = selected().map((one) => ({ id: one.value, workflow: one.dataset.workflow }));
  const reason = make("input", { id: "bulk-reason", autocomplete: "off" });
  const list = make("ul", { className: "results" });
  list.setAttribute("aria-live", "polite");
  const lines = new Map(runs.map(({ id, workflow }) => [id, make("span", { className: "status idle", textContent: "" })]));
  for (const { id, workflow } of runs) list.append(make("li", {}, make("span", { textContent: `${workflow} ${id}` }), lines.get(id)));
  const field = make("p", { className: "field" }, make("label", { htmlFor: "bulk-reason", textContent: "Reason (optional)" }), reason);
  const inside = make("div", {}, make("p", { className: "sentence", textContent: text }), field, list);
  const dialog = openDialog(`${title} ${runs.length === 1 ? "1 run" : `${runs.length} runs`}`, inside, label, async (confirm, back) => {
    field.hidden = true;
    back.disabled = true;
    const left = [...runs];
    let failed = 0;
    const work = async () => {
      for (let run = left.shift(); run; run = left.shift()) {
        const line = lines.get(run.id);
        line.className = "status now";
        line.textContent = "asking";
        try {
          await send("POST", `runs/${segment(run.id)}:${verb}`, reason.value.trim() ? { reason: reason.value.trim() } : {});
          line.className = "status good";
          line.textContent = done;
        } catch (error) {
          failed += 1;
          line.className = "status bad";
          line.textContent = [error.message, error.hint].filter(Boolean).join("; ");
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    confirm.hidden = true;
    back.disabled = false;
    back.textContent = "Close";
    back.focus();
    dialog.querySelector("h2").textContent = failed ? `${runs.length - failed} of ${runs.length} done` : "Done";
    for (const one of boxes()) one.checked = false;
    showSelected();
    refresh();
  }, danger);
}

/** A dialog with a title, a button that does something, and one that closes it. */
function openDialog(title, inside, label, act, danger = false) {
  const confirm = make("button", { type: "submit", className: danger ? "danger" : "primary", textContent: label });
  const back = make("button", { type: "button", className: "quiet", textContent: "Back" });
  const opener = document.activeElement;
  const form = make("form", { method: "dialog" }, make("h2", { id: "dialog-title", textContent: title }), inside, make("div", { className: "buttons" }, confirm, back));
  const dialog = make("dialog", {}, form);
  dialog.setAttribute("aria-labelledby", "dialog-title");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    await act(confirm, back);
    confirm.disabled = false;
  });
  back.addEventListener("click", () => dialog.close());
  dialog.addEventListener("cancel", (event) => back.disabled && event.preventDefault());
  dialog.addEventListener("close", () => (dialog.remove(), opener?.focus()));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

showSelected();
