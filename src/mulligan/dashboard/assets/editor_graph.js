// The graph beside the text: a node leads to its line and back; steps are connected by dragging or by a dialog.

const NEW = "\0new";
const DRAG_PIXELS = 6;
const SVG = "http://www.w3.org/2000/svg";

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter(Boolean));
  return made;
};

/** What a step can do, and the field that says it. */
const ACTIONS = {
  shell: { label: "Shell command", hint: "make test", keys: (text) => ({ shell: text }) },
  http: { label: "HTTP request", hint: "https://example.com/health", keys: (text) => ({ http: { url: text } }) },
  python: { label: "Python function", hint: "package.module:function", keys: (text) => ({ python: { call: text } }) },
  agent: { label: "Prompt for an agent", hint: "Fix the failing tests.", keys: (text) => ({ agent: text }) },
  approve: { label: "Approval by a person", hint: "Deploy to production?", keys: (text) => ({ approve: text }) },
  wait: { label: "Wait", hint: "10m", keys: (text) => ({ wait: text }) },
};

/** What becomes of a failed step without another step. */
const RETRY = "retry";

/** How two steps are connected, in words. */
const KINDS = {
  needs: { text: (a, b) => `${b} waits until ${a} has completed`, edge: { kind: "needs" } },
  success: { text: (a, b) => `when ${a} succeeds, go to ${b}`, edge: {} },
  rerun: { text: (a, b) => `when ${a} fails, run ${b}, then rerun ${a}`, edge: { on: "failure", then: "rerun" }, isFailure: true },
  continue: { text: (a, b) => `when ${a} fails, run ${b}, then continue behind ${a}`, edge: { on: "failure", then: "continue" }, isFailure: true },
  failure: { text: (a, b) => `when ${a} fails, go to ${b}`, edge: { on: "failure" }, isFailure: true },
  always: { text: (a, b) => `whatever becomes of ${a}, go to ${b}`, edge: { on: "always" } },
};

/** Shows the drawing that the server made. `goTo(line)` moves the cursor; `edit(change)` changes the text. */
export class GraphPane {
  constructor({ figure, note, stepBar, isReadOnly, goTo, edit }) {
    Object.assign(this, { figure, note, stepBar, isReadOnly, goTo, edit });
    this.steps = [];
    this.svg = null;
    this.current = "";
    figure.addEventListener("pointerdown", (event) => this.#press(event));
    figure.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show a drawing. Without one the last stays, marked as old. */
  show(graph, count) {
    this.figure.classList.toggle("old", !graph);
    if (!graph) {
      this.note.textContent = this.svg ? "The graph is that of the last text without an error." : "The graph appears when the text has no error.";
      return;
    }
    this.steps = graph.steps;
    this.note.textContent = graph.svg ? (this.isReadOnly ? "" : "Click a step to go to its line. Drag from one step to another to connect them.") : `${count.toLocaleString()} steps are too many to draw.`;
    if (!graph.svg) {
      this.svg = null;
      return this.figure.replaceChildren();
    }
    const parsed = new DOMParser().parseFromString(graph.svg, "image/svg+xml").documentElement;
    this.svg = document.adoptNode(parsed);
    // A picture whose parts are buttons is a group.
    this.svg.setAttribute("role", "group");
    for (const node of this.#nodes()) {
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
    }
    const { scrollLeft, scrollTop } = this.figure;
    this.figure.replaceChildren(this.svg);
    Object.assign(this.figure, { scrollLeft, scrollTop });
    this.current = "";
  }

  /** Mark the step in whose lines the cursor is. */
  showLine(line) {
    const step = this.steps.filter((one) => one.line <= line).at(-1) ?? null;
    const node = step && this.#nodes().find((one) => Number(one.dataset.line) === step.line);
    for (const one of this.#nodes()) one.classList.toggle("here", one === node);
    const name = node?.dataset.step ?? step?.name ?? "";
    if (name !== this.current) {
      this.current = name;
      if (node && !this.figure.contains(document.activeElement)) this.#reveal(node);
      this.#showBar(name);
    }
  }

  #reveal(node) {
    const box = node.getBoundingClientRect();
    const around = this.figure.getBoundingClientRect();
    if (box.top < around.top || box.bottom > around.bottom) this.figure.scrollTop += box.top - around.top - around.height / 2 + box.height / 2;
    if (box.left < around.left || box.right > around.right) this.figure.scrollLeft += box.left - around.left - around.width / 2 + box.width / 2;
  }

  #showBar(name) {
    const parts = [make("b", { textContent: name })];
    if (name && name !== "end" && !this.isReadOnly) {
      const onFailure = make("button", { type: "button", textContent: "On failure…", className: "small" });
      onFailure.addEventListener("click", () => this.onFailure(name));
      const then = make("button", { type: "button", textContent: "Then…", className: "small" });
      then.addEventListener("click", () => this.connect(name, "", "needs"));
      parts.push(onFailure, then);
    }
    this.stepBar.replaceChildren(...(name ? parts : []));
  }

  #nodes() {
    return [...(this.svg?.querySelectorAll("g.node") ?? [])];
  }

  #names() {
    return this.steps.map((one) => one.name).filter((name) => name !== "end");
  }

  #key(event) {
    const node = event.target.closest?.("g.node");
    if (!node || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    this.#open(node);
  }

  #open(node) {
    if (node.dataset.line) this.goTo(Number(node.dataset.line));
  }

  // -- dragging ------------------------------------------------------------------------------------------------------

  #press(event) {
    const node = event.target.closest?.("g.node");
    if (!node || event.button !== 0) return;
    const start = this.#point(event);
    let wire = null;
    let over = null;
    const find = (moved) => document.elementFromPoint(moved.clientX, moved.clientY)?.closest?.("g.node") ?? null;
    const move = (moved) => {
      const at = this.#point(moved);
      if (!wire && !this.isReadOnly && Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) > DRAG_PIXELS) {
        wire = document.createElementNS(SVG, "path");
        wire.setAttribute("class", "wire");
        this.svg.append(wire);
        this.figure.classList.add("dragging");
      }
      if (!wire) return;
      wire.setAttribute("d", `M${start.x} ${start.y}L${at.x} ${at.y}`);
      over?.classList.remove("target");
      over = find(moved);
      if (over === node) over = null;
      over?.classList.add("target");
    };
    const end = (ended) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      this.figure.classList.remove("dragging");
      over?.classList.remove("target");
      wire?.remove();
      if (!wire) this.#open(node);
      else if (over && ended.type === "pointerup") this.connect(node.dataset.step, over.dataset.step);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
    event.preventDefault();
  }

  #point(event) {
    const matrix = this.svg.getScreenCTM().inverse();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
  }

  // -- dialogs -------------------------------------------------------------------------------------------------------

  /** Ask how two steps are connected, and write it into the text. */
  connect(source = "", target = "", kind = "") {
    const names = this.#names();
    if (!names.length) return void this.addStep();
    const from = select("Step", "from", names, source || this.current);
    const kinds = Object.entries(KINDS).map(([name, about]) => ({ name, ...about }));
    this.#askHow("Connect steps", from, kinds, kind || "needs", target);
  }

  /** Ask what happens when a step fails: it runs again, or another step runs. */
  onFailure(name) {
    const again = { name: RETRY, text: (step) => `run ${step} again`, isFailure: true };
    const kinds = Object.entries(KINDS).filter(([, about]) => about.isFailure).map(([kind, about]) => ({ name: kind, ...about }));
    this.#askHow(`When ${name} fails`, { input: { value: name }, row: null }, [again, ...kinds], RETRY, "");
  }

  #askHow(title, from, kinds, kind, target) {
    const to = select("Leads to", "to", [...this.#names(), "end", { value: NEW, label: "a new step" }], target || NEW);
    const step = newStepFields("remedy");
    const retries = field("Up to how many times", make("input", { name: "retries", type: "number", min: 1, max: 1000, value: 2 }));
    const delay = field("Wait before that", make("input", { name: "delay", placeholder: "10s, 5m", value: "10s", autocomplete: "off" }));
    const codes = field("Only for these exit codes or failure codes (optional)", make("input", { name: "codes", placeholder: "75, 10-19, or TIMEOUT", autocomplete: "off", spellcheck: false }));
    const choice = make("fieldset", { className: "kinds" }, make("legend", { textContent: "What happens" }));
    const radios = kinds.map((about) => {
      const input = make("input", { type: "radio", name: "kind", value: about.name, id: `kind-${about.name}`, checked: about.name === kind });
      const label = make("label", { htmlFor: input.id });
      choice.append(make("p", { className: "field check" }, input, label));
      return { about, input, label };
    });
    const chosen = () => radios.find((one) => one.input.checked);
    const show = () => {
      const isRetry = chosen().about.name === RETRY;
      const isNew = !isRetry && to.input.value === NEW;
      to.row.hidden = isRetry;
      retries.row.hidden = delay.row.hidden = !isRetry;
      step.show(isNew);
      const target = to.input.value === NEW ? step.name() || "the new step" : to.input.value;
      for (const one of radios) {
        one.label.textContent = one.about.text(from.input.value, target);
        one.input.disabled = target === "end" && one.about.name === "needs";
      }
      if (chosen()?.input.disabled) radios.find((one) => one.about.name === "success").input.checked = true;
      codes.row.hidden = !chosen().about.isFailure;
    };
    const rows = [from.row, choice, to.row, ...step.rows, retries.row, delay.row, codes.row].filter(Boolean);
    ask(title, "Write it into the text", rows, show, () => {
      const { about } = chosen();
      const filter = about.isFailure ? readCodes(codes.input.value) : {};
      if (about.name === RETRY) {
        return this.edit({ add_rule: { step: from.input.value, max_retries: Number(retries.input.value), delay: delay.input.value.trim(), ...filter } });
      }
      const isNew = to.input.value === NEW;
      const edge = { source: from.input.value, target: isNew ? step.name() : to.input.value, ...about.edge, ...filter };
      return this.edit({ ...(isNew ? { add_step: { ...step.value(), after: from.input.value } } : {}), add_edge: edge });
    });
  }

  /** Ask for a new step, and write it into the text. */
  addStep() {
    const step = newStepFields("step");
    const after = select("Place in the text", "after", [{ value: "", label: "at the end" }, ...this.#names().map((name) => ({ value: name, label: `behind ${name}` }))], this.#names().includes(this.current) ? this.current : "");
    const needs = make("input", { type: "checkbox", id: "waits", checked: true });
    const waits = make("p", { className: "field check" }, needs, make("label", { htmlFor: "waits" }));
    const alone = make("p", { className: "note", textContent: "It waits for no other step." });
    const show = () => {
      step.show(true);
      waits.hidden = !after.input.value;
      alone.hidden = Boolean(after.input.value && needs.checked);
      waits.lastChild.textContent = `it waits until ${after.input.value} has completed`;
    };
    ask("Add a step", "Write it into the text", [...step.rows, after.row, waits, alone], show, async () => {
      const given = step.value();
      if (after.input.value && needs.checked) given.set.needs = [after.input.value];
      await this.edit({ add_step: { ...given, after: after.input.value } });
    });
  }
}

/** What somebody typed: numbers and ranges are exit codes, words are failure codes. */
function readCodes(text) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  const numbers = words.filter((word) => /^[<>=\d]/.test(word)).map((word) => (/^\d+$/.test(word) ? Number(word) : word));
  const names = words.filter((word) => !/^[<>=\d]/.test(word)).map((word) => word.toUpperCase());
  const codes = numbers.length ? names.filter((name) => name !== "EXIT_NONZERO") : names;
  return { ...(codes.length ? { codes } : {}), ...(numbers.length ? { exit_codes: numbers } : {}) };
}

let fieldNumber = 0;

function field(title, input) {
  input.id = `graph-field-${++fieldNumber}`;
  return { input, row: make("div", { className: "field" }, make("label", { textContent: title, htmlFor: input.id }), input) };
}

function select(title, name, options, value) {
  const input = make("select", { name });
  for (const one of options) input.append(make("option", { value: one.value ?? one, textContent: one.label ?? one }));
  if ([...input.options].some((one) => one.value === value)) input.value = value;
  return field(title, input);
}

function newStepFields(name) {
  const named = field("Name of the new step", make("input", { name, autocomplete: "off", spellcheck: false }));
  const kind = select("It is", "action", Object.entries(ACTIONS).map(([value, { label }]) => ({ value, label })), "shell");
  const text = field("What it does", make("textarea", { name: "text", rows: 2, className: "mono", spellcheck: false }));
  const rows = [named.row, kind.row, text.row];
  return {
    rows,
    name: () => named.input.value.trim(),
    show: (isShown) => {
      for (const row of rows) row.hidden = !isShown;
      named.input.required = text.input.required = isShown;
      text.input.placeholder = ACTIONS[kind.input.value].hint;
    },
    value: () => {
      const written = text.input.value.replace(/\s+$/, "");
      return { step: named.input.value.trim(), set: ACTIONS[kind.input.value].keys(written.includes("\n") ? `${written}\n` : written) };
    },
  };
}

/** A dialog with fields. `act` throws what the server refused; the dialog shows it and stays. */
function ask(title, label, rows, show, act) {
  const problem = make("p", { className: "problem" });
  problem.setAttribute("role", "alert");
  const submit = make("button", { type: "submit", className: "primary", textContent: label });
  const back = make("button", { type: "button", className: "quiet", textContent: "Back" });
  const form = make("form", { method: "dialog" }, make("h2", { textContent: title, id: "graph-dialog" }), ...rows, problem, make("div", { className: "buttons" }, submit, back));
  const dialog = make("dialog", { className: "action" }, form);
  dialog.setAttribute("aria-labelledby", "graph-dialog");
  form.addEventListener("input", show);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    submit.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
    } finally {
      submit.disabled = false;
    }
  });
  back.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  show();
  dialog.showModal();
}
