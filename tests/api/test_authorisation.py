"""Refused requests: what another project has is unknown, and the audit. `tests/security` has the table of callers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.api_client import Client, Reply, open_client, start_run, token_record

from mulligan.api.http.routing import Route
from mulligan.api.routes import ROUTES
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.service import Service

GUARDED = [route for route in ROUTES if route.scope != "public"]
# What the first project has, and no other may see.
SECRET = "classified-thing"
WORKFLOW = f"name: {SECRET}\nsteps:\n  - step: {SECRET}-step\n    shell: 'true'\n"
CONFIG = msgspec.convert({"server": {"requests_per_second": 100_000, "requests_at_once": 100_000}}, ServerConfig)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with something of each kind in the first project, and a stranger who is admin of another."""
    folder: Path = tmp_path_factory.mktemp("authorisation")
    home = Home(folder / "home")
    stranger = token_record("stranger", ["admin"], project="other")
    client = open_client(home, CONFIG, tokens=[stranger])
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
