// The actions on a run: pause, resume, cancel, retry, fork. Each asks with dry_run first, and says in words what would
// happen. A button has `data-run-action`: {"kind": "retry", "run_id": 7, "workflow": "nightly", "step": "load"}.
import { get, segment } from "./api.js";
import { confirmAction } from "./actions.js";
import { refresh } from "./dashboard.js";
import { say, sayError } from "./notes.js";

const NAMES_MAX = 12;

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-run-action]");
  if (button) openRunAction(JSON.parse(button.dataset.runAction), button);
});

/** Open the dialog of an action on a run, and follow what comes of it. */
export async function openRunAction(asked, opener = null) {
  let answer;
  try {
    const { action, describe, shape } = await ACTIONS[asked.kind](asked);
    answer = await confirmAction(action, describe, shape);
    opener?.focus();
    if (answer === undefined) return;
    say(action.done(answer), { tone: "good" });
  } catch (error) {
    return sayError(error);
  }
  if (answer.fork_run_id) location.assign(`/runs/${segment(answer.fork_run_id)}`);
  else refresh();
}

const ACTIONS = { pause, resume, cancel, retry, fork };

function pause({ run_id: run, step }) {
  const what = step ? `step ${step} of run ${run}` : `run ${run}`;
  return {
    action: {
      path: `runs/${run}:pause`,
      title: `Pause ${what}`,
      text: "Nothing new starts until it is resumed. What runs now may finish.",
      body: step ? { step } : {},
      reason: "optional",
      preview: true,
      label: "Pause",
      done: () => `${what} is paused`,
    },
    describe: describeChange,
  };
}

function resume({ run_id: run, step }) {
  const what = step ? `step ${step} of run ${run}` : `run ${run}`;
  return {
    action: {
      path: `runs/${run}:resume`,
      title: `Resume ${what}`,
      body: step ? { step } : {},
      reason: "optional",
      preview: true,
      label: "Resume",
      done: () => `${what} goes on`,
    },
    describe: describeChange,
  };
}

function cancel({ run_id: run }) {
  return {
    action: {
      path: `runs/${run}:cancel`,
      title: `Cancel run ${run}`,
      text: "Running attempts are asked to stop. Cleanup, undo and the end step still run.",
      reason: "optional",
      preview: true,
      danger: true,
      label: "Cancel the run",
      fields: [{ name: "now", type: "checkbox", label: "Skip cleanup and undo" }],
      done: () => `run ${run} is being cancelled`,
    },
    describe: describeChange,
  };
}

async function retry({ run_id: run, workflow, step }) {
  const [names, versions] = await Promise.all([stepNames(run), publishedVersions(workflow)]);
  return {
    action: {
      path: `runs/${run}:retry`,
      title: step ? `Retry run ${run} from ${step}` : `Retry run ${run}`,
      reason: "optional",
      preview: true,
      label: "Retry",
      fields: [
        stepField("Begin with", names, step ?? "", "what did not complete"),
        { name: "adjust", type: "checkbox", label: "Give more memory and time to steps that ran out of them" },
        ...versionFields(versions, "the definition it has"),
      ],
      done: (answer) => `round ${answer.round} of run ${run} has begun`,
    },
    describe: describeRound,
    shape: ({ from_step, adjust, version, ...rest }) => ({
      ...rest,
      ...(from_step ? { from_step } : {}),
      ...(adjust ? { adjust } : {}),
      ...(version ? { version: Number(version) } : {}),
    }),
  };
}

async function fork({ run_id: run, workflow, step }) {
  const [names, versions, head] = await Promise.all([stepNames(run), publishedVersions(workflow), get(`runs/${run}`)]);
  const first = step ?? head.failures.find((one) => !one.handled && !one.allowed)?.step ?? names[0] ?? "";
  const before = Object.entries(head.inputs);
  const isText = new Map(before.map(([name, value]) => [name, typeof value === "string"]));
  return {
    action: {
      path: `runs/${run}:fork`,
      title: `Fork run ${run}`,
      text: "A new run keeps the results before a step and runs the rest, with other inputs or another version if you like.",
      preview: true,
      label: "Start the fork",
      fields: [
        { ...stepField("From step", names, first), required: true },
        ...before.map(([name, value]) => ({
          name: `input ${name}`,
          label: name,
          type: typeof value === "string" && value.includes("\n") ? "textarea" : "text",
          value: typeof value === "string" ? value : JSON.stringify(value),
          hint: typeof value === "string" ? "" : "as JSON",
        })),
        ...versionFields(versions, "the definition it has"),
      ],
      done: (answer) => `run ${answer.fork_run_id} has begun`,
    },
    describe: describeFork,
    shape: ({ from_step, version, dry_run, ...rest }) => {
      const inputs = {};
      for (const [name, value] of before) {
        const given = readInput(rest[`input ${name}`] ?? "", isText.get(name), name);
        if (JSON.stringify(given) !== JSON.stringify(value)) inputs[name] = given;
      }
      return {
        from_step: from_step ?? "",
        ...(Object.keys(inputs).length ? { inputs } : {}),
        ...(version ? { version: Number(version) } : {}),
        ...(dry_run ? { dry_run } : {}),
      };
    },
  };
}

function readInput(text, isText, name) {
  if (isText) return text;
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`the input '${name}' is not JSON`);
  }
}

// A run may have a hundred thousand steps: a list to choose from has the first ones, and any name can be typed.
const LISTED_MAX = 1000;

async function stepNames(run) {
  const page = await get(`runs/${run}/steps?limit=${LISTED_MAX}`);
  return page.steps.map((one) => one.name);
}

function stepField(label, names, value, empty = "") {
  if (names.length <= 60) {
    const options = names.map((name) => ({ value: name, label: name }));
    return { name: "from_step", label, value, options: empty ? [{ value: "", label: empty }, ...options] : options };
  }
  return { name: "from_step", label, value, suggestions: names, hint: empty ? `empty: ${empty}` : "" };
}

async function publishedVersions(workflow) {
  try {
    return (await get(`workflows/${segment(workflow)}/versions?limit=20`)).workflows;
  } catch {
    // It was started from a file, or its reader may not see it.
    return [];
  }
}

function versionFields(versions, same) {
  if (!versions?.length) return [];
  const options = versions.map((one) => ({
    value: String(one.version),
    label: `version ${one.version}${one.note ? `: ${one.note}` : ""}`,
  }));
  return [{ name: "version", label: "Definition", value: "", options: [{ value: "", label: same }, ...options] }];
}

// -- what a dry run says, in words -----------------------------------------------------------------------------------

/** What follows from a change of a run: pause, resume, cancel, an answer to an approval. */
export function describeChange(plan) {
  const parts = [];
  for (const line of plan.follows.slice(0, NAMES_MAX)) parts.push(line);
  if (plan.follows.length > NAMES_MAX) parts.push(`and ${count(plan.follows.length - NAMES_MAX, "more change")}`);
  parts.push(...named("Would start now", plan.starts));
  parts.push(...named("Would be asked to stop", plan.stops));
  parts.push(...named("Runs on and may finish", plan.still_running.filter((one) => !plan.stops.includes(one))));
  if (plan.left_out) parts.push(`${plan.left_out.toLocaleString()} more are not listed`);
  return parts.length ? parts : ["Nothing runs at the moment; nothing else would change."];
}

/** What another round of a run would run, and why. */
export function describeRound(plan) {
  const parts = [sentence(`Round ${plan.round} would run `, count(plan.steps.length, "step"), ` and keep the results of ${plan.kept.length.toLocaleString()}.`)];
  const groups = new Map();
  for (const name of plan.steps) {
    const why = plan.why[name] ?? "runs again";
    if (!groups.has(why)) groups.set(why, []);
    groups.get(why).push(itemsOf(plan, name));
  }
  for (const [why, names] of groups) parts.push(...named(capital(why), names));
  for (const [name, words] of Object.entries(plan.adjustments ?? {})) parts.push(...named(`More for ${name}`, words));
  parts.push(...named("Kept", plan.kept));
  parts.push(...describeStale(plan.stale), ...describeCorrection(plan.correction));
  return plan.steps.length ? parts : ["No step would run."];
}

/** What a fork would run and keep. */
export function describeFork(plan) {
  return [
    sentence("The new run would run ", count(plan.steps.length, "step"), ` and keep the results of ${plan.kept.length.toLocaleString()}.`),
    ...named("Would run", plan.steps),
    ...named("Kept", plan.kept),
    ...named("Kept, although the other version changes them", plan.changed),
    ...named("Not in the other version any more", plan.dropped),
    ...describeStale(plan.stale),
  ];
}

function itemsOf(plan, name) {
  const items = plan.items?.[name];
  return items?.length ? `${name} (${count(items.length, "item")})` : name;
}

function describeStale(stale) {
  return named("Run because their files are gone or have changed", (stale ?? []).map((one) => `${one.step}: ${one.path ?? one.file ?? ""}`));
}

function describeCorrection(correction) {
  if (!correction) return [];
  if (correction.is_same) return ["This version is what the run has already."];
  return [
    ...named("New steps", correction.added),
    ...named("Removed steps", correction.removed),
    ...named("Changed steps", Object.entries(correction.changed).map(([name, keys]) => `${name} (${keys.join(", ")})`)),
    ...named("Changed, but their results are kept", correction.kept),
    ...named("Nothing undoes these any more", correction.lost_undos),
  ];
}

/** A title with names behind it: the first ones, and all of them when it is opened. Nothing if there are none. */
function named(title, names) {
  if (!names?.length) return [];
  const row = make("div", { className: "plan-row" }, make("span", { className: "plan-title", textContent: title }));
  const list = make("span", { className: "plan-names" });
  const show = (some) => list.replaceChildren(...some.map((name) => make("code", { textContent: name })));
  show(names.slice(0, NAMES_MAX));
  if (names.length > NAMES_MAX) {
    const more = make("button", { type: "button", className: "quiet", textContent: `and ${(names.length - NAMES_MAX).toLocaleString()} more` });
    more.addEventListener("click", () => show(names.slice(0, 500)));
    list.append(more);
  }
  row.append(list);
  return [row];
}

function sentence(...parts) {
  return make("p", { className: "plan-sentence", textContent: parts.join("") });
}

const count = (number, what) => `${number.toLocaleString()} ${what}${number === 1 ? "" : "s"}`;
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function make(name, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside);
  return made;
}
