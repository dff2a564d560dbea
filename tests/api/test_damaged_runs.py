"""Runs that cannot be read: every route and page that names one, and every one that sums over runs, on both stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.support.api_client import Client, Reply, open_client
from tests.support.damages import DAMAGES, FLOW, Store
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.api.http.routing import Route
from mulligan.api.routes import ROUTES
from mulligan.dashboard.pages import PAGES
from mulligan.errors import CodecError, UnknownRun
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.stored.damaged_runs import explain_damage, find_damage
from mulligan.service.server.server_config import ServerConfig
from mulligan.service.service import Service

CONFIG = msgspec.convert({"server": {"requests_per_second": 100_000, "requests_at_once": 100_000}}, ServerConfig)
ASKS = FLOW + "  - {step: ask, approve: {message: go on}, next: end}\n  - {step: look, shell: exit 4, triage: true}\n"


@dataclass(frozen=True)
class Stage:
    """A server whose home has good runs and damaged ones."""

    client: Client
    service: Service
    store: Store
    good: list[int]
    # By damage. Every other one of these runs waits for a person.
    damaged: dict[str, int]


@pytest.fixture(scope="module", params=["sqlite", POSTGRES])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with _filled(request, tmp_path_factory.mktemp("damaged")) as found:
        yield found


@pytest.fixture(params=["sqlite", POSTGRES])
def own_stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """For a test that removes what the others ask for."""
    with _filled(request, tmp_path) as found:
        yield found


@contextmanager
def _filled(request: pytest.FixtureRequest, folder: Path) -> Iterator[Stage]:
    schemas = request.getfixturevalue("_store_schemas")
    with schemas.take() if request.param == "postgres" else nullcontext("") as url:
        if not url:
            write_empty_store(folder / "home" / DATABASE)
        home = Home(folder / "home", url)
        with Service(home, "a tester") as service:
            good, damaged = _damaged_runs(service, folder)
            client = open_client(home, CONFIG, pages=PAGES)
            yield Stage(client, service, Store(home), good, damaged)
            client.close()


def _damaged_runs(service: Service, folder: Path) -> tuple[list[int], dict[str, int]]:
    pairs = len(DAMAGES) // 2
    ended, waiting = (_run(service, folder, text, pairs + 1) for text in (FLOW, ASKS))
    in_turn = [run_id for two in zip(ended[1:], waiting[1:], strict=True) for run_id in two]
    damaged = dict(zip(DAMAGES, in_turn, strict=True))
    for name, run_id in damaged.items():
        DAMAGES[name](Store(service.home), run_id)
    return [ended[0], waiting[0]], damaged


def _run(service: Service, folder: Path, text: str, times: int) -> list[int]:
    file = folder / "flow.yaml"
    file.write_text(text)
    prepared = prepare(service.workflows.load_workflow(file), {}, folder)
    with service.driving.driver(Capacity(cpus=4.0, memory=4 << 30)) as driver:
        started = service.changes.create(prepared, times=times)
        for run_id in started:
            driver.drive(run_id, 0.0)
    return started


EVERY = (*ROUTES, *PAGES.routes)
NAMING = [route for route in EVERY if "{run_id" in route.path]
# Without those that answer until the client leaves.
SUMMING = [
    route
    for route in EVERY
    if route.method == "GET" and "{" not in route.path and not route.path.startswith(("stream", "store/"))
]
# What removes runs is tried last, elsewhere.
REMOVING = [route for route in NAMING if route.method == "DELETE"]
VALUES = {
    "index": "1",
    "attempt": "1",
    "seq": "1",
    "step": "fetch",
    "place": "fetch",
    "sha256": "0" * 64,
    "name": "day",
}


def ask(stage: Stage, route: Route, run_id: int) -> Reply:
    """The answer of a route about a run."""
    path = re.sub(r"\{run_id(:int)?\}", str(run_id), route.path)
    path = re.sub(r"\{(\w+)(?::int)?\}", lambda match: VALUES[match[1]], path)
    body = None if route.body is None else {}
    return stage.client.request(route.method, path, body=body, pieces_max=3)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_said_to_be_damaged_on_every_route_that_names_it(stage: Stage, damage: str) -> None:
    run_id = stage.damaged[damage]
    for route in NAMING:
        if route in REMOVING:
            continue
        reply = ask(stage, route, run_id)

        assert reply.status < 500, (route.name, reply.body)
        if reply.status == 409 and not route.is_page and reply.code == "run.damaged":
            assert reply.json["data"] == {"run_id": run_id}, route.name

    assert find_damage(stage.service.reader.store, run_id)


def test_what_sums_over_runs_leaves_damaged_runs_out(stage: Stage) -> None:
    for route in SUMMING:
        path = route.path
        reply = stage.client.request("GET", path, query={"run": stage.good[0]} if path == "usage" else "")

        assert reply.status < 500, (route.name, reply.body)
    assert stage.client.get("stats").json["stats"]
    assert stage.client.get("suggestions").status == 200
    assert stage.client.get(f"runs/{stage.good[0]}/report.json").status == 200


def test_two_runs_are_compared_and_one_is_damaged(stage: Stage) -> None:
    bad = stage.damaged["no definition"]

    for a, b in ((stage.good[0], bad), (bad, stage.good[0])):
        reply = stage.client.get("/compare", a=a, b=b)

        assert (reply.status, f"run {bad} is damaged" in reply.body.decode()) == (409, True)


def test_the_list_shows_a_run_as_damaged_once_somebody_has_asked_for_it(stage: Stage) -> None:
    bad, row = stage.damaged["no rows"], stage.damaged["a time that there is not"]
    assert stage.client.get(f"runs/{bad}").code == "run.damaged"

    listed = {one["run_id"]: one["damage"] for one in stage.client.get("runs", limit=200).json["runs"]}
    page = stage.client.get("/runs").body.decode()

    assert listed[bad]
    assert "a time" in listed[row]
    assert listed[stage.good[0]] == ""
    assert "damaged</span>" in page


def test_what_is_wrong_with_a_run_is_found_out_once(stage: Stage, tmp_path: Path) -> None:
    """To read a whole log takes long, and whoever may read can ask again and again."""
    reader, store = stage.service.reader, Store(stage.service.home)
    # Of its own: it counts as damaged from now on.
    [run_id] = _run(stage.service, tmp_path, FLOW, 1)
    error = CodecError("it cannot be read")
    whole = store.event(run_id, 2)
    assert explain_damage(reader, [run_id], error) is None
    store.set_event(run_id, 2, b"{")
    first = explain_damage(reader, [run_id], error)
    # So nobody who looks at it again would find anything.
    store.set_event(run_id, 2, whole)

    again = explain_damage(reader, [run_id], error)

    assert first is not None and again is not None and again.message == first.message
    assert not find_damage(reader.store, run_id)


def test_an_error_about_a_run_that_was_removed_meanwhile_says_so(own_stage: Stage) -> None:
    reader, run_id = own_stage.service.reader, own_stage.good[0]
    own_stage.service.runs.remove(run_id)

    found = explain_damage(reader, [run_id], IndexError("list index out of range"))

    assert isinstance(found, UnknownRun) and found.http_status == 404


def test_the_page_of_a_damaged_run_lets_an_admin_remove_it(stage: Stage) -> None:
    bad = stage.damaged["no definition"]

    admin, reader = (stage.client.get(f"/runs/{bad}", scope=one) for one in ("admin", "read"))

    assert (admin.status, "Remove the run" in admin.body.decode()) == (409, True)
    assert (reader.status, "Remove the run" in reader.body.decode()) == (409, False)


def test_a_worker_goes_on_beside_damaged_runs(stage: Stage, tmp_path: Path) -> None:
    (run_id,) = _run(stage.service, tmp_path, FLOW, 1)

    assert stage.service.runs.record(run_id).status == "completed"


def test_damaged_runs_are_removed_and_others_that_have_not_ended_are_not(own_stage: Stage) -> None:
    client = own_stage.client
    refused = client.delete(f"runs/{own_stage.good[1]}")
    trial = client.delete(
        f"runs/{own_stage.damaged['no log']}?dry_run=true".partition("?")[0], query={"dry_run": "true"}
    )

    removed = {name: client.delete(f"runs/{run_id}") for name, run_id in own_stage.damaged.items()}

    assert (refused.status, refused.code) == (409, "run.not_finished")
    assert (trial.status, trial.json["run_ids"]) == (200, [own_stage.damaged["no log"]])
    assert {name: (one.status, one.json["run_ids"]) for name, one in removed.items()} == {
        name: (200, [run_id]) for name, run_id in own_stage.damaged.items()
    }
    assert {one["run_id"] for one in client.get("runs", limit=200).json["runs"]} >= {*own_stage.good}
    assert client.get(f"runs/{own_stage.damaged['no log']}").code == "run.unknown"
    assert client.delete(f"runs/{own_stage.good[0]}", scope="run").status == 403
    assert client.delete(f"runs/{own_stage.good[0]}").json["damage"] == ""
