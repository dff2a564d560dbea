"""Requests of a hostile client: each call that a server takes, by each caller, about everything that there is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from mulligan.api.http.decoding import ANY_QUERY
from mulligan.api.http.routing import Route
from mulligan.api.openapi import ROUTE as OPENAPI
from mulligan.api.routes import ROUTES
from mulligan.core.model.workflow import Workflow
from mulligan.dashboard.pages import PAGES
from mulligan.mcp_server.prompts import PROMPTS
from mulligan.mcp_server.resources import TEMPLATES
from mulligan.mcp_server.tool_table import BY_NAME
from mulligan.store.http.http_calls import CALL_HEADER, CALLS, PROCESS_HEADER, arguments_type
from proof.attacks.attacked_server import JSON_HEADERS, STEPS, STORE_HEADERS, TEXTS, Ids
from proof.attacks.callers import ATTACKERS, BLUE, RED, Caller
from proof.attacks.typed_values import TEXTS as HOSTILE_TEXTS
from proof.attacks.typed_values import Pools, TypedValues, choice
from proof.fuzz.mutation import mutated

_PARAMETER = re.compile(r"\{\+?(\w+)(?::int)?\}")
_PLACES = ("write", "each[0].0", "each[0]", "large", "judge", "ask", "load", "judge.on_failure@1.0", "ask.model@1.0")
_KINDS = ("step", "place", "run", "login", "draft", "schedule", "worker", "notify", "hooks", "server", "failure")
_TEXT_SEEDS = [text.replace("PROJECT", RED).replace("SECRET", "redsecret").encode() for text in TEXTS.values()]
_WORDS = [b"needs", b"map", b"retry", b"on_failure", b"triage", b"approve", b"inputs", b"matrix", b"when", b"wait"]
# These take much longer than the others, and would take most of the time.
_SLOW = ("doctor", "GET /workers/doctor", "mcp ", "GET /openapi")
# Bodies that no type describes.
_RAW = (b"", b"{", b"[" * 100_000, b'{"a":' * 20_000, b"\xff\xfe", b"null", b"[]", b'"a"', b"\0", b'{"a": 1, "a": 2}')
_HEADERS = (
    *(("Idempotency-Key", key) for key in ("k1", "k2", "k3", "first letters", "x" * 300, " ")),
    *(("Range", one) for one in ("bytes=0-10", "bytes=-1", "bytes=99999999999999999999-", "bytes=5-1", "lines=1")),
    *(("If-None-Match", "*"), ("If-Match", '"1"'), ("If-Match", "x" * 5000), ("Last-Event-ID", "-1")),
    *(("Last-Event-ID", "9" * 30), ("Accept", "text/html"), ("Accept", "application/json;q=a"), ("Accept", "*/*")),
    *((CALL_HEADER, one) for one in ("c1", "c2", "x" * 5000)),
    *(
        (PROCESS_HEADER, "0"),
        ("Content-Type", "text/plain"),
        ("Origin", "http://evil.example"),
        ("X-Forwarded-For", "::1"),
    ),
)


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request, as it is sent and written down."""

    who: str
    method: str
    target: str
    body: bytes | None = None
    headers: dict[str, str] = {}
    # The call that it is, and the scope that this one needs.
    call: str = ""
    scope: str = "public"

    def __str__(self) -> str:
        said = "" if self.body is None else f" {self.body[:1500]!r}"
        return f"{self.who}: {self.method} {self.target[:500]} {self.headers}{said}"


class Operation(NamedTuple):
    """One line of what a server can be asked."""

    name: str
    scope: str
    make: Callable[[RequestMaker, TypedValues], tuple[str, str, bytes | None, dict[str, str]]]


class RequestMaker:
    """Makes requests: the same random numbers give the same ones."""

    def __init__(self, random: Random, ids: Ids) -> None:
        self._random = random
        self._ids = ids
        self._pools = pools(ids)

    def make(self) -> Request:
        """Some call with plain arguments, a few odd ones or odd ones only; half of them by somebody who may."""
        random = self._random
        operation = random.choice(operations())
        while operation.name.startswith(_SLOW) and random.random() < 0.8:
            operation = random.choice(operations())
        return self.request(operation, self._caller(operation.scope), random.choice((0.0, 0.03, 0.03, 0.15, 0.5)))

    def request(self, operation: Operation, caller: Caller, hostility: float) -> Request:
        random = self._random
        values = TypedValues(random, self._pools, hostility)
        method, target, body, headers = operation.make(self, values)
        if body is not None and random.random() < hostility / 10:
            body = random.choice(_RAW)
        for name, value in random.sample(_HEADERS, 2) if random.random() < hostility else ():
            headers = {**headers, name: value}
        return Request(caller.name, method, target, body, headers, operation.name, operation.scope)

    def _caller(self, scope: str) -> Caller:
        able = [one for one in ATTACKERS if one.may(scope) and one.is_counted]
        # Those who are nobody get the same answer every time, and only so many of them.
        some = ATTACKERS if self._random.random() < 0.2 else [one for one in ATTACKERS if one.scopes]
        return self._random.choice(able if self._random.random() < 0.6 and able else list(some))

    def path(self, template: str, values: TypedValues) -> str:
        """The path of a route, with something in each place."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            is_number = match[0].endswith(":int}")
            if name == "name" and "schedules" in template:
                name = "schedule"
            found = values.of(int if is_number else str, name)
            return quote(str(found).encode("utf-8", "surrogatepass"), safe="@:")

        return _PARAMETER.sub(fill, template)


def body_of(value: Any) -> bytes:
    """As JSON, with what JSON does not have: NaN, halves of characters."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


# -- what there is to ask --------------------------------------------------------------------------------------------


@cache
def operations() -> tuple[Operation, ...]:
    """Every route and page, every call of a store, every tool, resource and prompt."""
    described = Route(**OPENAPI, handler=lambda call: None)
    return (
        *(_of_route(route) for route in (*ROUTES, *PAGES.routes, described) if "{call}" not in route.path),
        *(_of_store_call(name) for name in CALLS),
        *(_of_mcp("tools/call", tool.name, tool.scope, tool.arguments) for tool in BY_NAME.values()),
        *(_of_mcp("resources/read", one.address, "read", None) for one in TEMPLATES),
        *(_of_mcp("prompts/get", one.name, "read", None) for one in PROMPTS),
        *(_of_mcp(one, "", "read", None) for one in ("initialize", "tools/list", "resources/list", "nothing")),
    )


def _of_route(route: Route) -> Operation:
    def make(maker: RequestMaker, values: TypedValues) -> tuple[str, str, bytes | None, dict[str, str]]:
        known = {} if route.query in (None, ANY_QUERY) else values.fields(route.query)
        query = {name: value for name, value in known.items() if value is not None}
        if "store/changes" in route.path:
            # It may wait for as long as it is asked to.
            query["seconds"] = values.of(float, "wait")
        encoded = urlencode(query, doseq=True, errors="surrogatepass")
        target = maker.path(route.full_path, values) + (f"?{encoded}" if encoded else "")
        if route.body is None:
            return route.method, target, None, {}
        if route.body is bytes:
            return route.method, target, str(values.of(str, "name")).encode("utf-8", "replace"), STORE_HEADERS
        return route.method, target, body_of(values.of(route.body)), JSON_HEADERS

    return Operation(route.name.removeprefix("GET /api/v1/"), route.scope, make)


def _of_store_call(name: str) -> Operation:
    scope = CALLS[name].scope

    def make(maker: RequestMaker, values: TypedValues) -> tuple[str, str, bytes | None, dict[str, str]]:
        return "POST", f"/api/v1/store/{scope}/{name}", body_of(values.of(arguments_type(name))), STORE_HEADERS

    return Operation(f"store {name}", scope, make)


def _of_mcp(method: str, name: str, scope: str, arguments: type[msgspec.Struct] | None) -> Operation:
    def make(maker: RequestMaker, values: TypedValues) -> tuple[str, str, bytes | None, dict[str, str]]:
        given: dict[str, Any] = {"name": name, "arguments": values.fields(arguments)}
        if method == "resources/read":
            given = {"uri": maker.path(name, values)}
        elif method == "prompts/get":
            given["arguments"] = {key: values.of(str, key) for key in ("run_id", "step", "name", "workflow")}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
        accepted = {**JSON_HEADERS, "Accept": "application/json, text/event-stream"}
        return "POST", "/mcp/", body_of(message), accepted

    return Operation(f"mcp {method} {name}".rstrip(), scope, make)


# -- what fields usually have ----------------------------------------------------------------------------------------


def pools(ids: Ids) -> Pools:
    """Names and ids of both projects, and some that do not exist: half of them are the victim's."""
    blue, red = tuple(ids.runs[BLUE].values()), tuple(ids.runs[RED].values())
    run_ids = choice(*blue, *blue, *red, *red, *red, *range(11, 40), 0, -1, 10**9)
    numbers: dict[str, Any] = dict.fromkeys(
        ("run_id", "root_run_id", "forked_from", "parent_run_id", "left", "right", "run", "base", "other"), run_ids
    )
    numbers |= {"attempt": choice(1, 1, 1, 2), "visit": choice(1), "seq": choice(*range(1, 12)), "index": choice(0, 1)}
    numbers |= {
        "token": choice(*range(1, 30)),
        "limit": choice(1, 5, 100),
        "items": choice(0, 1),
        "number": choice(1, 2),
    }
    numbers |= {"memory": choice(1 << 20, 1 << 30), "tasks_max": choice(1, 4), "pid": choice(1, 2)}
    names: dict[str, Any] = dict.fromkeys(("step", "from_step", "to", "of", "after"), choice(*STEPS))
    names |= dict.fromkeys(("workflow", "name"), choice(*TEXTS, "yearly", "nothing"))
    places = choice(*_PLACES)
    names |= {
        "page": choice("concepts", "reference/language.md", "../x"),
        "place": places,
        "key": places,
        "schedule": choice("yearly", "yearly", "monthly"),
        "worker": choice(*ids.workers, "red worker", "nothing"),
        "host": choice(*(one.split(".")[0] for one in ids.workers), "elsewhere"),
        "project": choice(BLUE, BLUE, RED, ""),
        "kind": choice(*_KINDS),
        "version": choice(*ids.versions),
        "sha256": choice(*(one["sha256"] for one in ids.artifacts), "0" * 64),
        "token_id": choice(*ids.tokens, "nothing"),
        "digest": choice("0" * 16),
        "cron": choice("0 3 * * *", "* * * * *", "0 0 30 2 *", "*/0 * * * *"),
        "timezone": choice("UTC", "Europe/Berlin", "Mars/Base"),
        "every": choice("1h", "100d", "1s"),
        "since": choice("7d", "2026-01-01", "1h"),
        "stream": choice("stdout", "stderr"),
        "verdict": choice("retry", "fail"),
        "scope": choice("read", "admin", "worker"),
        "text": _text,
    }
    return {
        **{(name, int): pool for name, pool in numbers.items()},
        **{(name, str): pool for name, pool in names.items()},
        ("run_id", str): lambda random: str(run_ids(random)),
        ("artifact", dict): choice(*ids.artifacts),
        ("workflow", bytes): lambda random: body_of(_definition(random, ids)),
        ("definition", dict): lambda random: _definition(random, ids),
        ("wait", float): choice(0.0, 0.01, -1.0, "nan", "a"),
        ("lease_seconds", float): choice(30.0),
    }


def _text(random: Random) -> str:
    """A workflow: as it is, or changed by an enemy."""
    if random.random() < 0.5:
        return random.choice(_TEXT_SEEDS).decode()
    return mutated(_TEXT_SEEDS, _WORDS, random)[:20_000].decode("utf-8", "replace")


def _definition(random: Random, ids: Ids) -> Any:
    """What was read of a workflow: a real one, a real one with a part replaced, or any value of its type."""
    kind = random.randrange(3)
    if kind == 2:
        return TypedValues(random, {}, random.choice((0.0, 0.05, 0.3))).of(Workflow)
    found = json.loads(random.choice(ids.definitions))
    if kind:
        parts = [part for part in _parts(found) if part]
        for _ in range(random.choice((1, 1, 3))):
            part = random.choice(parts)
            key = random.choice(list(part) if isinstance(part, dict) else range(len(part)))
            part[key] = random.choice((*HOSTILE_TEXTS[:40], None, -1, [], {}, 10**6, [{"of": "write"}], "write", True))
    return found


def _parts(value: Any) -> list[Any]:
    found = [value] if isinstance(value, dict | list) else []
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += _parts(one)
    return found
