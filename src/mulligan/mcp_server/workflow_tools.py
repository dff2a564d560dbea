"""Tools for workflows: read, check, play and try them, look up how to write them, and propose changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from mulligan.analysis.coverage.results import Times
from mulligan.analysis.coverage.summary import summarize
from mulligan.api.areas.run_filters import moment_of
from mulligan.errors import InputInvalid, ScopeMissing
from mulligan.mcp_server.argument_types import File, PageSize, Text, Version, WorkflowName
from mulligan.mcp_server.tool import Arguments, ToolCall, Tools
from mulligan.service.authoring import workflow_files
from mulligan.service.authoring.coverage import PlayedWorkflow
from mulligan.service.authoring.served_coverage import PlayedText
from mulligan.service.authoring.suggest import Suggestions
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.catalogue.catalogue import Proposal

TOOLS = Tools()

# What one call of a what-if may look at.
RUNS_MAX, SECONDS_MAX = 2_000, 20.0

Format = Annotated[
    str, msgspec.Meta(description="The system whose file it is, if that is not recognized: torc, noetl …")
]


class ListWorkflows(Arguments, frozen=True):
    after: Annotated[str, msgspec.Meta(description="`next` of the page before; leave it out for the first page.")] = ""
    limit: PageSize = 50


@TOOLS.add("read", "List the newest version of each published workflow, by name.")
def list_workflows(call: ToolCall, asked: ListWorkflows) -> Any:
    return call.service.catalogue.workflows(after=asked.after, limit=asked.limit)


class GetWorkflow(Arguments, frozen=True):
    name: WorkflowName = ""
    version: Version | None = None
    run_id: (
        Annotated[
            int, msgspec.Meta(ge=1, le=2**63 - 1, description="The workflow that this run uses, instead of a name.")
        ]
        | None
    ) = None


@TOOLS.add("read", "The text of a published workflow, or of the workflow that a run uses.", is_slow=True)
def get_workflow(call: ToolCall, asked: GetWorkflow) -> Any:
    if bool(asked.name) == (asked.run_id is not None):
        raise InputInvalid("name a workflow or a run", hint="give exactly one of name, run_id", argument="name")
    if asked.run_id is None:
        return call.service.catalogue.workflow(asked.name, asked.version)
    if asked.version is not None:
        raise InputInvalid("a run uses one version", hint="leave 'version' out", argument="version")
    return call.service.runs.workflow(asked.run_id)


class ValidateWorkflow(Arguments, frozen=True):
    text: Text = ""
    file: File = ""
    format: Format | None = None


@TOOLS.add(
    "read",
    "Check a workflow and say what is wrong and where. Nothing is stored and nothing is run. Check every text "
    "that you write before you propose or start it.",
    is_slow=True,
)
def validate_workflow(call: ToolCall, asked: ValidateWorkflow) -> Any:
    if _is_file(call, asked):
        return workflow_files.validate(Path(asked.file), named=asked.format)
    return call.service.catalogue.validate(asked.text, format=asked.format)


def _is_file(call: ToolCall, asked: ValidateWorkflow | WhatIfArguments) -> bool:
    """Whether a file is named, and no text sent. `InputInvalid` for neither, both, and a file over HTTP."""
    if bool(asked.text) == bool(asked.file):
        raise InputInvalid("give a text or a file", hint="give exactly one of text, file", argument="text")
    if asked.file:
        call.access.refuse_files()
    return bool(asked.file)


class WhatIfArguments(Arguments, frozen=True):
    text: Text = ""
    file: File = ""
    name: Annotated[str, msgspec.Meta(description="Whose runs; by default those of the name in the text.")] = ""
    since: Annotated[str, msgspec.Meta(description="Only runs since then: 30d, 2026-11-01T08:00:00Z.")] = ""
    step: Annotated[str, msgspec.Meta(description="Only runs in which an attempt of this step failed.")] = ""
    run_ids: Annotated[tuple[int, ...], msgspec.Meta(max_length=100, description="Only these runs.")] = ()
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31, description="Another one draws other estimates.")] = 0


@TOOLS.add(
    "read",
    "Try a changed workflow on the runs that are recorded: how many would have ended otherwise, which decisions of "
    "people would not have been needed, attempts and time more or less, and what of that is a fact or an estimate. "
    "Nothing is run and nothing stored. Try every rule that you propose.",
    is_slow=True,
)
def whatif(call: ToolCall, asked: WhatIfArguments) -> Any:
    is_file = _is_file(call, asked)
    selection = WhatIfSelection(
        workflow=asked.name,
        since=moment_of(asked.since),
        run_ids=asked.run_ids,
        step=asked.step,
        seed=asked.seed,
        runs_max=RUNS_MAX,
        seconds_max=SECONDS_MAX,
        listed_max=20,
    )
    workflows = call.service.workflows
    if is_file:
        return workflows.whatif(workflows.load_workflow(asked.file), selection)
    return workflows.whatif_of_text(asked.text, selection)


class Docs(Arguments, frozen=True):
    query: Annotated[
        str, msgspec.Meta(max_length=500, description="Words to search for, such as: retry rule exit code backoff.")
    ] = ""
    page: Annotated[str, msgspec.Meta(description="Read this page, such as concepts/ladder.md.")] = ""
    section: Annotated[str, msgspec.Meta(description="Only this section of the page, by its heading.")] = ""
    start: Annotated[int, msgspec.Meta(ge=0, lt=2**31, description="`next` of the part before.")] = 0


@TOOLS.add(
    "read",
    "Search the pages of Mulligan's own documentation, or read one: how to write workflows, retry rules, "
    "handlers, triage, and what each failure code means. Without arguments: the list of pages.",
    is_ours=True,
)
def docs(call: ToolCall, asked: Docs) -> Any:
    pages = call.service.documentation
    if asked.page:
        return pages.read(asked.page, asked.section, asked.start)
    if asked.query:
        return {"found": to_json(pages.search(asked.query))}
    return {"pages": sorted(pages.pages)}


class CoverageArguments(Arguments, frozen=True):
    name: WorkflowName = ""
    version: Version | None = None
    text: Text = ""
    file: File = ""
    format: Format | None = None
    step: Annotated[str, msgspec.Meta(description="With `failure`: what happens in this case, line by line.")] = ""
    failure: Annotated[str, msgspec.Meta(description="A failure as the holes of the whole answer name it.")] = ""
    times: Annotated[Times, msgspec.Meta(description="How often it happens in that case.")] = "always"


@TOOLS.add(
    "read",
    "What a workflow does about each failure of each step, before it happens: played in memory, nothing is run. "
    "The answer has what nothing deals with, and findings with hints. Use it on every workflow that you write or "
    "change. With a step and a failure: the story of that case.",
    is_slow=True,
)
def coverage(call: ToolCall, asked: CoverageArguments) -> Any:
    if [bool(asked.name), bool(asked.text), bool(asked.file)].count(True) != 1:
        raise InputInvalid("name one workflow", hint="give exactly one of name, text, file", argument="name")
    if bool(asked.step) != bool(asked.failure):
        missing = "failure" if asked.step else "step"
        raise InputInvalid("a case is a step and a failure", hint=f"give '{missing}' too", argument=missing)
    if asked.file:
        call.access.refuse_files()
    if asked.step:
        return _played(call, asked).story_of_case(asked.step, asked.failure, asked.times)
    return summarize(_played(call, asked).cover())


def _played(call: ToolCall, asked: CoverageArguments) -> PlayedWorkflow | PlayedText:
    if asked.name:
        return call.service.workflows.play_published(asked.name, asked.version)
    if asked.file:
        return call.service.workflows.play(asked.file, named=asked.format)
    return call.service.workflows.play_text(asked.text, format=asked.format)


class SuggestRules(Arguments, frozen=True):
    workflow: WorkflowName = ""
    since: Annotated[
        str, msgspec.Meta(max_length=40, description="Only runs started since then: how long ago (30d), or a date.")
    ] = ""
    step: Annotated[str, msgspec.Meta(max_length=200, description="Only this step.")] = ""


@TOOLS.add(
    "read",
    "Which retry rules, limits and circuit breakers the runs of a store speak for, and which rules and handlers "
    "never helped: each proposal with its evidence and as YAML, what would save most first. Nothing is changed; to "
    "change a workflow, put the YAML into its text and call `propose_workflow`.",
    is_slow=True,
)
def suggest_rules(call: ToolCall, asked: SuggestRules) -> Suggestions:
    return call.service.workflows.suggest(asked.workflow, since=moment_of(asked.since), step=asked.step)


class ProposeWorkflow(Arguments, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, description="The name of the workflow, published or new.")]
    text: Annotated[str, msgspec.Meta(min_length=1, description="The whole text of the workflow file.")]
    note: Annotated[str, msgspec.Meta(description="Why: what it changes and which failure it is about.")] = ""
    dry_run: Annotated[bool, msgspec.Meta(description="Only show what it would change, and write no draft.")] = False


@TOOLS.add(
    "propose",
    "Propose a workflow or a change of one: write a draft and show what differs from the newest version. Nothing "
    "runs it until a person publishes it. A draft of somebody else is never overwritten.",
)
def propose_workflow(call: ToolCall, asked: ProposeWorkflow) -> Proposal:
    workflows = call.service.limits.workflows
    if workflows and asked.name not in workflows:
        raise ScopeMissing(
            f"this token may not propose a change of '{asked.name}'",
            hint=f"it is for {', '.join(workflows[:10])}",
            workflow=asked.name,
        )
    return call.service.catalogue.propose(**asdict(asked))
