"""`mulligan pending`, `classify` and `approve`: what waits for a person, and the person's word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from mulligan.cli.onward import go_on, is_following
from mulligan.cli.options import AsJson, Follow, HomeFolder, Reason, RunId, StepName, service_at, where
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.tables import length
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service.definitions import duration, size
from mulligan.service.overview import in_a_line
from mulligan.service.pending import pending, waiting_approval

# Of what a failed attempt said, the end: there the reason is, as a rule.
TAIL_LINES_MAX = 5


def list_pending(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List what waits for a person, over all runs."""
    with service_at(home) as service:
        found = pending(service)
    if as_json:
        show_json(found)
        return
    if not found:
        complain("nothing waits for a person")
    for one in found:
        show("\n".join(_told(one, where(home))))


def _told(one: dict[str, Any], place: str) -> list[str]:
    who = f"run {one['run_id']} of '{one['workflow']}': '{one['step']}'"
    target = f"{one['run_id']} {one['step']}"
    if one["kind"] == "approval":
        question = f": {one['message']}" if one["message"] else ""
        advice = f"mulligan approve {target} --reason TEXT{place} (or --no){_default(one)}"
        return [f"{who} waits for an approval{question}", f"  {advice}"]
    said = f", {in_a_line(one['failure'])}" if one["failure"] else ""
    advice = f"mulligan classify {target} retry --reason TEXT{place} (or fail){_default(one)}"
    return [f"{who} is parked{said}", *_tail(one), f"  {advice}"]


def _tail(one: dict[str, Any]) -> list[str]:
    """The end of what it said, where that is more than its last line."""
    lines = (one["failure"] or {}).get("message", "").splitlines()
    return [f"  | {line}" for line in lines[-TAIL_LINES_MAX:]] if len(lines) > 1 else []


def _default(one: dict[str, Any]) -> str:
    if not one["due"]:
        return ""
    left = (datetime.fromisoformat(one["due"]) - datetime.now(UTC)).total_seconds()
    return f"; else {one['default']} in {length(max(0.0, left))}"


def classify(
    run: RunId,
    step: StepName,
    verdict: Annotated[str, Argument(metavar="retry|fail", help="Whether it is tried again, or has failed.")],
    reason: Reason = "",
    memory: Annotated[str, Option("--memory", metavar="SIZE", help="What the next attempt gets: 4GiB.")] = "",
    timeout: Annotated[str, Option("--timeout", metavar="TIME", help="How long it may take: 30m.")] = "",
    follows: Follow = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Say what becomes of a parked step: retry, or fail.

    It is recorded with who said it, and why.
    """
    if verdict not in ("retry", "fail"):
        raise UsageRefused(f"'{verdict}' is no verdict", hint="say retry or fail")
    if verdict == "fail" and (memory or timeout):
        raise UsageRefused("what fails has no next attempt", hint="leave out --memory and --timeout, or say retry")
    given = {"memory": size(memory) if memory else None, "timeout": duration(timeout) if timeout else None}
    with service_at(home) as service:
        service.classify(run, step, verdict, reason, **given)  # type: ignore[arg-type]
        complain(f"run {run}: '{step}' {'is tried again' if verdict == 'retry' else 'has failed'}")
        return go_on(service, run, is_wanted=is_following(follows), as_json=as_json, home=home)


def approve(
    run: RunId,
    step: StepName,
    no: Annotated[bool, Option("--no", help="Refuse it: the step fails with APPROVAL_REFUSED.")] = False,
    reason: Reason = "",
    follows: Follow = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Answer an approval that a run waits for.

    It is recorded with who said it, and why.
    """
    with service_at(home) as service:
        place = waiting_approval(service, run, step)
        service.approve(run, place, not no, reason)
        complain(f"run {run}: '{place}' is {'refused' if no else 'approved'}")
        return go_on(service, run, is_wanted=is_following(follows), as_json=as_json, home=home)
