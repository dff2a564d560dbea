"""What no client of ours sends is refused in words, on both stores: never a 500."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect
from tests.api.hostile_values import LONG, TEXTS, TIMES, objects
from tests.support.api_client import Client, open_client, start_run, token_record
from tests.support.nightly import IS_NIGHTLY, POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.api.routes import ROUTES
from mulligan.service.home import DATABASE, Home
from mulligan.service.service import Service
from mulligan.store.http.http_calls import CALLS, arguments_type

PROTOCOL = {"mulligan-protocol": "1"}
# Which values each is asked with: by day half of them, and its neighbour has the other half.
NUMBERS = range(max(len(TEXTS), len(TIMES)))


@pytest.fixture(params=["sqlite", POSTGRES])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    home = Home(tmp_path / "home", url)
    with Service(home, "a tester") as service:
        start_run(service)
    opened = open_client(home, tokens=[token_record("all", ["admin", "worker"])])
    opened.scope = "all"
    yield opened
    opened.close()


@pytest.mark.postgres
def test_every_call_of_a_store_refuses_hostile_values_in_words(client: Client) -> None:
    wrong = []
    for place, (name, call) in enumerate(CALLS.items()):
        for number in numbers(place):
            for body in objects(inspect.type_info(arguments_type(name)), number):
                reply = client.post(f"store/{call.scope}/{name}", body, headers=PROTOCOL)
                if reply.status >= 500:
                    wrong.append((name, number, reply.status, body))

    assert wrong == []


def test_a_name_of_an_artifact_is_no_longer_than_a_file_may_have(client: Client) -> None:
    for name in (
        f"1/fetch/1/1/{LONG}.json",
        f"1/{LONG}/1/1/output.json",
        "1/" + "x/" * 600 + "y",
        "1/a\0/1/1/x",
        "1/é",
    ):
        query = {"name": name, "format": "text"}
        kept = client.request("POST", "store/artifacts", body=b"data", query=query, headers=PROTOCOL)
        artifact = {"artifact": {"name": name, "size": 4, "sha256": "0" * 64, "format": "text"}}
        read = [
            client.post(f"store/{one}", artifact, headers=PROTOCOL)
            for one in ("read/artifacts.fetch", "worker/work.fetch")
        ]
        assert {(one.status, one.code) for one in (kept, *read)} == {(422, "input.invalid")}, name


def test_a_time_without_a_zone_is_refused_wherever_it_stands(client: Client) -> None:
    for at in ("2026-01-01T00:00:00", "\\u0032026-01-01T00:00:00"):
        report = f'{{"type":"CancelRequested","at":"{at}"}}'
        body = f'{{"run_id":1,"report":{report},"is_asking":false}}'.encode()
        refused = client.post("store/run/put_control", body, headers=PROTOCOL)
        assert (refused.status, refused.code) == (422, "input.invalid"), at


def test_every_route_refuses_hostile_values_in_words(client: Client) -> None:
    wrong = []
    for place, route in enumerate(one for one in ROUTES if not one.path.startswith(("store/", "logins:end"))):
        for number in numbers(place):
            queries = [{}] if route.query is None else objects(inspect.type_info(route.query), number)
            bodies = [None] if route.body in (None, bytes) else objects(inspect.type_info(route.body), number)
            for query, body in [*((one, None) for one in queries), *(({}, one) for one in bodies)]:
                reply = client.request(
                    route.method, _filled(route.path), body=body, query=_as_query(query), pieces_max=1
                )
                if reply.status >= 500 and reply.status != 503:
                    wrong.append((route.name, number, reply.status, query, body))

    assert wrong == []


def test_every_path_refuses_hostile_names_in_words(client: Client) -> None:
    wrong = []
    for route in (one for one in ROUTES if "{" in one.path and one.method in ("GET", "DELETE")):
        for text in (LONG, "x" * 5000, "a%00b", "%2e%2e", "%ed%a0%80", "2" * 30):
            reply = client.request(route.method, _filled(route.path, text), pieces_max=1)
            if reply.status >= 500:
                wrong.append((route.name, text[:9], reply.status))

    assert wrong == []


def numbers(place: int) -> Sequence[int]:
    return NUMBERS if IS_NIGHTLY else NUMBERS[place % 2 :: 2]


def _filled(path: str, text: str = "fetch") -> str:
    for name, value in {"{run_id:int}": "1", "{seq:int}": "1", "{index:int}": "0", "{attempt:int}": "1"}.items():
        path = path.replace(name, value)
    while "{" in path:
        before, _, rest = path.partition("{")
        path = f"{before}{text}{rest.partition('}')[2]}"
    return path


def _as_query(found: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in found.items()}
