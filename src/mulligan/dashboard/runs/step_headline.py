"""The top of the page of a step: one sentence that says how it stands, the lines that say why, and the buttons."""

from __future__ import annotations

from typing import Any

from mulligan.api.http.routing import Call
from mulligan.dashboard.components.parts import action_button
from mulligan.dashboard.components.shell import may, path_to_entry, shortened
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.service.rendering.descriptions import failure_tail, summarize_failure
from mulligan.service.rendering.formatting import pluralize, up_to_date_since
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element
from mulligan.service.rendering.page.styles import status_label, status_tone
from mulligan.service.runs.views.run_view import FailureView
from mulligan.service.runs.views.step_history import StepHistory

TAIL_LINES_MAX = 8


# -- the sentence ----------------------------------------------------------------------------------------------------


def headline(found: StepHistory) -> Html:
    """What is wrong and why; for a step that is well, how it stands."""
    tone = _tone(found)
    failure = found.failure if found.status in ("failed", "pending_failed", "backing_off") else None
    parts = [element("p", _sentence(found, failure), class_="headline")]
    if failure:
        parts += _tail(failure)
    parts += [element("p", said, class_="sentence") for said in _because(found)]
    waits = [one.text for one in found.waiting_for if one.kind != "task"]
    if waits:
        shown = ", ".join(waits[:3]) + (f" and {len(waits) - 3} more" if len(waits) > 3 else "")
        parts.append(element("p", "Waits for ", shortened(shown), class_="sentence"))
    return element("section", *parts, class_=f"step-headline {tone}", id="headline", aria_label="How it stands")


def _tone(found: StepHistory) -> str:
    if (
        found.status == "failed"
        and found.ladders
        and found.ladders[0].visit.outcome in (FailureOutcome.REPAIRED, FailureOutcome.ALLOWED)
    ):
        return "good" if found.ladders[0].visit.outcome == FailureOutcome.REPAIRED else "idle"
    return status_tone(found.status)


def _sentence(found: StepHistory, failure: FailureView | None) -> str:
    if failure:
        before = {"pending_failed": "Parked until somebody decides: ", "backing_off": "Failed, and is retried: "}
        return before.get(found.status, "") + summarize_failure(failure)
    if found.kind in ("map", "matrix") and found.items:
        return _counted(found)
    if found.status == "completed":
        if found.ladders and found.ladders[0].visit.outcome == FailureOutcome.REPAIRED:
            return f"Completed after a failure: {found.ladders[0].visit.answer}"
        since = found.view.up_to_date_since if found.view else None
        return up_to_date_since(since).capitalize() if since else "Completed"
    last = next((one for one in reversed(found.attempts) if one.part == "own"), None)
    if found.status == "running" and last is not None:
        where = f" on {last.host}" if last.host else ""
        return f"Running: attempt {last.attempt}{where}" + (f", {last.progress}" if last.progress else "")
    return status_label(found.status).capitalize()


def _counted(found: StepHistory) -> str:
    what, total = "item" if found.kind == "map" else "step", sum(found.items.values())
    order = ("failed", "pending_failed", "running", "handling", "backing_off", "completed")
    names = [*order, *(name for name in found.items if name not in order)]
    words = [f"{found.items[name]:,} {status_label(name)}" for name in names if found.items.get(name)]
    return f"{pluralize(total, what)}: {', '.join(words)}"


def _tail(failure: FailureView) -> list[Html]:
    lines = failure_tail(failure)[-TAIL_LINES_MAX:]
    return [ui.text_block("\n".join(lines), class_="tail", aria_label="The last lines")] if lines else []


def _because(found: StepHistory) -> list[str]:
    """What became of the failure, and who paused the step."""
    said = []
    if found.status == "failed" and found.ladders:
        answer, outcome = found.ladders[0].visit.answer, found.ladders[0].visit.outcome
        later = (
            "; it can be retried when the run has ended"
            if outcome == FailureOutcome.UNHANDLED and not found.has_run_ended
            else ""
        )
        said.append(answer[:1].upper() + answer[1:] + later)
    if found.view and (paused := found.view.paused):
        by, why = paused.by, paused.reason
        said.append(f"Paused{f' by {by}' if by else ''}{f': {why}' if why else ''}")
    return said


# -- what can be done ------------------------------------------------------------------------------------------------


def step_actions(call: Call, found: StepHistory) -> list[Html]:
    """The buttons for what the reader may do now, the most likely one first."""
    kinds = {one.kind for one in found.waiting_for}
    buttons: list[Html] = []
    if found.kind == "item":
        return _item_actions(call, found)
    if found.status == "pending_failed" and may(call, "decide"):
        buttons.append(ui.button_link("Decide", path_to_entry(found.run_id, found.step)))
        buttons.insert(0, _retry_step(found))
    elif "approval" in kinds and may(call, "decide"):
        buttons += [_approve(found, is_approved=True), _approve(found, is_approved=False)]
    elif found.has_run_ended and may(call, "run"):
        buttons += _round_actions(call, found)
    if not found.has_run_ended and found.kind in ("step", "map") and may(call, "run"):
        buttons += _pause(found)
    return buttons


def _step_path(found: StepHistory) -> str:
    return ui.path_to("runs", found.run_id, "steps", found.step)[1:]


def _retry_step(found: StepHistory) -> Html:
    path, title = f"{_step_path(found)}:retry", f"Run '{found.step}' again"
    how: dict[str, Any] = {"reason": "required", "preview": True, "done": f"'{found.step}' runs again"}
    return action_button("Retry step", path, title, confirm="Run it again", kind="primary", **how)


def _approve(found: StepHistory, *, is_approved: bool) -> Html:
    verb, done, kind = ("Approve", "approved", "primary") if is_approved else ("Reject", "rejected", "")
    how: dict[str, Any] = {
        "body": {"approve": is_approved},
        "reason": "required",
        "preview": True,
        "danger": not is_approved,
    }
    return action_button(verb, f"{_step_path(found)}:approve", f"{verb} '{found.step}'", done=done, kind=kind, **how)


def _round_actions(call: Call, found: StepHistory) -> list[Html]:
    """Of a run that has ended: another round for this step, or from here on."""
    buttons = []
    if found.status == "failed" and found.kind == "step" and may(call, "decide"):
        buttons.append(_retry_step(found))
    failed = found.items.get("failed", 0)
    if found.kind == "map" and failed:
        body = {"from_step": found.step, "items": []}
        label = f"Retry {pluralize(failed, 'failed item')}"
        buttons.append(_retry_run(found, label, f"Run the failed items of '{found.step}' again", body, kind="primary"))
    if found.has_run_out:
        title = "Run what failed again, with more memory or time where it ran out"
        buttons.append(_retry_run(found, "Retry with more", title, {"adjust": True}))
    if found.kind in ("step", "map") and found.status not in ("waiting", "skipped"):
        title = f"Run '{found.step}' and what follows again"
        buttons.append(_retry_run(found, "Retry from here", title, {"from_step": found.step}))
    return buttons


def _item_actions(call: Call, found: StepHistory) -> list[Html]:
    if not found.has_run_ended or found.status in ("waiting", "not started") or not may(call, "run"):
        return []
    body = {"from_step": found.step, "items": [found.item]}
    kind = "primary" if found.status == "failed" else ""
    return [_retry_run(found, "Retry item", f"Run item {found.item} of '{found.step}' again", body, kind=kind)]


def _retry_run(found: StepHistory, label: str, title: str, body: dict[str, Any], *, kind: str = "") -> Html:
    how: dict[str, Any] = {"body": body, "reason": "optional", "preview": True, "done": "another round has begun"}
    return action_button(label, f"runs/{found.run_id}:retry", title, confirm="Run again", kind=kind, **how)


def _pause(found: StepHistory) -> list[Html]:
    if found.view and found.view.paused:
        verb, label, done = "resume", "Resume step", "the step goes on"
    elif found.status in ("waiting", "ready", "running", "backing_off"):
        verb, label, done = "pause", "Pause step", "the step is paused"
    else:
        return []
    how: dict[str, Any] = {"body": {"step": found.step}, "reason": "optional", "preview": True, "done": done}
    return [action_button(label, f"runs/{found.run_id}:{verb}", f"{verb.capitalize()} '{found.step}'", **how)]
