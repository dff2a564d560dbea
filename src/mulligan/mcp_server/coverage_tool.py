"""The tool that plays a workflow: what it does about each failure of each step."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.analysis.coverage.explore import CaseStory
from mulligan.analysis.coverage.results import Coverage, Times
from mulligan.analysis.coverage.summary import summarize
from mulligan.errors import InputInvalid
from mulligan.mcp_server.argument_types import File, Text, Version, WorkflowName
from mulligan.mcp_server.tool import Arguments, Tool, ToolCall
from mulligan.service.rendering.json_output import to_json

Format = Annotated[
    str, msgspec.Meta(description="The system whose file it is, if that is not recognized: torc, noetl …")
]


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
        return call.service.workflows.published_coverage(asked.name, asked.version)
    if asked.file:
        call.access.refuse_files()
        return call.service.workflows.coverage(asked.file, named=asked.format)
    return call.service.workflows.text_coverage(asked.text, format=asked.format)


def _case(call: ToolCall, asked: CoverageArguments) -> CaseStory:
    case = (asked.step, asked.failure, asked.times)
    if asked.name:
        return call.service.workflows.published_coverage_story(asked.name, asked.version, *case)
    if asked.file:
        call.access.refuse_files()
        return call.service.workflows.coverage_story(asked.file, *case, named=asked.format)
    return call.service.workflows.text_coverage_story(asked.text, *case, format=asked.format)


TOOLS = (
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
)
