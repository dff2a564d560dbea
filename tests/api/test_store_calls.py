"""The routes of a store over HTTP: who may make which call, and waiting for changes."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.api_client import AT, Client, Reply, open_client, start_run, token_record
from tests.support.keeping import offer, queue, started, task

from mulligan.api.areas.store_calls import ChangeWaits
from mulligan.core.model.reports import RetryRequested, RunRequested
from mulligan.core.model.workflow import decode, encode, version
from mulligan.ports import LogKey, NewRun, WorkerRecord
from mulligan.service.home import Home
from mulligan.service.server.store_calls import (
    CALL_ID_CHARS_MAX,
    CALLS,
    FILTER_VALUES_MAX,
    OTHER_CHANGES_SECONDS,
    PROCESS,
    QUESTION_IDS_MAX,
    WAIT_SECONDS,
    ChangeCounter,
    ChangeCounts,
)
from mulligan.service.service import Service

PROTOCOL = {"mulligan-protocol": "1"}


def test_a_call_is_answered_with_what_the_store_has(client: Client) -> None:
    reply = client.post("store/read/runs", b'{"limit":5,"before":null,"statuses":[]}', headers=PROTOCOL)

    assert (reply.status, reply.json) == (200, [])
    assert reply.headers["mulligan-process"] == PROCESS


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("store/read/run", b'{"run_id":17}', 404),
        ("store/read/run", b'{"run_id":"x"}', 422),
        ("store/read/run", b"not json", 422),
        ("store/read/run", b'{"run_id":1,"more":1}', 422),
        ("store/read/commit", b"{}", 404),
        ("store/read/remove", b'{"root_run_ids":[]}', 404),
        ("store/write/create", b'{"runs":[{}]}', 422),
        ("store/run/put_control", b'{"run_id":1,"report":{"type":"ChildEnded"},"is_asking":false}', 422),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(client: Client, path: str, body: bytes, status: int) -> None:
    assert client.post(path, body, headers=PROTOCOL).status == status


def test_another_version_of_the_protocol_is_refused_in_words(client: Client) -> None:
    reply = client.post("store/read/now", b"{}", headers={"mulligan-protocol": "99"})

    assert reply.code == "store.refused"
    assert "version 1" in reply.json["detail"]


def test_every_call_belongs_to_one_scope_and_a_worker_has_no_other(client: Client) -> None:
    for name, call in CALLS.items():
        status = client.post(f"store/{call.scope}/{name}", b"", scope="worker", headers=PROTOCOL).status
        # 422: it was let in, and has no arguments.
        assert (status == 422) == (call.scope == "worker"), name
        assert status in (403, 422)


def test_what_waits_is_woken_by_the_next_change(client: Client) -> None:
    first = client.get("store/changes/read", since=-1).json

    # Nothing has changed since: it does not wait longer than it was asked to.
    assert client.get("store/changes/read", since=first, seconds=0).json == first
    client.post("store/worker/work.register", _a_worker(), scope="worker", headers=PROTOCOL)
    assert client.get("store/changes/worker", scope="worker", since=first).json != first


def test_who_waits_is_answered_when_the_server_ends() -> None:
    closing = asyncio.Event()

    async def read(_: object) -> ChangeCounts:
        return ChangeCounts(7, 7)

    async def ask() -> tuple[int, int]:
        waits, call = ChangeWaits(), SimpleNamespace(read=read, is_closing=closing.is_set)
        async with asyncio.timeout(WAIT_SECONDS / 2):
            waiting = asyncio.ensure_future(waits.next(call, 7, WAIT_SECONDS, is_worker=True))
            await asyncio.sleep(0)
            closing.set()
            return await waiting, await waits.next(call, 7, WAIT_SECONDS, is_worker=False)

    assert asyncio.run(ask()) == (7, 7)


def test_an_artifact_of_a_run_is_kept_as_it_was_sent(client: Client) -> None:
    with Service(client.home) as service:
        store = service.reader.store
        store.create([NewRun(b"{}", "v", "nightly", RunRequested(AT, 0))])

    reply = client.request(
        "POST",
        "store/artifacts",
        body=b"\x00\xff",
        query={"name": "1/build/1/1/output.txt", "format": "text"},
        scope="worker",
        headers=PROTOCOL,
    )

    assert reply.json == "1/build/1/1/output.txt"
    other = {"name": "2/build/1/1/output.txt", "format": "text"}
    assert (
        client.request("POST", "store/artifacts", body=b"", query=other, scope="worker", headers=PROTOCOL).status == 404
    )


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "1/../../x", "1/.hidden", "x" * 5000])
def test_an_artifact_has_a_name_that_leads_nowhere_else(client: Client, name: str) -> None:
    query = {"name": name, "format": "text"}

    assert (
        client.request("POST", "store/artifacts", body=b"x", query=query, headers=PROTOCOL, scope="worker").status
        == 422
    )


def test_a_counter_tells_of_changes_that_others_make(client: Client) -> None:
    counter = ChangeCounter(client.home)
    try:
        first = counter.read()
        assert counter.read() == first
        client.post("store/worker/work.register", _a_worker(), scope="worker", headers=PROTOCOL)
        assert counter.read() != first
    finally:
        counter.close()


def test_workers_hear_of_queued_tasks_at_once_and_of_other_changes_after_a_moment(client: Client) -> None:
    now = [100.0]
    counter = ChangeCounter(client.home, lambda: now[0])
    store = client.home.open()
    try:
        turn = started(store)
        first = counter.read()
        queue(store, turn, task(turn.run_id))
        second = counter.read()
        assert second.work != first.work

        store.lease("w", offer())
        third = counter.read()
        assert (third.work, third.changes != second.changes) == (second.work, True)
        now[0] += 2 * OTHER_CHANGES_SECONDS
        assert counter.read().work != third.work
        now[0] += 2 * OTHER_CHANGES_SECONDS
        assert counter.read() == counter.read()
    finally:
        store.close()
        counter.close()


def _a_worker() -> bytes:
    return msgspec.json.encode(
        {"worker": {"name": "far.1", "host": "far", "pid": 1, "cpus": 2.0}, "lease_seconds": 30.0}
    )


def test_a_corrected_definition_is_code_and_needs_the_scope_write(client: Client, service: Service) -> None:
    run_id = start_run(service)
    definition = msgspec.json.decode(service.reader.store.load(run_id).workflow)
    report = {
        "type": "RetryRequested",
        "at": AT,
        "by": "somebody else",
        "revised": {"version": service.reader.store.run(run_id).version, "definition": definition},
    }

    def retry(scope: str) -> Reply:
        body = msgspec.json.encode({"run_id": run_id, "report": report, "is_asking": False})
        return client.post("store/run/put_control", body, scope=scope, headers=PROTOCOL)

    refused, too_early, allowed = retry("run"), retry("write"), retry("admin")

    assert (refused.status, refused.code, refused.json["data"]) == (403, "token.scope", {"scope": "write"})
    # Whoever may not approve has to wait until it is known what the round keeps.
    assert (too_early.code, allowed.status) == ("run.not_finished", 200)
    message = service.reader.store.inbox([run_id])[-1]
    assert isinstance(message.report, RetryRequested) and message.report.by == "admin"


def test_a_worker_belongs_to_whoever_registered_it(home: Home) -> None:
    others = [token_record("theirs", ["worker"], project="theirs"), token_record("mine", ["worker"])]
    client = open_client(home, tokens=others)
    with Service(home) as service:
        service.reader.store.register(WorkerRecord("here.1", "here", 1))
    register = _a_worker()
    exchange: dict[str, Any] = {"ended": [], "logs": [], "offer": None, "is_beat": True}

    def ask(call: str, body: Any, scope: str) -> int:
        reply: Reply = client.post(f"store/worker/work.{call}", body, scope=scope, headers=PROTOCOL)
        return reply.status

    assert ask("register", register, "mine") == 200
    for scope, worker in (("theirs", "far.1"), ("worker", "far.1"), ("mine", "here.1")):
        assert ask("exchange", {**exchange, "worker": worker}, scope) == 409
        assert ask("leases_of", {"worker": worker}, scope) == 409
        assert ask("retire", {"worker": worker}, scope) == 409
    assert ask("register", register, "theirs") == 409
    assert ask("retire", {"worker": "nobody"}, "mine") == 409
    assert ask("exchange", {**exchange, "worker": "far.1"}, "mine") == 200
    assert ask("retire", {"worker": "far.1"}, "mine") == 200
    with Service(home) as service:
        assert [one.name for one in service.reader.store.workers()] == ["here.1"]
        assert not service.reader.store.server_records.documents("worker")
    client.close()


def test_the_answer_to_a_change_is_only_for_whoever_made_it(client: Client, service: Service) -> None:
    run_id = start_run(service)
    body = {"run_id": run_id, "report": {"type": "CancelRequested", "at": AT}, "is_asking": False}
    headers = {**PROTOCOL, "mulligan-call": "the same"}

    first, again, other = (
        client.post("store/run/put_control", body, scope=scope, headers=headers).json
        for scope in ("run", "run", "write")
    )

    assert first == again != other


@pytest.mark.parametrize(("start", "end"), [(-(2**63) + 1, -(2**63) + 1), (-5, 3), (7, 3), (2**63 - 1, 2**63 - 1)])
def test_a_log_is_read_from_anywhere(client: Client, service: Service, start: int, end: int) -> None:
    run_id = start_run(service)
    key = LogKey(run_id, "fetch", 1, "stdout")
    file = Path(service.reader.log_ranges.path(key))
    file.parent.mkdir(parents=True)
    file.write_bytes(b"12345")

    reply = client.post(
        "store/read/server_records.read_log", {"key": key, "start": start, "end": end}, headers=PROTOCOL
    )

    assert (reply.status, reply.body) == (200, b"12345"[max(start, 0) : max(end, 0)])


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_number_that_no_database_can_count_is_refused(client: Client, number: int) -> None:
    for call, body in (
        ("run", {"run_id": number}),
        ("lists.records", {"run_ids": [number]}),
        ("runs", {"limit": 1, "before": number, "statuses": []}),
        ("lists.places", {"keys": [(number, "fetch")]}),
        ("server_records.read_log", {"key": {"run_id": 1, "place": "a", "attempt": 1}, "start": number, "end": 1}),
        ("server_records.log_size", {"key": {"run_id": 1, "place": "a", "attempt": number, "stream": "stdout"}}),
        ("server_records.logs_of", {"run_id": number}),
    ):
        # Not with `msgspec`, which writes no number of more than 64 bits.
        sent = json.dumps(body).encode()
        assert client.post(f"store/read/{call}", sent, headers=PROTOCOL).status == 422, call


def test_the_audit_says_which_run_a_call_of_the_store_changed_and_why(client: Client, service: Service) -> None:
    run_id = start_run(service)
    report = {"type": "CancelRequested", "at": AT, "by": "somebody else", "reason": "it is late"}

    client.post("store/run/put_control", {"run_id": run_id, "report": report, "is_asking": False}, headers=PROTOCOL)
    client.post("store/run/put_control", b"not json", headers=PROTOCOL)

    refused, begun, changed = client.get("audit").json["audit"]
    assert (changed["who"], changed["why"]) == ("admin", "it is late")
    assert changed["target"] == f"/api/v1/store/run/put_control?run_id={run_id}&report=CancelRequested"
    assert (begun["target"], refused["status"]) == ("/api/v1/store/run/put_control", 422)


def test_the_id_of_a_call_gives_no_old_answer_to_another_request(client: Client, service: Service) -> None:
    run_id = start_run(service)
    headers = {**PROTOCOL, "mulligan-call": "one"}

    def pause(reason: str) -> Reply:
        report = {"type": "PauseRequested", "at": AT, "reason": reason}
        body = msgspec.json.encode({"run_id": run_id, "report": report, "is_asking": False})
        return client.post("store/run/put_control", body, headers=headers)

    first, again, other = pause("a"), pause("a"), pause("b")

    assert (first.status, again.body) == (200, first.body)
    assert (other.status, other.code) == (409, "refused")
    assert len(service.reader.store.inbox([run_id])) == 2


# -- what a hostile client sends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_asking", [True, False])
@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"items": [0]}, 422),
        ({"revised": {"version": "v", "definition": {}}}, 422),
        ({"revised": {"version": "v", "definition": {"name": "x", "steps": [], "end": {"name": "end"}}}}, 422),
        ({"reason": "\0"}, 422),
        ({"peaks": {"fetch": -1}}, 422),
        ({"budgets": {"": {"cost": "NaN"}}}, 422),
    ],
)
def test_a_request_that_no_run_can_process_is_refused_at_the_door(
    client: Client, service: Service, more: dict[str, Any], status: int, is_asking: bool
) -> None:
    run_id = start_run(service)
    before = len(service.reader.store.inbox([run_id]))
    report = {"type": "RetryRequested", "at": AT, "by": "mallory", **more}

    reply = client.post(
        "store/run/put_control",
        {"run_id": run_id, "report": report, "is_asking": is_asking},
        scope="write",
        headers=PROTOCOL,
    )

    assert reply.status == status
    assert len(service.reader.store.inbox([run_id])) == before


def _wrong_reads(plain: dict[str, Any]) -> None:
    plain["steps"][0]["when"] = {"source": "inputs.x == 1", "reads": []}


def _wrong_pattern(plain: dict[str, Any]) -> None:
    plain["steps"][0]["rules"] = [{"pattern": r"(a|b)*(a|b)*\1"}]


def _wrong_child(plain: dict[str, Any]) -> None:
    plain["steps"][0]["action"] = {"kind": "workflow"}


@pytest.mark.parametrize("change", [_wrong_reads, _wrong_pattern, _wrong_child])
def test_a_corrected_definition_is_checked_as_deeply_as_that_of_a_new_run(
    client: Client, service: Service, change: Callable[[dict[str, Any]], None]
) -> None:
    run_id = start_run(service)
    plain = msgspec.json.decode(service.reader.store.load(run_id).workflow)
    change(plain)
    data = encode(decode(msgspec.json.encode(plain)))
    revised = {"version": version(data), "definition": msgspec.json.decode(data)}
    report = {"type": "RetryRequested", "at": AT, "by": "mallory", "revised": revised}

    body = {"run_id": run_id, "report": report, "is_asking": False}
    reply = client.post("store/run/put_control", body, scope="admin", headers=PROTOCOL)

    assert (reply.status, reply.code) == (422, "input.invalid"), reply.body
    assert len(service.reader.store.inbox([run_id])) == 1


@pytest.mark.parametrize("word", ["\0", '"', "*", "a b OR c", "x" * 100_000])
def test_any_word_can_be_searched_for(client: Client, service: Service, word: str) -> None:
    start_run(service)
    wanted = {"words": [word]}

    found = [
        client.post("store/read/lists.find", {"wanted": wanted, "before": None, "limit": 5}, headers=PROTOCOL),
        client.post("store/read/lists.count", {"wanted": wanted, "limit": 5}, headers=PROTOCOL),
    ]

    assert {one.status for one in found} == {422 if word == "\0" else 200}


@pytest.mark.parametrize(
    "offered",
    [
        {"lacks": ["/a"] * 100_000},
        {"lacks": ["/" + "a" * 100_000]},
        {"labels": ["a"] * 100_000},
        {"refused_cpus": [1.0] * 100_000},
        {"tasks_max": 2**62},
    ],
)
def test_an_offer_is_bounded(client: Client, offered: dict[str, Any]) -> None:
    client.post("store/worker/work.register", _a_worker(), scope="worker", headers=PROTOCOL)
    body = {"worker": "far.1", "ended": [], "logs": [], "is_beat": False}

    replies = [
        client.post(
            "store/worker/work.exchange",
            {**body, "offer": {**msgspec.to_builtins(offer()), **more}},
            scope="worker",
            headers=PROTOCOL,
        )
        for more in ({}, offered)
    ]

    assert [one.status for one in replies] == [200, 422]


@pytest.mark.parametrize(
    "said",
    [{"name": "x" * 1000}, {"name": ""}, {"host": "a\nb"}, {"labels": ["a"] * 100_000}, {"job": {"id": "x" * 9000}}],
)
def test_what_a_worker_says_about_itself_is_bounded(client: Client, said: dict[str, Any]) -> None:
    worker = {"name": "far.1", "host": "far", "pid": 1, "cpus": 2.0, **said}

    reply = client.post(
        "store/worker/work.register", {"worker": worker, "lease_seconds": 30.0}, scope="worker", headers=PROTOCOL
    )

    assert (reply.status, reply.code) == (422, "input.invalid")


def _log_of(run_id: int, place: str, attempt: int, data: bytes) -> dict[str, Any]:
    key = {"run_id": run_id, "place": place, "attempt": attempt, "stream": "stdout"}
    return {"key": key, "start": 0, "data": base64.b64encode(data).decode(), "is_last": False}


def test_a_worker_ships_the_logs_of_its_own_attempts_alone(home: Home) -> None:
    """It says that it is on the host of another one, and has a task of the same run: neither makes the log its own."""
    client = open_client(home, tokens=[token_record("mine", ["worker"]), token_record("theirs", ["worker"])])
    with Service(home) as service:
        store = service.reader.store
        turn = started(store)
        queue(store, turn, task(turn.run_id, "a"), task(turn.run_id, "b"))

        def ask(scope: str, call: str, body: dict[str, Any]) -> Reply:
            return client.post(f"store/worker/work.{call}", body, scope=scope, headers=PROTOCOL)

        def exchange(scope: str, worker: str, *logs: dict[str, Any], offers: bool = False) -> Reply:
            offered = msgspec.to_builtins(offer(tasks_max=1)) if offers else None
            body = {"worker": worker, "ended": [], "logs": list(logs), "offer": offered, "is_beat": False}
            return ask(scope, "exchange", body)

        for scope, name in (("mine", "far.1"), ("theirs", "far.2")):
            record = {"name": name, "host": "far", "pid": 1, "cpus": 2.0}
            assert ask(scope, "register", {"worker": record, "lease_seconds": 30.0}).status == 200
        (mine,) = exchange("mine", "far.1", offers=True).json["leases"]
        (other,) = exchange("theirs", "far.2", offers=True).json["leases"]
        ours, forged = mine["task"]["place"], other["task"]["place"]
        exchange("mine", "far.1", _log_of(turn.run_id, ours, 1, b"true"))

        exchange("theirs", "far.2", _log_of(turn.run_id, ours, 1, b"forged and longer"))
        exchange("mine", "far.1", _log_of(turn.run_id, forged, 1, b"forged"))
        exchange("theirs", "far.2", _log_of(turn.run_id + 7, ours, 1, b"forged"))

        key = LogKey(turn.run_id, ours, 1, "stdout")
        assert store.server_records.read_log(key, 0, 100) == b"true"
        assert store.server_records.logs_of(turn.run_id) == [key]
    client.close()


def test_nobody_takes_the_name_of_a_dead_worker_of_somebody_else(home: Home) -> None:
    client = open_client(home, tokens=[token_record("mine", ["worker"]), token_record("theirs", ["worker"])])
    body = _a_worker()
    assert client.post("store/worker/work.register", body, scope="mine", headers=PROTOCOL).status == 200
    with Service(home) as service:
        assert service.reader.store.expire("far.1", is_dead=True)

    assert client.post("store/worker/work.register", body, scope="theirs", headers=PROTOCOL).status == 409
    client.close()


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("lists.records", {}),
        ("lists.attributes", {}),
        ("lists.rows", {"kind": "items", "limit": 5}),
        ("inbox", {}),
    ],
)
def test_an_id_that_is_named_again_and_again_is_looked_up_once(
    client: Client, service: Service, name: str, others: dict[str, Any]
) -> None:
    run_id = start_run(service)

    def ask(times: int) -> bytes:
        body = json.dumps({"run_ids": [run_id] * times, **others}).encode()
        return client.post(f"store/read/{name}", body, headers=PROTOCOL).body

    assert ask(1000) == ask(1)


def test_a_question_names_a_bounded_number_of_things(client: Client) -> None:
    many = {"run_ids": list(range(QUESTION_IDS_MAX + 1))}
    values = [f"user {number}" for number in range(FILTER_VALUES_MAX + 1)]
    wanted = {"before": None, "limit": 5}

    asked = [
        client.post("store/read/lists.records", json.dumps(many).encode(), headers=PROTOCOL),
        client.post(
            "store/read/lists.find", json.dumps({"wanted": {"starters": values}, **wanted}).encode(), headers=PROTOCOL
        ),
        client.post(
            "store/read/lists.count", json.dumps({"wanted": {"words": values}, "limit": 5}).encode(), headers=PROTOCOL
        ),
        client.post("store/read/runs", json.dumps({"statuses": values, **wanted}).encode(), headers=PROTOCOL),
    ]

    assert [(one.status, one.code) for one in asked] == [(422, "input.invalid")] * 4


def test_the_id_of_a_change_is_short(client: Client) -> None:
    """The last two thousand are remembered."""
    body = b'{"name":"nothing"}'
    ids = {"a" * CALL_ID_CHARS_MAX: 200, "a" * (CALL_ID_CHARS_MAX + 1): 422}

    asked = [client.post("store/run/reset_breaker", body, headers={**PROTOCOL, "mulligan-call": one}) for one in ids]

    assert [one.status for one in asked] == [*ids.values()]
