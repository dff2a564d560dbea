"""Targets that a server takes from others: requests of its interface and of its pages, and calls of agents."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec

from mulligan.api.http.problems import PROBLEM
from mulligan.api.http.routing import Route
from mulligan.api.routes import ROUTES
from mulligan.dashboard.pages import PAGES
from mulligan.errors import MulliganError
from mulligan.mcp_server.answers import as_text, present, present_error
from mulligan.mcp_server.completions import complete
from mulligan.mcp_server.guarded_calls import Caller
from mulligan.mcp_server.prompts import PROMPTS, write_prompt
from mulligan.mcp_server.resources import TEMPLATES, list_resources, read_resource
from mulligan.mcp_server.tool import Access, Kind, Result
from mulligan.mcp_server.tool_table import BY_NAME
from mulligan.ports.server_records import TokenRecord
from mulligan.service.service import Service
from mulligan.store.http.http_calls import CALLS, PROTOCOL, PROTOCOL_HEADER, arguments_type

from .example_values import example_of, fields_of
from .sentences import Wrong, refusing, require, require_whole
from .served_home import NAME, STEP, served

_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_FOREIGN = re.compile(rb"Traceback \(most|object at 0x|&lt;class |<class '|RecursionError|NoneType")
# A request that waits for a change waits for as long as it says.
_WAIT = re.compile(r"seconds=[^&]*")
_CHANGES = "/api/v1/store/changes/"
_OF_WORKERS = ("/api/v1/store/worker/", "/api/v1/store/artifacts", "/api/v1/store/changes/worker")
SCOPES = ("read", "run", "decide", "propose", "write", "admin")


# -- requests --------------------------------------------------------------------------------------------------------


def request(data: bytes) -> None:
    """`METHOD /path?query`, a line break and a body: answered, or refused with a problem that says what is wrong."""
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    method, target = method if method in _METHODS else "POST", "".join(target.split())
    if not target.startswith("/"):
        target = f"/{target}"
    if "/doctor" in target:
        return  # it takes nothing, and starts programs to look at the machine
    if target.startswith(_CHANGES):
        path, _, query = target.partition("?")
        target = f"{path}?{_WAIT.sub('seconds=0', query)}" if "seconds=" in query else f"{path}?seconds=0"
    headers = {"content-type": "application/json", PROTOCOL_HEADER.lower(): str(PROTOCOL)} if body else {}
    who = "worker" if target.startswith(_OF_WORKERS) else "admin"
    reply = served().ask(who, method, target, body, headers)
    require(reply.status < 500, f"{method} {target[:200]}: {reply.status}: {reply.trouble[:500]}")
    # Steps may say anything in an answer; an error says what is wrong, in our own words.
    if reply.status < 400 or method == "HEAD":
        return
    if reply.media.startswith("text/html"):
        require(b"</html>" in reply.body, f"{method} {target[:200]}: half a page")
        return
    require(reply.media == PROBLEM, f"{method} {target[:200]}: {reply.status} as {reply.media}")
    problem = msgspec.json.decode(reply.body)
    said = f"{method} {target[:200]}: {problem}"
    require(problem["status"] == reply.status and bool(problem["code"]) and bool(problem["detail"]), said)
    if found := _FOREIGN.search(problem["detail"].encode("utf-8", "replace")):
        raise Wrong(f"'{found[0].decode()}' in the words of a problem: {said[:500]}")


@cache
def request_seeds() -> list[bytes]:
    """Each route with all of its parameters, and each call of a store, about what there is."""
    return [*map(_seed, (*ROUTES, *PAGES.routes)), *_store_seeds()]


def _seed(route: Route) -> bytes:
    path = re.sub(r"\{(?:run_id|index|attempt|seq):int\}", "1", route.full_path)
    path = path.replace("{step}", STEP).replace("{place}", STEP).replace("{name}", NAME).replace("{call}", "run")
    path = re.sub(r"\{\w+\}", "0" * 64, path)
    query = urlencode({name: value for name, value in fields_of(route.query).items() if value is not None}, doseq=True)
    body = b""
    if route.body is not None and route.body is not bytes:
        body = msgspec.json.encode(example_of(route.body))
    return f"{route.method} {path}{'?' if query else ''}{query}\n".encode() + body


def _store_seeds() -> Iterator[bytes]:
    for name, call in CALLS.items():
        arguments = msgspec.json.encode(example_of(arguments_type(name)))
        yield f"POST /api/v1/store/{call.scope}/{name}\n".encode() + arguments


# -- calls of agents -------------------------------------------------------------------------------------------------


class _Agent(Access):
    """An agent that may do everything, in this thread, as a server answers it."""

    scopes = SCOPES

    def __init__(self, service: Service) -> None:
        now = service.now()
        self._token = TokenRecord(id="t", digest="", user="agent:fuzz", scopes=("admin",), created_at=now)
        self._service = service.for_token(self._token)

    def caller(self, service: Service) -> Caller:
        return Caller(self._token, "/mcp/")

    async def in_thread(self, kind: Kind, work: Callable[[Service], Result]) -> Result:
        return work(self._service)


def tool_call(data: bytes) -> None:
    """The name of a tool and its arguments as JSON, an address of a resource, or a prompt: an answer, or a refusal."""
    line, _, body = data.partition(b"\n")
    name = line.decode("utf-8", "replace").strip()
    try:
        arguments = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # What is not JSON never gets this far: one text, for every argument.
        text = body.decode("utf-8", "replace")
        arguments = dict.fromkeys(("run_id", "step", "name", "text", "reason", "workflow"), text)
    if not isinstance(arguments, dict):
        arguments = {"": arguments}
    with _opened() as service:
        _called(name, arguments, service)


def _opened() -> Service:
    return Service(served().home(), "a fuzzer")


def _called(name: str, arguments: dict[str, Any], service: Service) -> None:
    texts = {str(key): value if isinstance(value, str) else str(value) for key, value in arguments.items()}
    with refusing():
        if name in BY_NAME:
            tool, access = BY_NAME[name], _Agent(service)
            try:
                answer = asyncio.run(access.call(tool, tool.decode(arguments)))
            except MulliganError as error:
                # What is not ours would be passed on as a bug.
                require(error.http_status < 500, f"{name}: {error.render()[:500]}")
                require_whole(error)
                msgspec.json.encode(present_error(error))
                return
            msgspec.json.decode(as_text(present(answer, is_ours=tool.is_ours)))
        elif "://" in name:
            _, text = read_resource(service, name)
            require(isinstance(text, str), "a resource that is no text")
        elif name in {one.name for one in PROMPTS}:
            write_prompt(name, texts)
        else:
            require(len(complete(service, name[:100], texts.get("text", name), texts)) <= 100, "too many completions")


@cache
def tool_seeds() -> list[bytes]:
    """Each tool with all of its arguments about what there is, each address and each prompt."""
    known = {"run_id": 1, "workflow_id": 1, "step": STEP, "name": NAME, "workflow": NAME, "from_step": STEP}
    known |= {"verdict": "retry", "dry_run": False, "reason": "it is late", "text": f"name: {NAME}\nsteps: []\n"}
    found = []
    for name, tool in BY_NAME.items():
        arguments = fields_of(tool.arguments)
        for shown in (arguments, {key: known[key] for key in arguments if key in known}):
            found.append(f"{name}\n".encode() + msgspec.json.encode({**shown, **_within(known, shown)}))
    with _opened() as service:
        addresses = [one.address for one in list_resources(service)] + [one.address for one in TEMPLATES]
    found += [re.sub(r"\{\w+\}", "1", address).encode() + b"\n{}" for address in addresses]
    found += [f"{one.name}\n".encode() + msgspec.json.encode({a.name: "1" for a in one.arguments}) for one in PROMPTS]
    return found


def _within(known: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in known.items() if key in shown}
