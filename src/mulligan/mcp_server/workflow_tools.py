"""Tools that read workflows and our own pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import File, PageSize, Text, Version, WorkflowName
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service import CaseStory, Coverage, Times, summarize, to_json

Format = Annotated[
    str, msgspec.Meta(description="The system whose file it is, if that is not recognized: torc, noetl …")
]


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
    return to_json(call.service.run_workflow(asked.run_id))


class ValidateWorkflow(Arguments, frozen=True):
    text: Text = ""
    file: File = ""
    format: Format | None = None


def validate_workflow(call: ToolCall) -> Any:
    asked: ValidateWorkflow = call.arguments
    if bool(asked.text) == bool(asked.file):
        raise InputInvalid("give a text or a file", hint="give exactly one of text, file", argument="text")
    if asked.file:
        call.access.refuse_files()
        return to_json(call.service.validate(Path(asked.file), named=asked.format))
    return to_json(call.service.catalogue.validate(asked.text, format=asked.format))


class CoverageArguments(Arguments, frozen=True):
    name: WorkflowName = ""
    version: Version | None = None
    text: Text = ""
    file: File = ""
    format: Format | None = None
    step: Annotated[str, msgspec.Meta(description="With `failure`: what happens in this case, line by line.")] = ""
    failure: Annotated[str, msgspec.Meta(description="A failure as the holes of the whole answer name it.")] = ""
    times: Annotated[Times, msgspec.Meta(description="How often it happens in that case.")] = "always"


def coverage(call: ToolCall) -> Any:
    asked: CoverageArguments = call.arguments
    if [bool(asked.name), bool(asked.text), bool(asked.file)].count(True) != 1:
        raise InputInvalid("name one workflow", hint="give exactly one of name, text, file", argument="name")
    if bool(asked.step) != bool(asked.failure):
        missing = "failure" if asked.step else "step"
        raise InputInvalid("a case is a step and a failure", hint=f"give '{missing}' too", argument=missing)
    if asked.step:
        return to_json(_case(call, asked))
    return to_json(summarize(_coverage(call, asked)))


def _coverage(call: ToolCall, asked: CoverageArguments) -> Coverage:
    if asked.name:
        return call.service.published_coverage(asked.name, asked.version)
    if asked.file:
        call.access.refuse_files()
        return call.service.coverage(asked.file, named=asked.format)
    return call.service.text_coverage(asked.text, format=asked.format)


def _case(call: ToolCall, asked: CoverageArguments) -> CaseStory:
    case = (asked.step, asked.failure, asked.times)
    if asked.name:
        return call.service.published_coverage_story(asked.name, asked.version, *case)
    if asked.file:
        call.access.refuse_files()
        return call.service.coverage_story(asked.file, *case, named=asked.format)
    return call.service.text_coverage_story(asked.text, *case, format=asked.format)


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
        "coverage",
        "read",
        "What a workflow does about each failure of each step, before it happens: played in memory, nothing is run. "
        "The answer has what nothing deals with, and findings with hints. Use it on every workflow that you write or "
        "change. With a step and a failure: the story of that case.",
        CoverageArguments,
        coverage,
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
