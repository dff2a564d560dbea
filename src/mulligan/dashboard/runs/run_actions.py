"""What can be done with a run and with its steps: buttons, each with a preview of what would run.

`assets/run_actions.js` opens their dialogs and describes what the dry run answers.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from mulligan.dashboard.components.shell import may, path_to_entry
from mulligan.dashboard.runs.run_tab import RunOnPage
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

# A step with one of these runs no more in this round.
ENDED_STEP = ("completed", "failed", "skipped", "cancelled")

ActionKind = Literal["pause", "resume", "cancel", "retry", "fork"]


def render_actions(run: RunOnPage) -> Html:
    """The buttons beside the heading of a run: those that make sense now, and that the reader may use."""
    compare = ui.button_link("Compare", f"/compare?a={run.run_id}", id="compare")
    if not may(run.call, "run"):
        return compare
    parent = run.head.parent_run_id
    if parent:
        # Only the whole tree is changed. A retry opens a round of the run at the top.
        caller = ui.link(f"Open run {parent}, which called it", "runs", parent)
        return join_html([*_retry(run), caller, compare])
    return join_html([*_buttons(run), compare])


def _buttons(run: RunOnPage) -> list[Html]:
    status = run.head.status
    if run.has_ended:
        return [*_retry(run), _fork(run, "Fork")]
    pause = _button(run, "resume", "Resume", "primary") if status == "paused" else _button(run, "pause", "Pause")
    return [pause, _button(run, "cancel", "Cancel")]


def _retry(run: RunOnPage) -> list[Html]:
    return [_button(run, "retry", "Retry", "primary")] if run.head.status in ("failed", "cancelled") else []


def step_buttons(run: RunOnPage, step: str, status: str, *, is_paused: bool = False, is_short: bool = False) -> Html:
    """What can be done with one step: run it and what follows again, hold it, or let it go on."""
    if status == "pending_failed" and may(run.call, "decide"):
        return ui.button_link("Decide", path_to_entry(run.run_id, step), "small")
    is_called = bool(run.head.parent_run_id)
    if not may(run.call, "run") or (is_called and not run.has_ended) or step == "end":
        return Html("")
    if run.has_ended:
        if is_short and status in ("completed", "skipped", "waiting"):
            return Html("")
        # A run that completed has no further round; a fork runs a step of it again.
        can_retry = run.head.status in ("failed", "cancelled")
        parts = [_button(run, "retry", "Retry from here", "small", step=step)] if can_retry else []
        if not (is_short or is_called):
            parts.append(_fork(run, "Fork from here", "small", step=step))
        return join_html(parts, " ")
    if is_paused:
        return _button(run, "resume", "Resume this step", "small", step=step)
    if is_short or status in ENDED_STEP:
        return Html("")
    return _button(run, "pause", "Pause this step", "small", step=step)


def _fork(run: RunOnPage, title: str, look: str = "", **more: str) -> Html:
    """A fork from a step; of a program, the way to the events at one of which it is forked."""
    if run.view is not None and run.call.service.details.is_of_program(run.run_id):
        return ui.button_link("Fork at an event", run.path(tab="replay", **more), look)
    return _button(run, "fork", title, look, **more)


def _button(run: RunOnPage, kind: ActionKind, title: str, look: str = "", **more: Any) -> Html:
    action = {"kind": kind, "run_id": run.run_id, "workflow": run.head.workflow, **more}
    if kind in ("retry", "fork"):
        # A text that is typed is code.
        action["writes"] = may(run.call, "write")
    return element("button", title, type="button", class_=look or None, data_run_action=json.dumps(action))
