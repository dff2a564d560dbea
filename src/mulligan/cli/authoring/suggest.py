"""`mulligan suggest`: rules and limits that stored runs speak for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json
from mulligan.cli.words.options import AsJson, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.authoring.suggest import (
    DraftedChanges,
    LookedAt,
    SuggestedChange,
    Suggestions,
    WrittenChanges,
    choose,
    write_into_file,
)
from mulligan.service.authoring.suggest_words import describe_saving, describe_what_if
from mulligan.service.authoring.values import parse_time
from mulligan.service.rendering.formatting import pluralize, single_line
from mulligan.service.rendering.json_output import to_json
from mulligan.service.service import Service

_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".py")
NOTHING_WRITTEN = 1


def suggest(
    workflow: Annotated[
        str | None, Argument("WORKFLOW", "A workflow file, or the name of a workflow (default: all).")
    ] = None,
    since: Annotated[str | None, Option("TIME", "Only runs started since then: 12h, 30d, 2026-11-01.")] = None,
    step: Annotated[str, Option("STEP", "Only this step.")] = "",
    write: Annotated[bool, Flag("Write the proposals into the workflow file.")] = False,
    draft: Annotated[bool, Flag("Write them into a draft of the published workflow.")] = False,
    pick: Annotated[list[str] | None, Option("ID", "Only the proposal with this id; may be repeated.")] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Propose rules and limits for workflows, from what their runs did.

    Reads the newest runs: what failed, what people decided about it, and how that ended. A change is proposed only if
    there is enough evidence in several runs, and chance alone would not produce it. What would save most comes first.
    --write edits the file and leaves its comments as they are.
    """
    path = _file(workflow)
    _refuse_usage(workflow, path, write=write, draft=draft)
    begun = parse_time(since, datetime.now(UTC)) if since is not None else None
    with service_at(home) as service:
        policy = service.workflows.load_workflow(path) if path is not None else None
        found = service.workflows.suggest(workflow or "", policy=policy, since=begun, step=step)
        chosen = choose(found, pick or ())
        done = _write(service, workflow or "", path, chosen, draft=draft) if write or draft else None
    if as_json:
        answer: dict[str, Any] = to_json(found)
        answer["proposals"] = to_json(chosen)
        show_json({**answer, "written": _as_json(done)} if done is not None else answer)
    else:
        _show(found, chosen)
        if done is not None:
            _show_written(done, path)
    return NOTHING_WRITTEN if done is not None and chosen and not done.written else 0


def _file(workflow: str | None) -> Path | None:
    """The file that the word names; None if it is the name of a workflow."""
    if workflow is None:
        return None
    is_file = workflow.partition(":")[0].endswith(_ENDINGS) or "/" in workflow or Path(workflow).is_file()
    return Path(workflow) if is_file else None


def _refuse_usage(workflow: str | None, path: Path | None, *, write: bool, draft: bool) -> None:
    if write and draft:
        raise UsageRefused("--write and --draft cannot be combined", hint="leave one of them out")
    if write and path is None:
        hint = "name it: mulligan suggest FILE --write; for a published workflow: mulligan suggest NAME --draft"
        raise UsageRefused("--write needs a workflow file", hint=hint)
    if draft and (workflow is None or path is not None):
        raise UsageRefused("--draft needs the name of a published workflow", hint="list them: mulligan workflows")


def _write(
    service: Service, workflow: str, path: Path | None, chosen: list[SuggestedChange], *, draft: bool
) -> WrittenChanges | DraftedChanges | None:
    if draft:
        return service.workflows.draft_suggestions(workflow, chosen)
    assert path is not None
    return write_into_file(path, chosen)


def _as_json(done: WrittenChanges | DraftedChanges) -> dict[str, Any]:
    found: dict[str, Any] = to_json(done)
    return {key: value for key, value in found.items() if key != "text"}


# -- showing ---------------------------------------------------------------------------------------------------------


def _show(found: Suggestions, chosen: list[SuggestedChange]) -> None:
    for number, one in enumerate(chosen):
        if number:
            show("")
        _show_proposal(one, with_workflow=len(found.looked_at.workflows) > 1)
    if not chosen:
        complain(f"nothing to propose: {_looked_at(found.looked_at)}")
    else:
        complain(_looked_at(found.looked_at))
    if not chosen and found.nearly:
        complain("too little evidence yet:")
        for nearly in found.nearly:
            complain(f"  {single_line(nearly.seen)}; needed: {nearly.needed}")
    elif not chosen and not found.looked_at.decisions:
        complain("a retry rule needs decisions: failures that people retried, in triage or by 'mulligan retry'")


def _show_proposal(one: SuggestedChange, *, with_workflow: bool) -> None:
    of = f" of {one.workflow}" if with_workflow else ""
    show(f"{one.id}  {_TITLES[one.kind]}, step '{one.step}'{of}")
    show(f"  {single_line(one.evidence)}")
    show(f"  proposal: {single_line(one.proposal)}")
    if saved := describe_saving(one.saving):
        show(f"  would have saved: {saved}")
    if one.what_if is not None:
        show(f"  what if: {describe_what_if(one.what_if)}")
    if one.yaml:
        show("")
        for line in one.yaml.splitlines():
            show(f"      {line}")


_TITLES = {
    "retry": "a retry rule",
    "memory": "another memory limit",
    "timeout": "another timeout",
    "useless_rule": "a rule that never helped",
    "useless_handler": "a handler that never worked",
    "useless_remediation": "a remediation that never worked",
    "breaker": "a circuit breaker",
}


def _looked_at(one: LookedAt) -> str:
    of = f" of '{one.workflows[0]}'" if len(one.workflows) == 1 else ""
    of = f" of {len(one.workflows)} workflows" if len(one.workflows) > 1 else of
    words = (
        f"looked at {pluralize(one.runs, 'run')}{of}, with {pluralize(one.failures, 'failed attempt')} and "
        f"{pluralize(one.decisions, 'decision')}"
    )
    cut = "; older runs were left out" if one.is_cut else ""
    return words + cut + (f"; {pluralize(one.left_out, 'run')} had too many events" if one.left_out else "")


def _show_written(done: WrittenChanges | DraftedChanges, path: Path | None) -> None:
    for one in done.left_out:
        complain(f"{one.id} was not written: {single_line(one.why)}")
    if not done.written:
        return
    show("")
    show(done.diff)
    if isinstance(done, DraftedChanges):
        complain(f"wrote {pluralize(len(done.written), 'proposal')} into the draft of '{done.workflow}'")
    else:
        complain(f"wrote {pluralize(len(done.written), 'proposal')} into {path}")
