// The actions on a run: pause, resume, cancel, retry, fork. Each asks with dry_run first, and says in words what would
// happen. A button has `data-run-action`: {"kind": "retry", "run_id": 7, "workflow": "nightly", "step": "load"}.
import { get, segment } from "./api.js";
import { confirmAction } from "./actions.js";
import { refresh } from "./dashboard.js";
import { say, sayError } from "./notes.js";
import { describeChange, describeFork, describeRound } from "./plans.js";

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

const KEEP_COMPLETED = {
  name: "keep_completed",
  type: "checkbox",
  label: "Keep completed steps, even if a step that they depend on runs again",
};

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

async function retry({ run_id: run, workflow, step, writes }) {
  const [names, versions, head] = await Promise.all([stepNames(run), publishedVersions(workflow), get(`runs/${run}`)]);
  const definition = await definitionFields(workflow, versions, head, writes);
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
        KEEP_COMPLETED,
        { name: "from_start", type: "checkbox", label: "Start child runs that did not complete anew, instead of continuing them" },
        { name: "force", type: "checkbox", label: "Run steps again whose undo has failed" },
        ...definition,
      ],
      done: (answer) => `round ${answer.round} of run ${run} has begun`,
    },
    describe: describeRound,
    shape: ({ from_step, adjust, keep_completed, from_start, force, version, text, ...rest }) => ({
      ...rest,
      ...(from_step ? { from_step } : {}),
      ...(adjust ? { adjust } : {}),
      ...(keep_completed ? { keep_completed } : {}),
      ...(from_start ? { from_start } : {}),
      ...(force ? { force } : {}),
      ...readDefinition(version, text),
    }),
  };
}

async function fork({ run_id: run, workflow, step, writes }) {
  const [names, versions, head] = await Promise.all([stepNames(run), publishedVersions(workflow), get(`runs/${run}`)]);
  const definition = await definitionFields(workflow, versions, head, writes);
  const first = step ?? head.failures.find((one) => !one.handled && !one.allowed)?.step ?? names[0] ?? "";
  const before = Object.entries(head.inputs);
  const isText = new Map(before.map(([name, value]) => [name, typeof value === "string"]));
  return {
    action: {
      path: `runs/${run}:fork`,
      title: `Fork run ${run}`,
      text: "A new run keeps the results before a step and runs the rest, with other inputs or another definition if you like.",
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
        KEEP_COMPLETED,
        ...definition,
      ],
      done: (answer) => `run ${answer.fork_run_id} has begun`,
    },
    describe: describeFork,
    shape: ({ from_step, keep_completed, version, text, dry_run, ...rest }) => {
      const inputs = {};
      for (const [name, value] of before) {
        const given = readInput(rest[`input ${name}`] ?? "", isText.get(name), name);
        if (JSON.stringify(given) !== JSON.stringify(value)) inputs[name] = given;
      }
      return {
        from_step: from_step ?? "",
        ...(Object.keys(inputs).length ? { inputs } : {}),
        ...(keep_completed ? { keep_completed } : {}),
        ...readDefinition(version, text),
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

/** Which definition to go on with: the one that the run has, a published version, or an edited text. */
async function definitionFields(workflow, versions, head, writes) {
  if (!versions.length && !writes) return [];
  const options = [{ value: "", label: "the definition it has" }];
  for (const one of versions) options.push({ value: String(one.version), label: `version ${one.version}${one.note ? `: ${one.note}` : ""}` });
  if (writes) options.push({ value: TEXT, label: "an edited text" });
  const fields = [{ name: "version", label: "Definition", value: "", options }];
  if (writes) {
    const value = await textOf(workflow, head.labels?.[VERSION_LABEL] ?? versions[0]?.version);
    const hint = value ? "" : "It was started from a file, which the server does not have: paste the whole corrected text.";
    fields.push({ name: "text", label: "Text", type: "textarea", rows: 18, value, hint, if: ["version", TEXT] });
  }
  return fields;
}

const TEXT = "text";
// The label of a run of a published workflow.
const VERSION_LABEL = "version";

/** The published text of a version; "" if there is none. */
async function textOf(workflow, version) {
  if (version === undefined) return "";
  try {
    return (await get(`workflows/${segment(workflow)}?version=${segment(version)}`)).text ?? "";
  } catch {
    return "";
  }
}

function readDefinition(version, text) {
  if (version === TEXT) return { text: text ?? "" };
  return version ? { version: Number(version) } : {};
}
