// The dialog of a decision: what would follow, a reason, then the calls. It stands outside of the page's content, so that
// nothing that changes there closes it or takes what was typed.
import { segment, send } from "./api.js";
import { say } from "./notes.js";

const LISTED_MAX = 8;

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
};
const count = (number, noun) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;
const DECIDED = { retry: "decided to retry:", fail: "decided to let fail:", approve: "approved:" };
const nameOf = (one) => `run ${one.run_id}, ${one.name}`;

function titleOf(verdict, targets) {
  const approvals = targets.filter((one) => one.kind === "approval").length;
  const steps = targets.length - approvals;
  if (targets.length === 1) {
    const [one] = targets;
    const what = { retry: "Retry", approve: "Approve", fail: approvals ? "Refuse" : "Let fail:" }[verdict];
    return `${what} ${one.name} of run ${one.run_id}`;
  }
  if (verdict === "retry") return `Retry ${count(steps, "step")}`;
  if (verdict === "approve") return `Approve ${count(approvals, "step")}`;
  const parts = [steps && `let ${count(steps, "step")} fail`, approvals && `refuse ${count(approvals, "approval")}`];
  const text = parts.filter(Boolean).join(", ");
  return text[0].toUpperCase() + text.slice(1);
}

/** What follows from a decision, without the decision itself: that it is made is what the dialog is for. */
const withoutDecision = (follows, reason) => follows.filter((line) => !line.endsWith(`: ${reason}`));

/** Ask the interface about each target, for real or as a dry run. Gives for each what follows, or why it is refused. */
async function ask(verdict, targets, { reason, memory, timeout, dryRun }) {
  const parked = targets.filter((one) => one.kind === "parked");
  const found = new Map();
  // One decision about an attempt that is no longer the parked one is refused: somebody else was first.
  const decisions = parked.map((one) => ({
    run_id: one.run_id,
    step: one.step,
    verdict: verdict === "retry" ? "retry" : "fail",
    reason,
    attempt: one.attempt,
    ...(verdict === "retry" && memory ? { memory } : {}),
    ...(verdict === "retry" && timeout ? { timeout } : {}),
  }));
  for (let start = 0; start < decisions.length; start += 500) {
    const answer = await send("POST", "decisions", { decisions: decisions.slice(start, start + 500), dry_run: dryRun });
    answer.decisions.forEach((one, index) => {
      const error = one.error ? [one.error.message, one.error.hint].filter(Boolean).join("; ") : "";
      found.set(parked[start + index].id, { error, follows: withoutDecision(one.follows, reason), starts: one.starts });
    });
  }
  for (const one of targets.filter((other) => other.kind === "approval")) {
    const body = { reason, approve: verdict === "approve", dry_run: dryRun };
    try {
      const answer = await send("POST", `runs/${one.run_id}/steps/${segment(one.step)}:approve`, body);
      found.set(one.id, { error: "", follows: withoutDecision(answer.follows, reason), starts: answer.starts });
    } catch (error) {
      if (!error.status || error.status >= 500) throw error;
      found.set(one.id, { error: [error.message, error.hint].filter(Boolean).join("; "), follows: [], starts: [] });
    }
  }
  return found;
}

/**
 * Open the dialog. Resolves to the targets that were decided about: none if the reader changed their mind, or if all of
 * them were refused. `onRefresh(handler)` calls the handler when the page has changed.
 */
export function openDecision(verdict, targets, { onRefresh }) {
  return new Promise((resolve) => {
    const reason = make("textarea", { id: "decision-reason", rows: 3, required: true, maxLength: 4000 });
    const memory = make("input", { id: "decision-memory", placeholder: "4GiB", size: 8 });
    const timeout = make("input", { id: "decision-timeout", placeholder: "30m", size: 8 });
    const field = (input, label) => make("p", { className: "field" }, make("label", { htmlFor: input.id, textContent: label }), input);
    const preview = make("div", { className: "preview" });
    preview.setAttribute("aria-live", "polite");
    const problem = make("p", { className: "problem" });
    problem.setAttribute("role", "alert");
    const danger = verdict === "fail";
    const label = { retry: "Retry", approve: "Approve", fail: targets.every((one) => one.kind === "approval") ? "Refuse" : "Let fail" }[verdict];
    const confirm = make("button", { type: "submit", className: danger ? "danger" : "primary", textContent: label });
    const back = make("button", { type: "button", className: "quiet", textContent: "Back" });
    const hint = make("span", { className: "muted keys" }, make("kbd", { textContent: "Ctrl" }), " ", make("kbd", { textContent: "Enter" }));
    const more = verdict === "retry"
      ? make("details", { className: "inner" }, make("summary", { textContent: "More memory or time for the next attempt" }), make("div", { className: "pair" }, field(memory, "Memory"), field(timeout, "Timeout")))
      : null;
    const form = make(
      "form",
      { method: "dialog" },
      make("h2", { id: "decision-title", textContent: titleOf(verdict, targets) }),
      preview,
      more,
      field(reason, "Reason (required; it is kept with the decision)"),
      problem,
      make("div", { className: "buttons" }, confirm, back, hint),
    );
    const dialog = make("dialog", { className: "decision" }, form);
    dialog.setAttribute("aria-labelledby", "decision-title");

    const done = [];
    let left = targets;
    const given = (dryRun) => ({ reason: reason.value.trim() || "preview", memory: memory.value.trim(), timeout: timeout.value.trim(), dryRun });
    let asked = 0;
    const look = async () => {
      const mine = ++asked;
      try {
        const found = await ask(verdict, left, given(true));
        if (mine !== asked || !dialog.open) return;
        preview.replaceChildren(...describe(left, found));
        const possible = left.filter((one) => !found.get(one.id)?.error).length;
        confirm.disabled = !possible;
        problem.textContent = "";
      } catch (error) {
        if (mine !== asked) return;
        problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
      }
    };
    for (const one of [memory, timeout]) one.addEventListener("change", look);

    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!reason.value.trim()) return void reason.focus();
      asked++;
      confirm.disabled = true;
      problem.textContent = "";
      try {
        const found = await ask(verdict, left, given(false));
        const refused = left.filter((one) => found.get(one.id)?.error);
        done.push(...left.filter((one) => !found.get(one.id)?.error));
        if (!refused.length) {
          const runs = [...new Set(done.map((one) => one.run_id))];
          const text = done.length === 1 ? `${DECIDED[verdict]} ${nameOf(done[0])}` : `${count(done.length, "decision")} recorded: ${DECIDED[verdict]}`;
          say(text, { tone: "good", link: runs.length === 1 ? { href: `/runs/${runs[0]}`, text: `Open run ${runs[0]}` } : { href: "/runs?status=open", text: "Open runs" } });
          return dialog.close();
        }
        left = refused;
        const recorded = done.length ? `${count(done.length, "decision")} recorded, ${refused.length.toLocaleString()} refused.` : "Refused: somebody else was first, or the step runs again.";
        problem.textContent = recorded;
        preview.replaceChildren(...describe(refused, found));
        back.textContent = "Close";
        back.focus();
      } catch (error) {
        problem.textContent = [error.message, error.hint].filter(Boolean).join("; ");
        confirm.disabled = false;
      }
    });
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        if (!confirm.disabled) form.requestSubmit(confirm);
      }
    });
    back.addEventListener("click", () => dialog.close());
    // Somebody else may decide while the dialog is open: what would follow is asked again, what was typed stays.
    onRefresh(() => dialog.open && !confirm.disabled && look());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
    reason.focus();
    look();
  });
}

/** What would follow, in a list; what is refused comes first. */
function describe(targets, found) {
  const refused = targets.filter((one) => found.get(one.id)?.error);
  const others = targets.filter((one) => !found.get(one.id)?.error);
  const parts = [];
  if (refused.length) {
    const items = refused.slice(0, LISTED_MAX).map((one) => make("li", {}, make("b", { textContent: `${nameOf(one)}: ` }), found.get(one.id).error));
    parts.push(make("ul", { className: "refused" }, ...items));
    if (refused.length > LISTED_MAX) parts.push(make("p", { className: "note", textContent: `and ${refused.length - LISTED_MAX} more that are refused` }));
  }
  if (others.length === 1) {
    const { follows, starts } = found.get(others[0].id) ?? { follows: [], starts: [] };
    parts.push(list([...follows.slice(0, LISTED_MAX), ...starts.map((one) => `${one} would start`)], follows.length - LISTED_MAX));
  } else if (others.length) {
    const starts = others.flatMap((one) => (found.get(one.id)?.starts ?? []).map((start) => `run ${one.run_id}, ${start}`));
    const head = starts.length ? `${count(starts.length, "attempt")} would start` : "nothing would start";
    parts.push(make("p", { textContent: `${count(others.length, "step")}; ${head}` }), list(starts.slice(0, LISTED_MAX), starts.length - LISTED_MAX));
  }
  return parts;
}

function list(lines, left) {
  const items = lines.map((one) => make("li", { textContent: one }));
  if (left > 0) items.push(make("li", { className: "muted", textContent: `and ${left.toLocaleString()} more` }));
  return make("ul", {}, ...items);
}
