"""The store over HTTP, over a transport inside this process: it answers as the store behind the server does."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.keeping import T0, commit, ended, new_run, offer, queue, sound_run, started, task, worker

from mulligan.core.effects.run_lists import QueuedShape, RunFilter
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.clusters.shipped_logs import WATCH_KIND, is_watched
from mulligan.core.model.event_types import AvoidedHosts
from mulligan.core.model.workflow import Breaker, encode, version
from mulligan.errors import (
    InputInvalid,
    KeyUsed,
    LoginRefused,
    NotFound,
    Refused,
    ScopeMissing,
    StoreRefused,
    StoreUnavailable,
    UnknownRun,
)
from mulligan.ports import Document, LogChunk, LogKey, Store, TokenLimits, TokenRecord
from mulligan.service.home import Home
from mulligan.service.server.store_calls import HeartbeatJudge, StoreCalls, UploadedFile
from mulligan.service.service import Service
from mulligan.store import open_store
from mulligan.store.http.http_calls import CALLS, PROTOCOL
from mulligan.store.http.http_connection import error_of
from mulligan.store.http.http_store import HttpStore
from mulligan.testing.clock import JumpingClock
from mulligan.testing.history import step, workflow
from mulligan.testing.memory.memory_store import MemoryStore


class Direct:
    """Calls the server's side as a function. `scopes` are those of a token; `cut` breaks a connection."""

    def __init__(self, calls: StoreCalls, *scopes: str) -> None:
        self.calls = calls
        self.scopes = scopes
        self.names: list[str] = []
        self.cut: Callable[[str], str] = lambda name: ""

    def call(self, name: str, body: bytes) -> bytes:
        self.names.append(name)
        scope = CALLS[name].scope
        if self.scopes and scope not in self.scopes:
            raise LoginRefused(f"the token is not for '{scope}'")
        cut = self.cut(name)
        if cut == "request":
            raise StoreUnavailable("the connection broke")
        answer = self.calls.answer(scope, name, body, protocol=str(PROTOCOL))
        if cut == "answer":
            raise StoreUnavailable("the connection broke")
        return answer

    def upload(self, query: Mapping[str, str], data: bytes) -> bytes:
        self.names.append("upload")
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(data)
        sent = UploadedFile(file.name, len(data), hashlib.sha256(data).hexdigest())
        kept = self.calls.keep_artifact(query["name"], query["format"], sent, protocol=str(PROTOCOL))  # type: ignore[arg-type]
        return msgspec.json.encode(kept)

    def begin_wait(self, since: int) -> int | None:
        return None

    def end_wait(self) -> int | None:
        return None

    def close(self) -> None: ...


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "ann") as opened:
        yield opened


@pytest.fixture
def direct(service: Service) -> Store:
    """The store itself."""
    return service.reader.store


@pytest.fixture
def transport(service: Service) -> Direct:
    return Direct(StoreCalls(service.changes))


@pytest.fixture
def over_http(transport: Direct) -> HttpStore:
    return HttpStore(transport=transport)


@pytest.fixture
def remote(transport: Direct) -> HttpStore:
    """The store as a worker has it, which may do nothing but work."""
    transport.scopes = ("worker",)
    store = HttpStore(transport=transport, is_worker=True)
    store.register(worker("far", host="elsewhere", lock="/lock"))
    return store


# -- readers ---------------------------------------------------------------------------------------------------------


def test_every_reader_gets_what_the_store_itself_gives(direct: Store, over_http: HttpStore) -> None:
    turn = started(direct)
    rows = [("step", "build", "tag", b'{"a":1}'), ("step", "deploy", "parked", b"\x00\xff")]
    queue(direct, turn, task(turn.run_id))
    direct.commit([commit(turn, 0, 3, rows=rows)])
    direct.put(turn.run_id, r.PauseRequested(T0, "ann"))
    key = LogKey(turn.run_id, "build", 1, "stdout")
    direct.server_records.append_log([LogChunk(key, 0, b"\xffhello")])
    run_ids, wanted = [turn.run_id], RunFilter(workflows=("nightly",))
    questions: list[Callable[[Store], object]] = [
        lambda store: store.run(turn.run_id),
        lambda store: store.runs(statuses=("running",)),
        lambda store: store.children(turn.run_id),
        lambda store: (store.load(turn.run_id).record, list(map(tuple, store.load(turn.run_id).rows))),
        lambda store: store.log(turn.run_id, 1),
        lambda store: store.log(turn.run_id, limit=1),
        lambda store: store.search_log(turn.run_id, ("run.paused", "none"), 1),
        lambda store: store.inbox(run_ids),
        lambda store: store.waiting_places(),
        lambda store: list(map(tuple, store.tallies())),
        lambda store: list(map(tuple, store.tallies("nightly", T0))),
        lambda store: list(map(tuple, store.recent_rows("nightly", "step", "build", 5))),
        lambda store: list(map(tuple, store.tagged_rows("tag", 5))),
        lambda store: store.breakers(),
        lambda store: [one.name for one in store.workers()],
        lambda store: store.lists.find(wanted, limit=5),
        lambda store: store.lists.count(wanted, limit=5),
        lambda store: store.lists.status_counts(),
        lambda store: store.lists.outcome_counts(T0 - timedelta(days=9), T0 + timedelta(days=9)),
        lambda store: store.lists.records(run_ids),
        lambda store: list(map(tuple, store.lists.attributes(run_ids))),
        lambda store: list(map(tuple, store.lists.rows(run_ids, "step", 5))),
        lambda store: list(map(tuple, store.lists.places([(turn.run_id, "build")]))),
        lambda store: store.lists.open_tasks(run_ids),
        lambda store: store.lists.open_timers(run_ids),
        lambda store: store.lists.leased_tasks(),
        lambda store: list(map(tuple, store.lists.holders())),
        lambda store: store.server_records.documents("draft"),
        lambda store: store.server_records.read_log(key, 0, 100),
        lambda store: store.server_records.log_size(key),
        lambda store: store.server_records.logs_of(turn.run_id),
    ]

    for question in questions:
        assert question(over_http) == question(direct)  # type: ignore[arg-type]


def test_an_error_of_the_server_is_the_same_error_here(over_http: HttpStore) -> None:
    with pytest.raises(UnknownRun):
        over_http.run(17)

    body = (
        b'{"type":"urn:mulligan:error:run.unknown","title":"t","status":404,"detail":"there is no run 17",'
        b'"code":"run.unknown","data":{"run_id":17}}'
    )
    error = error_of(404, body, "http://server")
    assert isinstance(error, UnknownRun)
    assert (error.message, error.data) == ("there is no run 17", {"run_id": 17})
    body = b'{"type":"urn:mulligan:error:run.key_used","detail":"used","code":"run.key_used","data":{"run_id":3}}'
    used = error_of(409, body, "http://server")
    assert isinstance(used, KeyUsed)
    assert used.run_id == 3


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, b"<html>bad gateway", StoreUnavailable),
        (404, b"<html>not found", StoreRefused),
        (401, b'{"type":"urn:mulligan:error:x","detail":"it was revoked","code":"token.refused"}', LoginRefused),
        (429, b'{"type":"urn:mulligan:error:x","detail":"too many","code":"token.too_many"}', StoreUnavailable),
        (404, b'{"type":"about:blank","detail":"no such route","code":"not_found"}', StoreRefused),
    ],
)
def test_an_answer_that_is_not_of_the_store_becomes_an_error_of_it(
    status: int, body: bytes, kind: type[Exception]
) -> None:
    assert isinstance(error_of(status, body, "http://server"), kind)


def test_a_call_that_the_server_does_not_know_is_refused_in_words(service: Service) -> None:
    calls = StoreCalls(service.changes)

    with pytest.raises(NotFound):
        calls.answer("read", "commit", b"{}", protocol="1")
    with pytest.raises(NotFound):
        # It exists, for another scope.
        calls.answer("read", "remove", b'{"root_run_ids":[1]}', protocol="1")
    with pytest.raises(StoreRefused, match="version 7"):
        calls.answer("read", "run", b'{"run_id":1}', protocol="7")


# -- verbs -----------------------------------------------------------------------------------------------------------


def test_who_started_a_run_is_said_by_the_server(direct: Store, over_http: HttpStore) -> None:
    (turn,) = over_http.create([sound_run()])

    assert direct.run(turn.run_id).started_by == "ann"


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_a_run_is_created_once_whatever_is_lost_on_the_way(
    direct: Store, over_http: HttpStore, transport: Direct, cut: str
) -> None:
    cuts = iter([cut])
    transport.cut = lambda name: next(cuts, "")

    turns = over_http.create([sound_run(), sound_run()])

    assert sorted(turn.run_id for turn in turns) == sorted(run.run_id for run in direct.runs())
    assert len(turns) == 2


def test_a_key_of_the_caller_is_kept_and_used_once(over_http: HttpStore) -> None:
    (turn,) = over_http.create([sound_run(key="nightly: tonight")])

    with pytest.raises(KeyUsed) as refused:
        over_http.create([sound_run(key="nightly: tonight")])
    assert refused.value.run_id == turn.run_id


def test_a_verb_is_one_call_and_the_server_says_whose_it_is(
    service: Service, direct: Store, over_http: HttpStore, transport: Direct
) -> None:
    (turn,) = direct.create([new_run()])

    message = over_http.put(turn.run_id, r.PauseRequested(T0, "somebody else"), is_asking=False)

    assert transport.names == ["put_control"]
    (report,) = (one.report for one in direct.inbox([turn.run_id]) if one.id == message)
    assert isinstance(report, r.PauseRequested)
    assert report.by == "ann"


def test_a_token_for_one_workflow_starts_no_other(service: Service) -> None:
    token = TokenRecord("t", "d", "ann", ("write",), T0, limits=TokenLimits(workflows=("weekly",)))
    store = HttpStore(transport=Direct(StoreCalls(service.changes, token)))

    with pytest.raises(Exception, match="not for the workflow 'nightly'"):
        store.create([sound_run()])


def test_a_corrected_workflow_is_code_and_needs_a_token_that_may_write(service: Service, direct: Store) -> None:
    (turn,) = direct.create([new_run()])
    data = encode(workflow(step("a")))
    retry = r.RetryRequested(T0, "ann", revised=r.Revised(version(data), msgspec.json.decode(data)))
    token = TokenRecord("t", "d", "ann", ("run",), T0)

    with pytest.raises(ScopeMissing):
        HttpStore(transport=Direct(StoreCalls(service.changes, token))).put(turn.run_id, retry)

    assert not [one for one in direct.inbox([turn.run_id]) if isinstance(one.report, r.RetryRequested)]
    writer = msgspec.structs.replace(token, scopes=("write",))
    assert HttpStore(transport=Direct(StoreCalls(service.changes, writer))).put(turn.run_id, retry)


def test_a_change_with_a_known_id_is_carried_out_once(service: Service, direct: Store) -> None:
    calls = StoreCalls(service.changes)
    body = msgspec.json.encode({"runs": [sound_run()]})

    answers = {calls.answer("write", "create", body, protocol="1", call_id="a") for _ in range(2)}

    assert len(answers) == 1
    assert len(direct.runs()) == 1
    with pytest.raises(StoreUnavailable, match="started again"):
        calls.answer("write", "create", body, protocol="1", call_id="a", process="another")


# -- workers ---------------------------------------------------------------------------------------------------------


def test_results_logs_and_new_leases_share_one_round_trip(direct: Store, remote: HttpStore, transport: Direct) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id), task(turn.run_id, "deploy"))
    (first,) = remote.lease("far", offer(tasks_max=1))
    transport.names.clear()

    key = LogKey(turn.run_id, "build", 1, "stdout")
    remote.server_records.append_log([LogChunk(key, 0, b"done", is_last=True)])
    remote.report(first.token, ended())
    (second,) = remote.lease("far", offer(tasks_max=1))

    assert transport.names == ["work.exchange"]
    assert second.task.place == "deploy"
    assert direct.server_records.read_log(key, 0, 10) == b"done"
    assert [lease.token for lease in direct.leases_of("far")] == [second.token]


def test_a_report_whose_answer_was_lost_is_sent_again_and_counts_once(
    direct: Store, remote: HttpStore, transport: Direct
) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id))
    (lease,) = remote.lease("far", offer())
    remote.report(lease.token, ended())
    cuts = iter(["request", "answer"])
    transport.cut = lambda name: next(cuts, "")

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            remote.record_heartbeat("far")
    assert remote.leases_of("far") == []

    reports = [one.report for one in direct.inbox([turn.run_id])]
    assert sum(isinstance(one, r.TaskEnded) for one in reports) == 1


def test_the_rules_of_leases_hold_for_a_worker_of_another_host(direct: Store, remote: HttpStore) -> None:
    turn = started(direct)
    waits = AvoidedHosts(("h1",), datetime.now(UTC) + timedelta(hours=1))
    queue(direct, turn, task(turn.run_id, "long", timeout=3600.0), task(turn.run_id, "kept", avoids=waits))
    queue(direct, turn, task(turn.run_id, "short", timeout=60.0))

    assert [one.task.place for one in remote.lease("far", offer(host="h1", seconds_left=90.0))] == ["short"]
    assert [one.task.place for one in remote.lease("far", offer(host="h2", seconds_left=90.0))] == ["kept"]


def test_leases_whose_answer_was_lost_are_found_again(direct: Store, remote: HttpStore, transport: Direct) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id))
    cuts = iter(["answer"])
    transport.cut = lambda name: next(cuts, "")

    with pytest.raises(StoreUnavailable):
        remote.lease("far", offer())

    assert [lease.task.place for lease in remote.leases_of("far")] == ["build"]


def test_a_worker_cannot_report_about_what_it_was_not_given(direct: Store, remote: HttpStore) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id), task(turn.run_id, "deploy"))
    (lease,) = remote.lease("far", offer(tasks_max=1))

    remote.report(lease.token, ended("deploy"))
    remote.report(lease.token + 1, ended("deploy"))
    remote.record_heartbeat("far")

    assert [one.report for one in direct.inbox([turn.run_id]) if isinstance(one.report, r.TaskEnded)] == []
    assert remote.leases_of("far") == [lease]


def test_a_token_does_not_speak_for_the_worker_of_another(service: Service, direct: Store) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id), task(turn.run_id, "deploy"))
    mine, other = (
        HttpStore(transport=Direct(StoreCalls(service.changes, TokenRecord(name, name, name, ("worker",), T0))))
        for name in ("mine", "other")
    )
    mine.register(worker("far"))
    (lease,) = mine.lease("far", offer(tasks_max=1))

    other.report(lease.token, ended())
    actions: list[Callable[[], object]] = [
        lambda: other.lease("far", offer()),
        lambda: other.record_heartbeat("far"),
        lambda: other.leases_of("far"),
        lambda: other.retire("far"),
        lambda: other.register(worker("far")),
        # "w" is a worker with a database.
        lambda: other.lease("w", offer()),
    ]
    for act in actions:
        with pytest.raises(Refused):
            act()

    assert direct.leases_of("far") == [lease]
    mine.report(lease.token, ended())
    assert [one.task.place for one in mine.lease("far", offer())] == ["deploy"]


def test_a_token_does_not_get_the_answer_to_the_call_of_another(service: Service, direct: Store) -> None:
    body = msgspec.json.encode({"runs": [sound_run()]})

    for name in ("mine", "other"):
        calls = StoreCalls(service.changes, TokenRecord(name, name, name, ("write",), T0))
        calls.answer("write", "create", body, protocol="1", call_id="the same")

    assert len(direct.runs()) == 2


def test_the_server_expires_a_worker_that_sends_no_heartbeats() -> None:
    """Nobody else may be there to do it. After an outage it gives all workers a lease to come back."""
    killed: list[str] = []
    clock = JumpingClock()
    judge = HeartbeatJudge(clock.elapsed, killed.append)
    store = MemoryStore(clock=clock, lease_seconds=30.0)
    # A worker with a lock is judged by its lock.
    for name, path in (("alive", ""), ("silent", ""), ("local", "/lock")):
        store.register(worker(name, lock=path))

    def names_after(seconds: float) -> list[str]:
        clock.advance(seconds)
        assert judge.take(store, "alive", 30.0)
        return sorted(one.name for one in store.workers())

    assert [names_after(seconds) for seconds in (50, 10, 10, 10)] == [["alive", "local", "silent"]] * 4
    assert names_after(1) == ["alive", "local"]
    assert killed == ["silent"]


def test_a_token_for_workers_reads_nothing(remote: HttpStore) -> None:
    for question in (lambda: remote.run(1), lambda: remote.workers(), lambda: remote.create([sound_run()])):
        with pytest.raises(LoginRefused):
            question()


def test_the_lock_of_a_worker_elsewhere_says_nothing_in_a_store_of_one_host(direct: Store, remote: HttpStore) -> None:
    (record,) = direct.workers()

    assert record.lock == ""


def test_more_than_one_request_may_hold_is_sent_in_several(direct: Store, remote: HttpStore, transport: Direct) -> None:
    turn = started(direct)
    queue(direct, turn, *(task(turn.run_id, f"step{number}") for number in range(4)))
    leases = remote.lease("far", offer())
    transport.names.clear()

    for lease in leases:
        remote.report(lease.token, msgspec.structs.replace(ended(lease.task.place), output="x" * 600_000))
    assert remote.leases_of("far") == []

    assert transport.names.count("work.exchange") == 4
    assert direct.leases_of("far") == []


def test_artifacts_of_a_worker_are_uploaded_and_fetched(tmp_path: Path, direct: Store, remote: HttpStore) -> None:
    started(direct)
    kept = remote.artifacts.keep("1/build/1/1/output.json", b"[1]", "json")
    file = tmp_path / "file"
    file.write_bytes(b"\x00\xff")
    again = remote.artifacts.keep_file(msgspec.structs.replace(kept, name="1/build/1/1/file"), str(file))

    assert direct.artifacts.fetch(kept) == remote.artifacts.fetch(kept) == b"[1]"
    assert again.name == "1/build/1/1/file"
    assert not file.exists()


def test_a_connection_that_is_gone_is_not_watched_any_more(transport: Direct) -> None:
    descriptors = iter([7, 8])
    transport.begin_wait = lambda since: next(descriptors)  # type: ignore[method-assign]

    def gone() -> int | None:
        raise StoreUnavailable("the connection broke")

    transport.end_wait = gone  # type: ignore[method-assign]
    store = HttpStore(transport=transport)
    assert store.fileno() == 7

    with pytest.raises(StoreUnavailable):
        store.has_changes()

    assert store.fileno() == 8


# -- opening ---------------------------------------------------------------------------------------------------------


def test_a_server_is_opened_by_its_url_with_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MULLIGAN_TOKEN", raising=False)
    with pytest.raises(LoginRefused, match="no token"):
        open_store("https://server:8642")

    file = tmp_path / "token"
    file.write_text("mul_secret\n")
    monkeypatch.setenv("MULLIGAN_TOKEN_FILE", str(file))
    assert isinstance(open_store("https://server:8642"), HttpStore)
    monkeypatch.setenv("MULLIGAN_TOKEN", "two words")
    with pytest.raises(LoginRefused, match="one word"):
        open_store("https://server:8642")


@pytest.mark.parametrize("url", ["https://", "http://user:pw@server", "https://server/path", "https://server:port"])
def test_an_address_that_is_not_one_of_a_server_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        HttpStore(url, token="t")

    assert "pw" not in str(refused.value)


# -- logs ------------------------------------------------------------------------------------------------------------


def test_the_server_reads_logs_from_its_files_and_from_what_was_shipped(
    service: Service, direct: Store, over_http: HttpStore
) -> None:
    run_id = started(direct).run_id
    here, there = LogKey(run_id, "build", 1, "stdout"), LogKey(run_id, "test", 1, "stdout")
    file = Path(service.logs.ranges.path(here))
    file.parent.mkdir(parents=True)
    file.write_bytes(b"built\n")
    direct.server_records.append_log([LogChunk(there, 0, b"tested\n", is_last=True)])
    records = over_http.server_records

    assert [records.read_log(key, 0, 100) for key in (here, there)] == [b"built\n", b"tested\n"]
    assert [records.log_size(key) for key in (here, there)] == [(6, False), (7, True)]
    with pytest.raises(UnknownRun):
        records.read_log(LogKey(99, "build", 1, "stdout"), 0, 1)


def test_a_worker_learns_with_its_heartbeat_whose_logs_are_read(
    service: Service, transport: Direct, remote: HttpStore, direct: Store
) -> None:
    run_id = started(direct).run_id
    watch = Document(kind=WATCH_KIND, name=str(run_id), data=b"", updated_at=T0)

    before = remote.record_heartbeat("far"), remote.server_records.documents(WATCH_KIND)
    transport.scopes = ("read",)
    HttpStore(transport=transport).server_records.put_document(watch)
    transport.scopes = ("worker",)
    remote.record_heartbeat("far")
    (found,) = remote.server_records.documents(WATCH_KIND)

    assert before[0] is not None
    assert before[1] == []
    assert found.name == str(run_id)
    assert is_watched(found.data, datetime.now(UTC))


def test_a_worker_ships_what_a_dead_one_of_its_host_left_and_nothing_of_other_hosts(
    remote: HttpStore, direct: Store
) -> None:
    turn = started(direct)
    hosts = {"build": "elsewhere", "test": "another"}
    facts = [e.AttemptStarted(place, 1, "dead", host) for place, host in hosts.items()]
    entries = [e.Entry(seq, T0, 0, fact) for seq, fact in enumerate(facts, 1)]
    direct.commit([replace(commit(turn, 0, 2), entries=entries)])
    keys = [LogKey(turn.run_id, place, 1, "stdout") for place in hosts]

    remote.server_records.append_log([LogChunk(key, 0, b"hello") for key in keys])
    remote.record_heartbeat("far")

    assert [direct.server_records.log_size(key) for key in keys] == [(5, False), None]


# -- demand ------------------------------------------------------------------------------------------------------------


def test_demand_is_counted_and_refused_over_http(direct: Store, over_http: HttpStore) -> None:
    turn = started(direct)
    queue(direct, turn, task(turn.run_id, "a", nodes=2, labels=("gpu",), timeout=5.0), task(turn.run_id, "b"))

    wide, small = over_http.queued_shapes()

    assert [wide, small] == direct.queued_shapes()
    assert over_http.refuse_queued(wide, "no such node") == 1
    (told,) = (one.report for one in direct.inbox([turn.run_id]) if isinstance(one.report, r.TaskEnded))
    assert (told.place, told.outcome.code) == ("a", "NO_CAPACITY")


def test_failed_pilots_are_counted_over_http_and_other_breakers_are_not(direct: Store, over_http: HttpStore) -> None:
    over_http.count_outcome("slurm:gpu", Breaker(failures=1), "failure")

    assert [(one.name, one.status) for one in direct.breakers()] == [("slurm:gpu", "open")]
    for name, rules in (("llm", Breaker()), ("slurm:gpu", Breaker(failures=0)), ("slurm:x", Breaker(reset=1e300))):
        with pytest.raises(InputInvalid):
            over_http.count_outcome(name, rules, "failure")


def test_numbers_that_no_task_can_ask_for_are_refused(over_http: HttpStore) -> None:
    with pytest.raises(InputInvalid):
        over_http.refuse_queued(QueuedShape(memory=2**63), "none")


def test_a_worker_learns_which_runs_have_ended_and_nothing_else_about_them(direct: Store, remote: HttpStore) -> None:
    (turn,) = direct.create([new_run()])

    assert remote.ended_runs([turn.run_id, 99]) == [99]
    with pytest.raises(InputInvalid):
        remote.ended_runs(list(range(501)))


def test_the_trouble_of_a_remote_worker_is_written_for_its_own_worker_only(direct: Store, remote: HttpStore) -> None:
    (record,) = direct.workers()

    remote.set_trouble(record.name, "the disk is full")

    assert [one.trouble for one in direct.workers()] == ["the disk is full"]
