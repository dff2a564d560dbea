"""`mulligan pending`, `classify` and `approve`: what waits for a person, and the answers."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.output.tables import age, length
from mulligan.cli.output.terminal import INTERRUPTED, UsageRefused, complain, show, show_json, show_result
from mulligan.cli.running.continue_run import Continuation, Detach, Follow, continue_run, read_continuation
from mulligan.cli.running.drive_run import CommandContext, worst_code
from mulligan.cli.words.options import (
    AsJson,
    Budgets,
    By,
    HomeFolder,
    Reason,
    RunName,
    StepName,
    service_at,
    where,
    with_home,
)
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.named_files import read_file
from mulligan.service.decisions.decisions import (
    DecidedStep,
    Decision,
    make_decision,
    read_decisions,
)
from mulligan.service.decisions.pending import PendingEntry, commands_for_pending, describe_earlier_run, evidence_text
from mulligan.service.rendering.descriptions import message_lines, summarize_failure
from mulligan.service.rendering.formatting import (
    PARKED_FOR,
    describe_suggestion,
    escape_unprintable,
    pluralize,
    single_line,
)
from mulligan.service.rendering.json_output import to_json
from mulligan.service.service import Service

# The end of the message of a failed attempt usually has the reason.
TAIL_LINES_MAX = 5
# How many earlier runs are shown, and how many sentences of a preview.
EARLIER_MAX = 3
FOLLOWS_MAX = 20
# How many lines of a rule that an agent proposes are shown.
RULE_LINES_MAX = 10
# What --json prints of a decision that was previewed, and leaves out of one that was recorded or refused.
_PREVIEWED, _FORESEEN = ("run_id", "step", "verdict", "follows", "starts"), ("follows", "starts")


# -- pending ---------------------------------------------------------------------------------------------------------


def list_pending(home: HomeFolder = None, as_json: AsJson = False) -> None:
    """List what waits for a person, in all runs.

    Parked steps, approvals and pauses, with the facts for a decision: the failure, why no rule helped, and what the
    step did in earlier runs. With --json the entries of parked steps can be handed to `classify --file` once each has a
    verdict and a reason.
    """
    with service_at(home) as service:
        found, is_there = service.decisions.list_pending(), service.home.is_there
    for one in found:
        one.commands = [f"{command}{where(home)}" for command in commands_for_pending(one)]
    if as_json:
        show_result(found)
        return
    if not found:
        # Warn a person who looks in the wrong folder.
        complain("nothing waits for a person" + ("" if is_there else f": no runs in '{service.home.folder}'"))
    for one in found:
        if one.error:
            complain(f"run {one.run_id}: '{one.step}' waits for a person, but the run cannot be read: {one.error}")
        else:
            show("\n".join(_describe(one)))


def _describe(one: PendingEntry) -> list[str]:
    if one.kind == "paused" and not one.step:
        return _describe_paused_run(one)
    child = f", a child of run {one.parent_run_id}" if one.parent_run_id else ""
    who = f"run {one.run_id} of '{one.workflow}'{child}: '{one.name}'"
    if one.kind == "paused":
        lines = [_describe_paused(who, one)]
    else:
        lines = _describe_approval(who, one) if one.kind == "approval" else _describe_parked(who, one)
    advice = [f"  {command}" for command in one.commands]
    work = one.workspace
    gone = " (which is gone)" if work and work.get("worktree_exists") is False else ""
    place = [f"  its work is in {work['worktree']}{gone} on branch '{work['branch']}'"] if work else []
    return [*lines, *place, f"  {_since(one)}{_default(one)}", *advice]


def _describe_paused_run(one: PendingEntry) -> list[str]:
    by = f" by {one.paused_by}" if one.paused_by else ""
    reason = f": {one.message}" if one.message else ""
    since = age(one.since, datetime.now(UTC)) if one.since else ""
    head = f"run {one.run_id} of '{one.workflow}' is paused{by}{reason}"
    return [head, f"  for {since}", *(f"  {command}" for command in one.commands)]


def _describe_approval(who: str, one: PendingEntry) -> list[str]:
    first, *others = str(one.message).splitlines() or [""]
    head = f"{who} waits for an approval{': ' if first else ''}{first}"
    return [head, *(f"  | {line}" for line in (*others, *evidence_text(one)))]


def _describe_paused(who: str, one: PendingEntry) -> str:
    by = f" by {one.paused_by}" if one.paused_by else ""
    reason = f": {single_line(one.message)}" if one.message else ""
    return f"{who} is paused{by}{reason}"


def _describe_parked(who: str, one: PendingEntry) -> list[str]:
    said = f", {summarize_failure(one.failure)}" if one.failure else ""
    rules = [f"  rule {rule.rule}, {rule.looks_for}: {rule.reason}" for rule in one.rules]
    earlier = [f"  {describe_earlier_run(run)}" for run in one.earlier[:EARLIER_MAX]]
    return [f"{who} is parked{said}", *_tail(one), *rules, *earlier, *_agents_part(one)]


def _agents_part(one: PendingEntry) -> list[str]:
    """What the triager suggests. Its rule is shown for whoever wants to put it into the file."""
    if one.suggestion is None:
        return []
    rule = [f"  | {escape_unprintable(line)}" for line in one.suggestion.rule.splitlines()[:RULE_LINES_MAX]]
    proposed = ["  it proposes the rule:", *rule] if rule else []
    return [f"  {describe_suggestion(one.suggestion)}", *proposed]


def _tail(one: PendingEntry) -> list[str]:
    """The end of the message, if it has more than one line."""
    lines = message_lines(one.failure) if one.failure else []
    return [f"  | {line}" for line in lines[-TAIL_LINES_MAX:]] if len(lines) > 1 else []


def _since(one: PendingEntry) -> str:
    since = f"for {age(one.since, datetime.now(UTC))}" if one.since else "for some time"
    why = PARKED_FOR.get(one.parked_for or "", "")
    because = "it has no rules" if one.parked_for == "unmatched" and not one.rules else why
    return f"{since}, at attempt {one.attempt}{f': {because}' if because else ''}"


def _default(one: PendingEntry) -> str:
    if not one.due:
        return ""
    left = (one.due - datetime.now(UTC)).total_seconds()
    return f"; without a decision, {one.default} in {length(max(0.0, left))}"


# -- classify --------------------------------------------------------------------------------------------------------


def classify(
    run: Annotated[str | None, Argument("RUN", "The number of a run (see `mulligan pending`).")] = None,
    step: Annotated[str, Argument("STEP", "The name of a step.")] = "",
    verdict: Annotated[str, Argument("retry|fail", "Run the step again, or let it fail.")] = "",
    reason: Reason = "",
    memory: Annotated[str, Option("SIZE", "The memory of the next attempt, such as 4GiB.")] = "",
    timeout: Annotated[str, Option("TIME", "The timeout of the next attempt, such as 30m.")] = "",
    budget: Budgets = None,
    attempt: Annotated[int | None, Option("N", "Refuse if another attempt than this one is parked.")] = None,
    file: Annotated[str, Option("FILE", "A JSON array of decisions; - is stdin.")] = "",
    dry_run: Annotated[bool, Flag("Show what would follow, and change nothing.")] = False,
    by: By = "",
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Decide what happens to a parked step: retry or fail.

    Your name and the reason are recorded. The exit codes are those of `mulligan run`. With --file, all decisions are
    checked before the first is recorded; then their runs are continued one after the other, and the exit code is the
    worst, or 1 if a decision came too late.
    """
    chosen = read_continuation(follows, detach)
    if file:
        _refuse_beside_file(run, step, verdict, reason, memory, timeout, budget, attempt)
        decisions = read_decisions(_content(file))
        return _classify_many(decisions, chosen, dry_run=dry_run, by=by, home=home, as_json=as_json)
    if run is None or not step or not verdict:
        raise UsageRefused("name a step and a decision", hint="write RUN STEP retry, RUN STEP fail, or --file FILE")
    with service_at(home, by) as service:
        run_id = service.runs.find(run)
        one = make_decision(run_id, step, verdict, reason, memory or None, timeout or None, budget, attempt)
        (decided,) = service.changes.decide([one], dry_run=dry_run).decisions
        if decided.error is not None:
            raise decided.error
        if dry_run:
            _show_preview(decided, as_json=as_json)
            return 0
        complain(_recorded(one))
        return continue_run(CommandContext(service, home, as_json), one.run_id, chosen)


def _recorded(one: Decision) -> str:
    return f"run {one.run_id}: '{one.step}' {'runs again' if one.verdict == 'retry' else 'fails'}"


def _show_preview(preview: DecidedStep, *, as_json: bool) -> None:
    if as_json:
        show_json(_preview_json(preview))
        return
    one, follows = preview.decision, preview.follows
    show(f"run {one.run_id}: if '{one.step}' {'ran again' if one.verdict == 'retry' else 'failed'}")
    for line in follows[:FOLLOWS_MAX]:
        show(f"  {line}")
    if len(follows) > FOLLOWS_MAX:
        show(f"  and {len(follows) - FOLLOWS_MAX:,} more")
    for start in preview.starts:
        show(f"  would start: {start}")
    if not preview.starts:
        show("  nothing would start")


# -- many at once ----------------------------------------------------------------------------------------------------


def _refuse_beside_file(*others: object) -> None:
    if any(others):
        raise UsageRefused("--file contains the decisions", hint="leave out the run, the step and the other options")


def _content(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else read_file(Path(file))


def _classify_many(
    decisions: list[Decision], chosen: Continuation, *, dry_run: bool, by: str, home: str | None, as_json: bool
) -> int:
    with service_at(home, by) as service:
        previews = service.changes.preview_decisions(decisions)
        if dry_run:
            _show_previews(previews, as_json=as_json)
            return 0
        done: list[DecidedStep] = []
        for decision in decisions:
            done += service.changes.decide([decision]).decisions
            complain(_result_line(done[-1]))
        refused = sum(one.error is not None for one in done)
        complain(f"{pluralize(len(done) - refused, 'decision')} recorded{f', {refused} refused' if refused else ''}")
        codes = {int(refused > 0)}
        for run_id in _roots(service, done):
            if INTERRUPTED not in codes:
                codes.add(continue_run(CommandContext(service, home, as_json, prints=False), run_id, chosen))
        if as_json:
            show_json([_result_json(one, home) for one in done])
        return worst_code(codes)


def _show_previews(previews: list[DecidedStep], *, as_json: bool) -> None:
    if as_json:
        show_json([_preview_json(one) for one in previews])
        return
    for one in previews:
        _show_preview(one, as_json=False)


def _result_line(decided: DecidedStep) -> str:
    one, error = decided.decision, decided.error
    return _recorded(one) if error is None else f"run {one.run_id}: '{one.step}' was refused: {error.message}"


def _roots(service: Service, done: list[DecidedStep]) -> list[int]:
    """The top-level runs of the decisions that were recorded."""
    records = (service.runs.record(one.decision.run_id) for one in done if one.error is None)
    return sorted({record.root_run_id or record.run_id for record in records})


def _preview_json(preview: DecidedStep) -> dict[str, Any]:
    found: dict[str, Any] = to_json(preview)
    return {name: found[name] for name in _PREVIEWED}


def _result_json(result: DecidedStep, home: str | None) -> dict[str, Any]:
    found = {name: value for name, value in to_json(result).items() if name not in _FORESEEN}
    if found["error"]:
        found["error"]["hint"] = with_home(found["error"]["hint"], home)
    return found


# -- approve ---------------------------------------------------------------------------------------------------------


def approve(
    run: RunName,
    step: StepName,
    no: Annotated[bool, Flag("Refuse: the step fails with APPROVAL_REFUSED.")] = False,
    reason: Reason = "",
    by: By = "",
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Answer an approval that a run waits for.

    Your name and the reason are recorded. The exit codes are those of `mulligan run`.
    """
    chosen = read_continuation(follows, detach)
    with service_at(home, by) as service:
        run_id = service.runs.find(run)
        place = service.decisions.find_approval(run_id, step)
        service.changes.approve(run_id, place, is_approved=not no, reason=reason)
        name = service.runs.name_places(run_id, [place])[place]
        complain(f"run {run_id}: '{name}' is {'refused' if no else 'approved'}")
        return continue_run(CommandContext(service, home, as_json), run_id, chosen)
