"""Rules from history: reads the newest runs one after the other, and proposes changes of their workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from mulligan.analysis.suggest.changes import AddRule, Change, RemoveRule, apply_change, steps_by_name
from mulligan.analysis.suggest.evidence import Evidence
from mulligan.analysis.suggest.proposals import Counted, Kind, Nearly, Proposal, Saving
from mulligan.analysis.suggest.propose import Proposed, propose
from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model.workflow import Step, Workflow, decode
from mulligan.errors import CodecError, InputInvalid, LanguageError, MulliganError, NotFound, UnknownStep
from mulligan.formats import OURS, examine, title_of
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import RunRecord
from mulligan.service.authoring.named_files import read_file, write_file
from mulligan.service.authoring.whatif import WhatIfSelection, whatif
from mulligan.service.runs.stored.damaged_runs import readable_runs
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.catalogue.catalogue import NOTE_CHARS_MAX, Catalogue, refuse_files
from mulligan.service.server.catalogue.change_edits import change_text, edit_change
from mulligan.service.server.catalogue.text_diff import diff_as_text, diff_texts
from mulligan.service.server.catalogue.texts import WorkflowText, read_text

# How many runs are read, the newest first, and how many events of them all together.
RUNS_MAX, EVENTS_MAX = 5_000, 3_000_000
# How many definitions are kept while the runs are read. Runs of one version follow each other.
_DEFINITIONS_MAX = 16
_PYTHON = (".py", ".pyw")
# How many proposals are tried on recorded runs, on how many of the newest, and for how long each.
TRIED_MAX, TRIED_RUNS, TRIED_SECONDS = 8, 200, 5.0


class WhatIfFigures(msgspec.Struct, frozen=True):
    """What the change would have made of recorded runs in which the step failed; see `mulligan whatif`."""

    # How many runs were decided again, and how many of these by recorded outcomes alone.
    runs: int
    facts: int
    completed_before: int
    completed_now: int
    decisions_saved: int
    decisions_added: int
    # More attempts and seconds than there were; negative for fewer.
    attempts: int
    seconds: float


class SuggestedChange(msgspec.Struct, frozen=True):
    """A proposal as faces show it."""

    # The same whenever the same change is proposed; a few digits.
    id: str
    workflow: str
    step: str
    kind: Kind
    # What was seen, and what is proposed, each in a sentence.
    evidence: str
    proposal: str
    # The change as a part of a file; "" if something is taken away, or somebody has to look.
    yaml: str
    counted: Counted
    saving: Saving
    change: Change | None
    # None if it was not tried: only rules are, and only the first proposals.
    what_if: WhatIfFigures | None = None


class LookedAt(msgspec.Struct, frozen=True):
    """How much was looked at."""

    workflows: list[str]
    runs: int
    failed_runs: int
    failures: int
    decisions: int
    events: int
    # How many questions were asked: the more, the more evidence each answer needs.
    questions: int
    since: datetime | None = None
    # Older runs that were not read, and runs with too many events.
    is_cut: bool = False
    left_out: int = 0


class Suggestions(msgspec.Struct, frozen=True):
    """What the runs of a store say about their workflows, what would save most first."""

    proposals: list[SuggestedChange]
    # What has too little evidence yet, and how much would be enough.
    nearly: list[Nearly]
    looked_at: LookedAt


class LeftOut(msgspec.Struct, frozen=True):
    """A proposal that was not written, and why."""

    id: str
    why: str


class WrittenChanges(msgspec.Struct, frozen=True):
    """What became of a text: which proposals are in it now, and which could not be written in place."""

    text: str
    written: list[str]
    left_out: list[LeftOut]
    # What differs, line by line.
    diff: str


class DraftedChanges(msgspec.Struct, frozen=True):
    """A draft with proposals in it, which somebody has to publish."""

    workflow: str
    written: list[str]
    left_out: list[LeftOut]
    diff: str
    # Of the draft; 0 if it was not written.
    revision: int = 0
    dry_run: bool = False


def suggest(
    reader: RunReader,
    *,
    named: str = "",
    policy: Workflow | None = None,
    published: Callable[[str], Workflow | None] = lambda name: None,
    since: datetime | None = None,
    step: str = "",
    is_checked: bool = True,
) -> Suggestions:
    """What should change in one workflow, or in all of them.

    With `is_checked`, a rule is tried on the recorded runs before it is shown. `policy` is the workflow as it would be
    changed: by default the published one, or that of the newest run.
    """
    name = policy.name if policy is not None else named
    records, is_cut = _newest(reader, name, since)
    if name and not records:
        raise _unknown(reader, name, since)
    evidence, left_out = _read(reader, records)
    policies = {one: policy or published(one) or _newest_definition(reader, records, one) for one in evidence}
    if step:
        _keep_step(evidence, policies, step)
    found = propose((evidence[one], policies[one]) for one in sorted(evidence))
    some = evidence.values()
    looked_at = LookedAt(
        workflows=sorted(evidence),
        runs=sum(one.runs for one in some),
        failed_runs=sum(one.failed_runs for one in some),
        failures=sum(one.failures for one in some),
        decisions=sum(one.decisions for one in some),
        events=sum(one.events for one in some),
        questions=found.questions,
        since=since,
        is_cut=is_cut,
        left_out=left_out,
    )
    shown, nearly = _shown(found, policies), found.nearly
    if is_checked:
        shown, refuted = _checked(reader, shown, policies, since)
        nearly = [*refuted, *nearly]
    return Suggestions(shown, nearly, looked_at)


def _shown(found: Proposed, policies: dict[str, Workflow]) -> list[SuggestedChange]:
    by_name = {name: steps_by_name(policies[name]) for name in {one.workflow for one in found.proposals}}
    return [_as_change(one, by_name[one.workflow].get(one.step, [])) for one in found.proposals]


def _as_change(one: Proposal, steps: list[Step]) -> SuggestedChange:
    has_rules = any(step.rules for step in steps)
    return SuggestedChange(
        id=one.id,
        workflow=one.workflow,
        step=one.step,
        kind=one.kind,
        evidence=one.evidence,
        proposal=one.proposal,
        yaml=change_text(one.change, has_rules=has_rules) if one.change is not None else "",
        counted=one.counted,
        saving=one.saving,
        change=one.change,
    )


# -- trying ----------------------------------------------------------------------------------------------------------


def _checked(
    reader: RunReader, shown: list[SuggestedChange], policies: dict[str, Workflow], since: datetime | None
) -> tuple[list[SuggestedChange], list[Nearly]]:
    """The proposals with what they would have made of recorded runs, without those that would have made it worse."""
    kept: list[SuggestedChange] = []
    refuted: list[Nearly] = []
    for number, one in enumerate(shown):
        figures = _try(reader, one, policies[one.workflow], since) if number < TRIED_MAX else None
        if figures is not None and figures.completed_now < figures.completed_before:
            fewer = figures.completed_before - figures.completed_now
            needed = f"no run that gets worse: with '{one.proposal}' {fewer:,} fewer runs would have completed"
            refuted.append(Nearly(one.workflow, one.step, one.evidence, needed, one.counted.runs))
        else:
            kept.append(msgspec.structs.replace(one, what_if=figures))
    return kept, refuted


def _try(reader: RunReader, one: SuggestedChange, policy: Workflow, since: datetime | None) -> WhatIfFigures | None:
    """What the runs in which the step failed would have become with the rule; None if that cannot be said."""
    if not isinstance(one.change, AddRule | RemoveRule):
        return None
    # The steps of a matrix have names of their own.
    step = one.step if any(each.name == one.step for each in policy.steps) else ""
    selection = WhatIfSelection(since=since, step=step, runs_max=TRIED_RUNS, seconds_max=TRIED_SECONDS, listed_max=0)
    try:
        found = whatif(reader, apply_change(policy, one.change), selection)
    except MulliganError:
        return None
    if not found.decided:
        return None
    return WhatIfFigures(
        runs=found.decided,
        facts=found.facts,
        completed_before=found.completed_before,
        completed_now=found.completed_now,
        decisions_saved=found.decisions_saved,
        decisions_added=found.decisions_added,
        attempts=found.attempts,
        seconds=round(found.seconds, 3),
    )


# -- reading ---------------------------------------------------------------------------------------------------------


def _newest(reader: RunReader, name: str, since: datetime | None) -> tuple[list[RunRecord], bool]:
    """The newest runs of a workflow, or of all, and whether there are more."""
    if not reader.home.is_there:
        return [], False
    wanted = RunFilter(workflows=(name,) if name else (), since=since, with_children=True, project=reader.project)
    found = reader.store.lists.find(wanted, limit=RUNS_MAX + 1)
    return found[:RUNS_MAX], len(found) > RUNS_MAX


def _read(reader: RunReader, records: Sequence[RunRecord]) -> tuple[dict[str, Evidence], int]:
    """The evidence of each workflow, and how many runs had too many events to be read."""
    found: dict[str, Evidence] = {}
    definitions: dict[tuple[str, str], Workflow] = {}
    budget, left_out = EVENTS_MAX, 0
    by_id = {record.run_id: record for record in records}

    def read(run_id: int) -> None:
        record = by_id[run_id]
        definition, events = _definition(reader, record, definitions), list(reader.events(run_id))
        found.setdefault(record.workflow, Evidence(record.workflow)).add_run(run_id, definition, events)

    affordable: list[int] = []
    for record in records:
        if record.seq > budget:
            left_out += 1
            continue
        budget -= record.seq
        affordable.append(record.run_id)
    for _ in readable_runs(reader, affordable, read):
        pass
    return found, left_out


def _definition(reader: RunReader, record: RunRecord, known: dict[tuple[str, str], Workflow]) -> Workflow:
    """The workflow that a run was started with. One that was corrected meanwhile has another version."""
    key = record.project, record.version
    if key in known:
        return known[key]
    workflow = decode(reader.store.load(record.run_id).workflow)
    if len(known) >= _DEFINITIONS_MAX:
        del known[next(iter(known))]
    known[key] = workflow
    return workflow


def _newest_definition(reader: RunReader, records: Sequence[RunRecord], name: str) -> Workflow:
    runs = (record.run_id for record in records if record.workflow == name)
    found = next(readable_runs(reader, runs, lambda run_id: reader.lazy_state(run_id).workflow), None)
    if found is None:
        raise CodecError(f"no run of '{name}' can be read", hint="look for damaged ones: mulligan doctor")
    return found


def _keep_step(evidence: dict[str, Evidence], policies: dict[str, Workflow], step: str) -> None:
    """Look at one step only: fewer questions, so each needs less evidence."""
    known = {one.sweep or one.name for policy in policies.values() for one in policy.steps}
    if step not in known:
        raise UnknownStep(f"there is no step '{step}'", hint=did_you_mean(step, known), step=step)
    for one in evidence.values():
        one.steps = {name: of for name, of in one.steps.items() if name == step}


def _unknown(reader: RunReader, name: str, since: datetime | None) -> NotFound:
    known = {record.workflow for record in _newest(reader, "", None)[0]}
    if name in known and since is not None:
        return NotFound(f"no run of '{name}' was started in this time", hint="give a longer --since", workflow=name)
    hint = did_you_mean(name, known) or "runs are stored where they were started; list them: mulligan list"
    return NotFound(f"there is no run of '{name[:100]}'", hint=hint, workflow=name)


# -- writing ---------------------------------------------------------------------------------------------------------


def write_into_file(path: Path, chosen: Sequence[SuggestedChange]) -> WrittenChanges:
    """Write the changes into a file of ours; everything else in it stays as it is."""
    if why := why_not_written(path):
        return WrittenChanges("", [], [LeftOut(one.id, why) for one in chosen], "")
    data = read_file(path)
    text = data.decode("utf-8-sig")
    mark = data[: len(data) - len(text.encode())]
    found = write_into_text(text, chosen, lambda new: examine(path, text=new).workflow)
    if found.written:
        write_file(path, mark + found.text.encode())
    return found


def why_not_written(path: Path) -> str:
    """Why a file is not edited in place: it is a Python file, or one of another system. "" for a file of ours."""
    if path.suffix.lower() in _PYTHON:
        return f"'{path}' is a Python file, which is not edited; add the rule to the call that makes the step"
    origin = examine(path).workflow.origin
    if origin and origin != OURS:
        return f"'{path}' is a file of {title_of(origin)}; convert it first: mulligan convert {path}"
    return ""


def write_into_draft(
    catalogue: Catalogue, by: str, name: str, chosen: Sequence[SuggestedChange], *, dry_run: bool = False
) -> DraftedChanges:
    """Write the changes into a draft of a published workflow: one's own, if there is one, or the newest version.

    `Refused` where somebody else has a draft.
    """
    published = catalogue.workflow(name)
    if published.format != OURS:
        message = f"'{name}' is a file of {title_of(published.format)}, so nothing is written"
        raise InputInvalid(message, hint="convert it first, and publish the result")
    refuse_files(published)
    text, file = published.text or "", published.file
    try:
        draft = catalogue.draft(name)
        text = draft.text if draft.updated_by == by else text
    except NotFound:
        pass
    found = write_into_text(text, chosen, lambda new: read_text(WorkflowText(new, file, OURS)).workflow)
    if not found.written:
        return DraftedChanges(name, [], found.left_out, "", dry_run=dry_run)
    note = "; ".join(one.proposal for one in chosen if one.id in found.written)
    stored = catalogue.propose(name, found.text, file=file, note=note[:NOTE_CHARS_MAX], dry_run=dry_run)
    return DraftedChanges(name, found.written, found.left_out, found.diff, stored.revision, dry_run)


def choose(found: Suggestions, ids: Sequence[str]) -> list[SuggestedChange]:
    """The proposals with these ids, all without any. `NotFound` for one that is not there."""
    known = {one.id: one for one in found.proposals}
    for one in ids:
        if one not in known:
            hint = f"there are {', '.join(known)}" if known else "nothing is proposed"
            raise NotFound(f"there is no proposal '{one[:20]}'", hint=hint)
    return [one for one in found.proposals if not ids or one.id in ids]


def write_into_text(text: str, chosen: Sequence[SuggestedChange], load: Callable[[str], Workflow]) -> WrittenChanges:
    """Write the changes one after the other. Each is kept only if the text then means exactly the old one with it."""
    current, workflow = text, load(text)
    written: list[str] = []
    left_out: list[LeftOut] = []
    for one, change in _in_order_of_writing(chosen):
        if change is None:
            left_out.append(
                LeftOut(one.id, "it cannot be written into the file: a person has to decide what to change")
            )
            continue
        try:
            edited = edit_change(current, change)
            means = load(edited)
        except (MulliganError, LanguageError) as refused:
            left_out.append(LeftOut(one.id, refused.message))
            continue
        wanted = apply_change(workflow, change)
        if means != wanted:
            left_out.append(LeftOut(one.id, "the step takes it from 'defaults', or shares it with others"))
            continue
        current, workflow = edited, wanted
        written.append(one.id)
    return WrittenChanges(current, written, left_out, diff_as_text(diff_texts(text, current)))


def _in_order_of_writing(chosen: Sequence[SuggestedChange]) -> Iterator[tuple[SuggestedChange, Change | None]]:
    """Rules are taken out from the last to the first, before others are added: each is named by its position."""

    def place(one: SuggestedChange) -> tuple[int, int]:
        if isinstance(one.change, RemoveRule):
            return 0, -one.change.index
        return (2, 0) if isinstance(one.change, AddRule) else (1, 0)

    return ((one, one.change) for one in sorted(chosen, key=place))
