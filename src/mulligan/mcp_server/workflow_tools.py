"""Tools that read workflows and our own pages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import File, PageSize, Text, Version, WorkflowName
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service.authoring import workflow_files
from mulligan.service.authoring.values import parse_time
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.rendering.json_output import to_json

# What one call may look at.
WHATIF_RUNS_MAX, WHATIF_SECONDS_MAX = 2_000, 20.0


class ListWorkflows(Arguments, frozen=True):
    after: Annotated[str, msgspec.Meta(description="`next` of the page before; leave it out for the first page.")] = ""
    limit: PageSize = 50


def list_workflows(call: ToolCall) -> Any:
    found = call.service.catalogue.workflows(after=call.arguments.after, limit=call.arguments.limit)
    return to_json(found)


class GetWorkflow(Arguments, frozen=True):
    name: WorkflowName = ""
    version: Version | None = None
    run_id: (
        Annotated[
            int, msgspec.Meta(ge=1, le=2**63 - 1, description="The workflow that this run uses, instead of a name.")
        ]
        | None
    ) = None


def get_workflow(call: ToolCall) -> Any:
    asked: GetWorkflow = call.arguments
    if bool(asked.name) == (asked.run_id is not None):
        raise InputInvalid("name a workflow or a run", hint="give exactly one of name, run_id", argument="name")
    if asked.run_id is None:
        return to_json(call.service.catalogue.workflow(asked.name, asked.version))
    if asked.version is not None:
        raise InputInvalid("a run uses one version", hint="leave 'version' out", argument="version")
    return to_json(call.service.runs.workflow(asked.run_id))


class ValidateWorkflow(Arguments, frozen=True):
    text: Text = ""
    file: File = ""
    format: (
        Annotated[
            str, msgspec.Meta(description="The system whose file it is, if that is not recognized: torc, noetl …")
        ]
        | None
    ) = None


def validate_workflow(call: ToolCall) -> Any:
    asked: ValidateWorkflow = call.arguments
    if bool(asked.text) == bool(asked.file):
        raise InputInvalid("give a text or a file", hint="give exactly one of text, file", argument="text")
    if asked.file:
        call.access.refuse_files()
        return to_json(workflow_files.validate(Path(asked.file), named=asked.format))
    return to_json(call.service.catalogue.validate(asked.text, format=asked.format))


class WhatIfArguments(Arguments, frozen=True):
    text: Text = ""
    file: File = ""
    name: Annotated[str, msgspec.Meta(description="Whose runs; by default those of the name in the text.")] = ""
    since: Annotated[str, msgspec.Meta(description="Only runs since then: 30d, 2026-11-01T08:00:00Z.")] = ""
    step: Annotated[str, msgspec.Meta(description="Only runs in which an attempt of this step failed.")] = ""
    run_ids: Annotated[tuple[int, ...], msgspec.Meta(max_length=100, description="Only these runs.")] = ()
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31, description="Another one draws other estimates.")] = 0


def whatif(call: ToolCall) -> Any:
    asked: WhatIfArguments = call.arguments
    if bool(asked.text) == bool(asked.file):
        raise InputInvalid("give a text or a file", hint="give exactly one of text, file", argument="text")
    selection = WhatIfSelection(
        workflow=asked.name,
        since=parse_time(asked.since, datetime.now(UTC)) if asked.since else None,
        run_ids=asked.run_ids,
        step=asked.step,
        seed=asked.seed,
        runs_max=WHATIF_RUNS_MAX,
        seconds_max=WHATIF_SECONDS_MAX,
        listed_max=20,
    )
    if asked.file:
        call.access.refuse_files()
        return to_json(call.service.workflows.whatif(call.service.workflows.load_workflow(asked.file), selection))
    return to_json(call.service.workflows.whatif_of_text(asked.text, selection))


class Docs(Arguments, frozen=True):
    query: Annotated[
        str, msgspec.Meta(max_length=500, description="Words to search for, such as: retry rule exit code backoff.")
    ] = ""
    page: Annotated[str, msgspec.Meta(description="Read this page, such as concepts/ladder.md.")] = ""
    section: Annotated[str, msgspec.Meta(description="Only this section of the page, by its heading.")] = ""
    start: Annotated[int, msgspec.Meta(ge=0, lt=2**31, description="`next` of the part before.")] = 0


def docs(call: ToolCall) -> Any:
    asked: Docs = call.arguments
    pages = call.service.documentation
    if asked.page:
        return to_json(pages.read(asked.page, asked.section, asked.start))
    if asked.query:
        return {"found": to_json(pages.search(asked.query))}
    return {"pages": sorted(pages.pages)}


TOOLS = (
    Tool(
        "list_workflows",
        "read",
        "List the newest version of each published workflow, by name.",
        ListWorkflows,
        list_workflows,
    ),
    Tool(
        "get_workflow",
        "read",
        "The text of a published workflow, or of the workflow that a run uses.",
        GetWorkflow,
        get_workflow,
        is_slow=True,
    ),
    Tool(
        "validate_workflow",
        "read",
        "Check a workflow and say what is wrong and where. Nothing is stored and nothing is run. Check every text "
        "that you write before you propose or start it.",
        ValidateWorkflow,
        validate_workflow,
        is_slow=True,
    ),
    Tool(
        "whatif",
        "read",
        "Try a changed workflow on the runs that are recorded: how many would have ended otherwise, which decisions of "
        "people would not have been needed, attempts and time more or less, and what of that is a fact or an estimate. "
        "Nothing is run and nothing stored. Try every rule that you propose.",
        WhatIfArguments,
        whatif,
        is_slow=True,
    ),
    Tool(
        "docs",
        "read",
        "Search the pages of Mulligan's own documentation, or read one: how to write workflows, retry rules, "
        "handlers, triage, and what each failure code means. Without arguments: the list of pages.",
        Docs,
        docs,
        is_ours=True,
    ),
)
