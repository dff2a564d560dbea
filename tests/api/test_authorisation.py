"""Every route of the table, asked by everybody who may not: refused, nothing leaked, and audited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mulligan.api.auth import allows
from mulligan.api.routes import ROUTES
from mulligan.api.routing import Route
from mulligan.dashboard.pages import PAGES
from mulligan.service import Home, ServerConfig, Service

from .conftest import SCOPES, Client, Reply, open_client, start_run, token_record

GUARDED = [route for route in ROUTES if route.scope != "public"]
# What the first project has, and no other may see.
SECRET = "classified-thing"
WORKFLOW = f"name: {SECRET}\nsteps:\n  - step: {SECRET}-step\n    shell: 'true'\n"
# These answer until the client leaves.
ENDLESS = {"stream", "store/changes/read", "store/changes/worker"}
PUBLIC = {"GET /healthz", "GET /readyz", "GET /login"}
CONFIG = msgspec.convert({"server": {"requests_per_second": 100_000, "requests_at_once": 100_000}}, ServerConfig)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with something of each kind in the first project, and a stranger who is admin of another."""
    folder: Path = tmp_path_factory.mktemp("authorisation")
    home = Home(folder / "home")
    stranger = token_record("stranger", ["admin"], project="other")
    laborer = token_record("laborer", ["worker"], project="other")
    client = open_client(home, CONFIG, tokens=[stranger, laborer], pages=PAGES)
    with Service(home, "a tester") as service:
        assert start_run(service, WORKFLOW) == 1
        service.reader.store.server_records.add_token(token_record(SECRET, ["read"]))
    schedule = {"workflow": SECRET, "cron": "0 3 * * *"}
    for path, body in ((f"workflows/{SECRET}", {"text": WORKFLOW}), (f"workflows/{SECRET}/draft", {"text": WORKFLOW})):
        assert client.put(path, body).status in (200, 201)
    assert client.put(f"schedules/{SECRET}", schedule).status in (200, 201)
    yield client
    client.close()


def asked(server: Client, route: Route, who: str | None) -> Reply:
    """The route, asked about what the first project has."""
    path = re.sub(r"\{(?:run_id|index|attempt|seq):int\}", "1", route.path)
    path = path.replace("{step}", f"{SECRET}-step").replace("{place}", f"{SECRET}-step").replace("{call}", "run")
    path = path.replace("{token_id}", f"t-{SECRET}").replace("{name}", SECRET).replace("{sha256}", "0" * 64)
    assert "{" not in path
    body = None if route.method == "GET" else {"run_id": 1} if route.path.startswith("store/") else {}
    headers = {"mulligan-protocol": "1"}
    return server.request(route.method, path, body=body, headers=headers, scope=who, pieces_max=1)


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_only_a_few_routes_need_no_token() -> None:
    assert {named(route) for route in ROUTES if route.scope == "public"} == PUBLIC


def test_without_a_valid_token_every_route_answers_401_in_the_same_words(server: Client) -> None:
    answers = {
        (reply.status, reply.json["detail"])
        for route in GUARDED
        for who in (None, "unknown", "expired", "revoked")
        for reply in [asked(server, route, who)]
    }

    assert answers == {(401, "a valid token is needed")}


def test_with_a_token_of_another_scope_every_route_answers_403_and_names_the_scope(server: Client) -> None:
    wrong = []
    for route in GUARDED:
        for scope in SCOPES:
            if allows(token_record(scope, [scope]), route.scope):
                continue
            reply = asked(server, route, scope)
            if reply.status != 403 or reply.json["data"] != {"scope": route.scope} or SECRET in reply.body.decode():
                wrong.append((named(route), scope, reply.status, reply.body))

    assert wrong == []


def test_the_admin_of_another_project_learns_and_changes_nothing(server: Client) -> None:
    before = contents(server)
    leaked, found = [], []
    for route in GUARDED:
        if route.path in ENDLESS:
            continue
        reply = asked(server, route, "laborer" if route.scope == "worker" else "stranger")
        said = reply.body.decode(errors="replace").replace(f"{SECRET}-step", SECRET)
        if route.path == "audit":
            # What they asked for themselves, they see.
            assert {row["who"] for row in reply.json["audit"]} <= {"stranger", "laborer"}
        elif reply.status < 400 and SECRET in said:
            leaked.append((named(route), reply.body))
        if "{" in route.path and reply.status not in (400, 404, 405, 415, 422):
            found.append((named(route), reply.status, reply.body))
        if reply.status >= 500:
            found.append((named(route), reply.status, reply.body))

    assert leaked == []
    assert found == []
    assert contents(server) == before


def test_pages_show_nothing_to_somebody_without_a_token_and_nothing_of_another_project(server: Client) -> None:
    shown = [route for route in PAGES.routes if route.scope != "public"]
    wrong = []
    for route in shown:
        for who in (None, "unknown", "expired", "revoked", "worker", "stranger"):
            reply = asked(server, route, who)
            said = reply.body.decode().replace(f"{SECRET}-step", SECRET)
            if route.path == "/audit" and reply.status == 200:
                # What they asked for themselves, they see.
                assert set(re.findall(r'href="/audit\?who=([^"&]+)', said)) <= {"stranger", "laborer"}
                said = ""
            # The form for the token, "not allowed", or what another project has: nothing.
            allowed = {"worker": {403}, "stranger": {400, 404, 422} if "{" in route.path else {200, 400, 422}}
            if reply.status not in allowed.get(who or "", {401}) or (reply.status < 400 and SECRET in said):
                wrong.append((route.path, who, reply.status, said[-300:]))

    assert [route for route in PAGES.routes if route.scope == "public" and not route.path.startswith("/static/")] == []
    assert wrong == []


def test_what_another_project_has_is_unknown_in_the_words_for_what_nobody_has(server: Client) -> None:
    reading = [route for route in GUARDED if route.method == "GET" and "{run_id:int}" in route.path]

    differing = []
    for route in reading:
        theirs = asked(server, route, "stranger")
        nobodys = server.request(
            "GET",
            re.sub(r"\{run_id:int\}", "77", route.path)
            .replace("{step}", "x")
            .replace("{place}", "x")
            .replace("{index:int}", "1")
            .replace("{attempt:int}", "1")
            .replace("{seq:int}", "1")
            .replace("{name}", "x")
            .replace("{sha256}", "0" * 64),
            scope="stranger",
        )
        same = theirs.json["detail"].replace("run 1", "run 77") == nobodys.json["detail"]
        if not (theirs.status == nobodys.status == 404 and same):
            differing.append((named(route), theirs.status, theirs.body, nobodys.body))

    assert differing == []


def test_refused_changes_are_in_the_audit_with_who_and_what(server: Client) -> None:
    changing = [route for route in GUARDED if route.changes]

    with Service(server.home) as service:
        for route in changing:
            last = max((one.id for one in service.audit.page(project=None, limit=1).audit), default=0)
            asked(server, route, "expired")
            asked(server, route, "worker")
            rows = [one for one in service.audit.page(project=None, limit=9).audit if one.id > last]

            assert {(one.status, one.who) for one in rows} == {(401, ""), (403, "worker")}, named(route)
            assert {one.action for one in rows} == {route.name}
            assert not any("mul_" in str(one) for one in rows)


def contents(server: Client) -> list[object]:
    """All that the first project has."""
    with Service(server.home) as service:
        store = service.reader.store
        records = store.server_records
        return [
            store.run(1),
            store.inbox([1]),
            records.versions("", SECRET),
            records.documents("draft", ""),
            records.documents("schedule", ""),
            [one for one in records.tokens() if one.project != "other"],
        ]
