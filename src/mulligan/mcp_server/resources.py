"""What a client can read by address: runs, logs, reports, workflows, pages, the schema. Nothing here needs `mcp`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mulligan.errors import NotFound
from mulligan.mcp_server.answers import as_text, present
from mulligan.mcp_server.run_read_tools import REPORT_PAGE
from mulligan.mcp_server.untrusted import mark_page
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.runs.views.run_view import RUN_HEAD, part
from mulligan.service.service import Service

JSON, HTML, TEXT = "application/json", "text/html", "text/markdown"
# A page that clients show in a sandboxed frame.
APP = "text/html;profile=mcp-app"
# How many runs and workflows are listed; templates reach all.
RUNS_LISTED, WORKFLOWS_LISTED = 20, 50
LOG_LINES = 200


class UnknownResource(NotFound):
    """There is nothing at this address."""

    code = "resource.unknown"


@dataclass(frozen=True)
class Listed:
    """An address that is listed."""

    address: str
    name: str
    describe: str
    media: str


@dataclass(frozen=True)
class Template(Listed):
    """A family of addresses, written as RFC 6570 does, where a part with + may have slashes; and how one is read."""

    read: Callable[[Service, Mapping[str, str]], str]

    def match(self, address: str) -> dict[str, str] | None:
        """The parts of an address, if it is one of these."""
        pattern = re.escape(self.address)
        pattern = re.sub(r"\\\{\\\+(\w+)\\\}", r"(?P<\1>.+)", pattern)
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", pattern)
        found = re.fullmatch(pattern, address)
        return None if found is None else {name: unquote(value) for name, value in found.groupdict().items()}

    @property
    def is_single(self) -> bool:
        return "{" not in self.address


def _run(service: Service, parts: Mapping[str, str]) -> str:
    return as_text(present(part(service.details.head(_number(parts, "run_id")), RUN_HEAD)))


def _report(service: Service, parts: Mapping[str, str]) -> str:
    found = service.runs.report(_number(parts, "run_id"), datetime.now(UTC))
    return mark_page(service.runs.report_page(found, folder=None, home_option=""))


def _log(service: Service, parts: Mapping[str, str]) -> str:
    stream: Any = parts["stream"]
    if stream not in ("stdout", "stderr"):
        raise UnknownResource(f"'{stream}' is not a stream of a log", hint="stdout or stderr")
    page = service.logs.pages.read(
        _number(parts, "run_id"), parts["place"], attempt=_number(parts, "attempt"), stream=stream, limit=LOG_LINES
    )
    return as_text(present(page))


def _workflow(service: Service, parts: Mapping[str, str]) -> str:
    return as_text(present(service.catalogue.workflow(parts["name"])))


def _schema(service: Service, _: Mapping[str, str]) -> str:
    return service.workflows.schema_text()


def _page(service: Service, parts: Mapping[str, str]) -> str:
    found = service.documentation.read(parts["page"])
    return service.documentation.pages[found.page]


def _app(_: Service, __: Mapping[str, str]) -> str:
    return (Path(__file__).parent / "report_app.html").read_text(encoding="utf-8")


def _number(parts: Mapping[str, str], name: str) -> int:
    text = parts[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise UnknownResource(
            f"'{text[:50]}' is not a number", hint=f"write the number of the {name.partition('_')[0]}"
        )
    return int(text)


TEMPLATES = (
    Template("mulligan://schema", "schema", "The JSON Schema of workflow files.", JSON, _schema),
    Template("mulligan://runs/{run_id}", "run", "A run without its steps.", JSON, _run),
    Template("mulligan://runs/{run_id}/report", "report", "The report of a run, as a page for people.", HTML, _report),
    Template(
        "mulligan://runs/{run_id}/logs/{place}/{attempt}/{stream}",
        "log",
        f"The last {LOG_LINES} lines that an attempt wrote to stdout or stderr.",
        JSON,
        _log,
    ),
    Template("mulligan://workflows/{name}", "workflow", "The newest version of a published workflow.", JSON, _workflow),
    Template("mulligan://docs/{+page}", "page", "A page of Mulligan's documentation.", TEXT, _page),
    Template(REPORT_PAGE, "report page", "Shows the report of a run in the client.", APP, _app),
)


def list_resources(service: Service) -> Iterator[Listed]:
    """What has one address, then the newest runs and the published workflows."""
    for one in TEMPLATES:
        if one.is_single:
            yield one
    for run in service.runs.page(RunQuery(limit=RUNS_LISTED)).runs:
        address = f"mulligan://runs/{run.run_id}"
        yield Listed(address, f"run {run.run_id}", f"{run.workflow}: {run.status}", JSON)
    for workflow in service.catalogue.workflows(limit=WORKFLOWS_LISTED).workflows:
        address = f"mulligan://workflows/{quote(workflow.name, safe='')}"
        yield Listed(address, workflow.name, f"workflow, version {workflow.version}", JSON)


def read_resource(service: Service, address: str) -> tuple[str, str]:
    """The media type and the text at an address. `UnknownResource`, and what the service raises."""
    for one in TEMPLATES:
        parts = one.match(address)
        if parts is not None:
            return one.media, one.read(service, parts)
    known = ", ".join(one.address for one in TEMPLATES)
    raise UnknownResource(f"there is nothing at '{address[:200]}'", hint=f"addresses are: {known}", uri=address[:200])
