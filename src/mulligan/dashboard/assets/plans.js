// What a dry run says would happen, in words. Each function gives lines of text or elements for the dialog of an action.

const NAMES_MAX = 12;

/** What would follow, for every kind of change; of a step's retry it is one level below. */
export function describePlan(plan) {
  if (plan?.change) return describeChange(plan.change);
  if (plan?.round?.steps) return describeRound(plan.round);
  if (plan?.follows) return describeChange({ starts: [], stops: [], still_running: [], ...plan });
  if (plan?.steps && plan.kept) return plan.round ? describeRound(plan) : describeFork(plan);
  const lines = [];
  for (const [key, value] of Object.entries(plan?.plan ?? plan ?? {})) {
    if (Array.isArray(value) && value.every((one) => typeof one === "string")) lines.push(...named(capital(key.replaceAll("_", " ")), value));
  }
  return lines.length ? lines : ["nothing else would change"];
}

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
  parts.push(...describeEffects(plan.side_effects), ...describeReasons(plan));
  for (const [name, words] of Object.entries(plan.adjustments ?? {})) parts.push(...named(`More for ${name}`, words));
  parts.push(...named("Kept", plan.kept));
  parts.push(...describeChildren(plan.children));
  if (plan.root_run_id) parts.push(sentence(`Run ${plan.root_run_id}, at the top, gets another round too.`));
  parts.push(...describeStale(plan.stale), ...describeCorrection(plan.correction));
  return plan.steps.length ? parts : ["No step would run."];
}

/** What a fork would run and keep. */
export function describeFork(plan) {
  return [
    sentence("The new run would run ", count(plan.steps.length, "step"), ` and keep the results of ${plan.kept.length.toLocaleString()}.`),
    ...describeEffects(plan.side_effects),
    ...describeReasons(plan),
    ...named("Kept", plan.kept),
    ...named("Kept, although the other version changes them", plan.changed),
    ...named("Not in the other version any more", plan.dropped),
    ...describeStale(plan.stale),
  ];
}

/** The steps that would run once more and change something outside of the run each time. */
function describeEffects(effects) {
  return named("Would do once more", Object.entries(effects ?? {}).map(([name, effect]) => `${name}: ${effect}`));
}

/** The steps that would run, by the reason why. */
function describeReasons(plan) {
  const groups = new Map();
  for (const name of plan.steps) {
    const why = plan.why?.[name] ?? "would run";
    if (!groups.has(why)) groups.set(why, []);
    groups.get(why).push(itemsOf(plan, name));
  }
  return [...groups].flatMap(([why, names]) => named(capital(why), names));
}

function itemsOf(plan, name) {
  const items = plan.items?.[name];
  return items?.length ? `${name} (${count(items.length, "item")})` : name;
}

function describeChildren(children) {
  const lines = (children ?? []).map((one) => [one, `${one.name || one.place}: run ${one.run_id}`]);
  return [
    ...named("Child runs that continue, if their inputs are the same", lines.filter(([one]) => !one.why_new).map(([one, text]) => `${text}, round ${one.round}`)),
    ...named("Child runs that start anew", lines.filter(([one]) => one.why_new).map(([one, text]) => `${text} (${one.why_new})`)),
  ];
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
