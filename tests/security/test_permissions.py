"""Who may do what: the table in docs/operate/permissions.md, each cell of it asked of a server.

The table is written by hand. A route, a page, a tool or a call of a store without a row fails, and so does a cell in
which the server does something else than the page says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import pytest
from tests.support.api_client import SCOPES, Client, Reply, open_client, token_record
from tests.support.commands import mulligan
from tests.support.nightly import IS_NIGHTLY

from mulligan.api import openapi
from mulligan.api.http.routing import Route
from mulligan.api.routes import ROUTES
from mulligan.dashboard.pages import PAGES
from mulligan.mcp_server.http_route import ROUTES as MCP_ROUTES
from mulligan.mcp_server.tool_table import TOOLS
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.service import Service
from mulligan.store.http.http_calls import CALLS, arguments_type
from proof.fuzz.example_values import example_of

PAGE = Path(__file__).parents[2] / "docs/operate/permissions.md"
COLUMNS = ("no token", *SCOPES, "other project", "session", "other site")
NOBODY = (None, "unknown", "expired", "revoked")
YES, OWN = "yes", "own"
CONFIG = msgspec.convert({"server": {"requests_per_second": 100_000, "requests_at_once": 100_000}}, ServerConfig)

# What the first project has, and no other may see.
NAME = "classified"
STEP = "classified-step"
CONTENT = "hush-hush"
TEXT = (
    f"name: {NAME}\nsteps:\n  - step: {STEP}\n    shell: 'echo {CONTENT}; exit 3'\n    triage: true\n"
    f"  - step: after\n    needs: [{STEP}]\n    shell: 'true'\n"
)
DECISION = {"run_id": 1, "step": STEP, "verdict": "retry", "reason": "x"}
SCHEDULE = {"workflow": NAME, "cron": "0 3 * * *"}
WEBHOOK = {"secret": "outside", "auth": "secret", "start": {"workflow": NAME}}
WEBHOOK_OF_OTHERS = {"secret": "outside", "auth": "secret", "send": {"event": "paid", "run_key": "7"}}
# What a request has in its body, so that nothing but the caller stands in its way.
BODIES: dict[str, Any] = {
    "POST runs": {"workflow": NAME},
    "POST runs/{run_id}:fork": {"from_step": STEP},
    "POST runs/{run_id}/steps/{step}:retry": {"reason": "x"},
    "POST decisions": {"decisions": [DECISION]},
    "PUT workflows/{name}": {"text": TEXT},
    "PUT workflows/{name}/draft": {"text": TEXT},
    "POST workflows/{name}:propose": {"text": TEXT},
    "POST workflows:validate": {"text": TEXT},
    "POST workflows:convert": {"text": TEXT},
    "POST workflows:edit": {"text": TEXT, "step": STEP, "set": {"retry": 2}},
    "POST workflows:coverage": {"text": TEXT},
    "POST workflows:whatif": {"text": TEXT, "name": NAME},
    "PUT schedules/{name}": SCHEDULE,
    "POST schedules/{name}:backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
    "PUT hooks": {"rules": []},
    "PUT webhooks/{name}": WEBHOOK,
    "POST runs/{run_id}/steps/{step}:approve": {"reason": "x"},
    "POST runs/{run_id}/events": {"name": "paid"},
    "POST events": {"name": "paid", "labels": {"team": "a"}},
    "POST tokens": {"user": "new", "scopes": ["read"]},
}
QUERIES = {
    "GET usage": "run=1",
    "GET runs/{run_id}/attempts/{place}/{attempt}/log/matches": "text=x",
    "GET store/changes/read": "seconds=0",
    "GET store/changes/worker": "seconds=0",
    "POST store/artifacts": f"name=1/{STEP}/1/2/output.json&format=json",
    "GET /compare": "a=1&b=1",
    "GET /decide": "link=x",
}
# What a tool is called with.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "classify": {**DECISION, "dry_run": False},
    "classify_and_resolve_failures": {
        "workflow_id": 1,
        "classifications": [{"job_id": STEP, "action": "retry", "reason": "x"}],
        "dry_run": False,
    },
    "get_failure": {"run_id": 1, "step": STEP},
    "read_log": {"run_id": 1, "step": STEP},
    "approve": {"run_id": 1, "step": STEP, "reason": "x", "dry_run": False},
    "send_event": {"run_id": 1, "name": "paid"},
    "propose_workflow": {"name": NAME, "text": TEXT},
    "start_run": {"workflow": NAME},
    "fork_run": {"run_id": 1, "from_step": STEP},
    "compare_runs": {"a": 1, "b": 1},
    "get_moment": {"run_id": 1, "at": 1},
    "get_workflow": {"name": NAME},
    "validate_workflow": {"text": TEXT},
    "whatif": {"text": TEXT, "name": NAME},
    "coverage": {"name": NAME},
}
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
# What is asked last, in this order: it takes away what the others ask for.
LAST = ("resume", "retry", "cancel", "DELETE", "store/admin/remove", "logins:end")


# What even those do not get who may ask for it: there is no such thing here, or another request has done it before.
UNANSWERED = {
    *("GET runs/{run_id}/steps/{step}/items", "GET runs/{run_id}/steps/{step}/items/{index}"),
    *("GET runs/{run_id}/artifacts/{sha256}", "GET runs/{run_id}/data/{name}", "GET usage/workflows/{name}"),
    *("GET /runs/{run_id}/steps/{step}/items/{index}", "GET /runs/{run_id}/images/{sha256}"),
    "POST store/read/artifacts.fetch",
    *("POST store/worker/work.leases_of", "POST store/worker/work.fetch", "POST store/worker/work.register"),
    *(
        "POST store/worker/work.exchange",
        "POST store/worker/work.retire",
        "POST store/worker/work.set_trouble",
        "POST runs/{run_id}/at/{seq}:fork",
    ),
    *("POST runs/{run_id}/steps/{step}:approve", "POST breakers/{name}:reset", "PUT workflows/{name}/draft"),
    *("POST workflows/{name}:propose", "POST store/write/create", "POST store/run/count_outcome", "tool classify"),
    *("tool approve", "tool pause_run", "POST runs/{run_id}:resume", "tool resume_run", "tool retry_run"),
    *("POST runs/{run_id}/steps/{step}:retry", "tool cancel_run", "POST events", "tool send_event"),
    "POST store/worker/work.read_log",
}


class Way(NamedTuple):
    """One way in: a request, a call of a store, or a tool."""

    name: str
    method: str
    path: str
    body: Any = None
    query: str = ""
    changes: bool = False
    is_tool: bool = False


def ways() -> Iterator[Way]:
    """All that the tables of the product have."""
    described = Route(**openapi.ROUTE, handler=lambda _: None)
    for route in (*ROUTES, described, *PAGES.routes, *MCP_ROUTES):
        name = f"{route.method} {route.path.replace(':int}', '}')}"
        if "{call}" not in name:
            body = BODIES.get(name) if route.body is not bytes else b"{}"
            body = MESSAGE if route in MCP_ROUTES else body
            yield Way(name, route.method, filled(route.path), body, QUERIES.get(name, ""), route.changes)
    for call_name, call in CALLS.items():
        path = f"store/{call.scope}/{call_name}"
        body = msgspec.json.encode(example_of(arguments_type(call_name)))
        yield Way(f"POST {path}", "POST", path, body, "", call.is_change)
    for tool in TOOLS:
        known = [one.encode_name for one in msgspec.structs.fields(tool.arguments)]
        arguments = ARGUMENTS.get(tool.name) or ({"run_id": 1} if "run_id" in known else {})
        body = {**MESSAGE, "method": "tools/call", "params": {"name": tool.name, "arguments": arguments}}
        yield Way(f"tool {tool.name}", "POST", "/mcp/", body, "", tool.changes, is_tool=True)


def filled(path: str) -> str:
    """The path of a route about what the first project has."""
    path = re.sub(r"\{(?:run_id|index|attempt):int\}", "1", path).replace("{seq:int}", "3")
    path = path.replace("{project}/{name}", "other/shop")
    # What is sent to it is an empty object.
    path = path.replace("contents/{sha256}", f"contents/{hashlib.sha256(b'{}').hexdigest()}")
    path = path.replace("{step}", STEP).replace("{place}", STEP).replace("{token_id}", f"t-{NAME}")
    return path.replace("{sha256}", "0" * 64)


WAYS = {way.name: way for way in ways()}


def written_table() -> dict[str, dict[str, str]]:
    """The rows of the page: what each caller gets, by the name of the way."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"\| `([^`]+)` \|(.*)\|", line):
            cells = [cell.strip() for cell in match[2].split("|")]
            assert len(cells) == len(COLUMNS), line
            assert match[1] not in rows, line
            rows[match[1]] = dict(zip(COLUMNS, cells, strict=True))
    return rows


class Server:
    """A server with something of each kind in the first project, and callers of every kind."""

    def __init__(self, folder: Path) -> None:
        (folder / "flow.yaml").write_text(TEXT, encoding="utf-8")
        said = mulligan("run", str(folder / "flow.yaml"), "--home", str(folder / "home"), "--wait", "0s")
        assert said.code != 2, said.err
        (folder / "outside").write_text("a secret that nobody of them knows")
        secrets = f'[webhook_secrets]\noutside = {{file = "{folder / "outside"}"}}\n'
        (folder / "home" / "server.toml").write_text(secrets)
        tokens = [
            token_record("stranger", ["admin"], project="other"),
            token_record("laborer", ["worker"], project="other"),
        ]
        routes = MCP_ROUTES
        self.client: Client = open_client(Home(folder / "home"), CONFIG, tokens=tokens, pages=PAGES, others=routes)
        self._folder = folder / "home"
        for path, body in ((f"workflows/{NAME}", {"text": TEXT}), (f"schedules/{NAME}", SCHEDULE)):
            assert self.client.put(path, body).status in (200, 201)
        assert self.client.put(f"webhooks/{NAME}", WEBHOOK).status == 200
        assert self.client.put("webhooks/shop", WEBHOOK_OF_OTHERS, scope="stranger").status == 200
        assert self.client.put(f"workflows/{NAME}/draft", {"text": TEXT}).status in (200, 201)
        self.token_id = self.client.post("tokens", {"user": NAME, "scopes": ["read"]}).json["token"]["id"]
        digest = re.search(r"/static/(\w+)/", self.client.get("/").body.decode())
        assert digest is not None
        self._digest = digest[1]
        self.cookie = self._log_in()

    def _log_in(self) -> str:
        link = self.client.post("logins").json["url"].partition("?")[2]
        reply = self.client.request("GET", "/login", query=link, scope=None)
        return reply.headers["set-cookie"].partition(";")[0]

    def ask(self, way: Way, caller: str | None) -> Reply:
        """The request of a way, as this caller sends it."""
        scope, headers = caller, {"mulligan-protocol": "1"}
        if caller == "session":
            scope, headers = None, {**headers, "cookie": self.cookie, "origin": "http://localhost"}
        elif caller == "other site":
            evil = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
            scope, headers = None, {**headers, "cookie": self.cookie, **evil}
        if way.is_tool or way.path.startswith("/mcp"):
            headers |= {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        path, query = way.path.replace(f"t-{NAME}", self.token_id), way.query
        if way.path == "/login":
            query = self.client.post("logins").json["url"].partition("?")[2]
        body = way.body if way.body is not None or way.method == "GET" else {}
        if path.startswith("/static/"):
            name = "codemirror.js" if "/vendor/" in path else "dashboard.css"
            path = path.replace("{digest}", self._digest).replace("{name}", name)
        path = path.replace("{name}", NAME)
        return self.client.request(way.method, path, body=body, query=query, headers=headers, scope=scope, pieces_max=1)

    def contents(self) -> list[str]:
        """All rows of the store but the audit."""
        # Not with `sqlite3`: another library in the same process would drop the locks of this one.
        connection = apsw.Connection(str(self._folder / "mulligan.db"), flags=apsw.SQLITE_OPEN_READONLY)
        tables = "select name from sqlite_schema where type = 'table' and name not in ('audit', 'sqlite_sequence')"
        found = [
            f"{name}: {row}"
            for (name,) in connection.execute(tables).fetchall()
            for row in connection.execute(f'select * from "{name}"')
        ]
        connection.close()
        return found

    def first_project(self) -> list[object]:
        """What the first project has, whatever the other one makes for itself."""
        with Service(Home(self._folder)) as service:
            store, records = service.reader.store, service.reader.store.server_records
            return [
                *(store.run(1), [*store.log(1, 0, None)], store.inbox([1])),
                *(records.versions("", NAME), records.documents("draft", ""), records.documents("schedule", "")),
                *(records.documents("hooks", ""), [one for one in records.tokens() if one.project == ""]),
            ]


def callers(column: str, way: Way) -> tuple[str | None, ...]:
    if column == "no token":
        # By day without a token and with one of the others, which depends on the way.
        return NOBODY if IS_NIGHTLY else (None, NOBODY[1 + len(way.name) % 3])
    if column == "other project":
        is_of_workers = "/worker/" in way.name or way.name in ("POST store/artifacts", "GET store/changes/worker")
        return ("laborer" if is_of_workers else "stranger",)
    return (column,)


def outcome(way: Way, reply: Reply) -> str:
    """What a caller got, in the words of the table."""
    if way.is_tool and reply.status == 200:
        result = reply.json["result"]
        code = result["structuredContent"]["error"]["code"] if result.get("isError") else ""
        return {"token.scope": "403", "run.unknown": "404"}.get(code, "404" if code.endswith("unknown") else YES)
    return str(reply.status) if reply.status in (401, 403, 404) or reply.status >= 500 else YES


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    opened = Server(tmp_path_factory.mktemp("permissions"))
    yield opened
    opened.client.close()


def test_every_way_into_a_server_has_a_row_of_the_page() -> None:
    assert set(written_table()) == set(WAYS)


def test_each_cell_of_the_page_is_what_the_server_does(server: Server) -> None:
    """First all that is refused, then what the other project may ask, then all that is allowed: it changes things."""
    table, order = written_table(), sorted(WAYS.values(), key=turn)

    wrong = [*refused_cells(server, table)]
    wrong += cells_of_the_other_project(server, table, order)
    wrong += allowed_cells(server, table, order)

    assert not wrong, "\n".join(map(str, wrong))


def turn(way: Way) -> tuple[bool, int]:
    return way.changes, next((number for number, word in enumerate(LAST, 1) if word in way.name), 0)


def refused_cells(server: Server, table: dict[str, dict[str, str]]) -> Iterator[object]:
    """The cells in which somebody is not refused, is told something, or changes something in spite of it."""
    before = server.contents()
    for way in WAYS.values():
        for column, cell in table[way.name].items():
            replies = [server.ask(way, one) for one in callers(column, way)] if cell not in (YES, OWN) else []
            # The words are the same for all reasons that a stranger must not know.
            if any(outcome(way, one) != cell or tells(one, way) or one.body != replies[0].body for one in replies):
                yield way.name, column, cell, [(one.status, one.body[:300]) for one in replies]
        if way.changes and server.contents() != before:
            yield way.name, "refused, and changed something"
            before = server.contents()


def cells_of_the_other_project(server: Server, table: dict[str, dict[str, str]], order: list[Way]) -> Iterator[object]:
    """The cells in which another project gets, or changes, something of the first one."""
    before = server.first_project()
    for way in order:
        if table[way.name]["other project"] != OWN:
            continue
        (caller,) = callers("other project", way)
        reply = server.ask(way, caller)
        if outcome(way, reply) != YES or tells(reply, way):
            yield way.name, caller, OWN, reply.status, reply.body[:300]
        if way.changes and server.first_project() != before:
            yield way.name, "another project has changed something"
            before = server.first_project()


def allowed_cells(server: Server, table: dict[str, dict[str, str]], order: list[Way]) -> Iterator[object]:
    """The cells in which somebody is refused; and ways on which not even the first caller gets an answer."""
    for way in order:
        statuses = []
        for column, cell in table[way.name].items():
            if cell == YES and column != "other project":
                reply = server.ask(way, callers(column, way)[0])
                statuses.append(500 if outcome(way, reply) in ("401", "403") else error_status(way, reply))
        if any(status >= 500 for status in statuses):
            yield way.name, statuses
        # What is signed with a secret of its own is answered to no token.
        if statuses and (statuses[0] >= 400) != (way.name in UNANSWERED):
            yield way.name, "asked in vain, so that its refusals prove little", statuses[0]


def error_status(way: Way, reply: Reply) -> int:
    is_error = way.is_tool and reply.status == 200 and reply.json["result"].get("isError")
    return 422 if is_error else reply.status


def tells(reply: Reply, way: Way) -> bool:
    """Whether an answer has something of the first project that its request did not say."""
    asked = filled(way.path).replace("{name}", NAME) + msgspec.json.encode(way.body).decode()
    said = reply.body.decode(errors="replace")
    return any(word in said and word not in asked for word in (NAME, CONTENT)) and "audit" not in way.name
