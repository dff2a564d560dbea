"""What a server keeps: workflows, documents, tokens, audit, notices and shipped logs, the same in every store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from hashlib import sha256
from threading import Barrier
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from tests.support.keeping import T0, Memory, Open, Place, PostgresSchema, commit, has_news, new_run, started

from mulligan.errors import KeyUsed, MulliganError, RevisionMismatch
from mulligan.ports import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    ServerRecords,
    SettledNotice,
    Store,
    TargetPause,
    TokenLimits,
    TokenRecord,
    WaitingTarget,
    WorkflowVersion,
)
from mulligan.store import view_project

pytestmark = pytest.mark.postgres

Result = TypeVar("Result")

MINUTE = timedelta(minutes=1)
KEY = LogKey(1, "build", 1, "stdout")


def version(name: str = "nightly", text: str = "name: nightly", **fields: Any) -> WorkflowVersion:
    digest = sha256(text.encode()).hexdigest()
    return WorkflowVersion(name, digest, T0, "ada", text=text, **fields)


def document(name: str = "nightly", data: bytes = b"{}", **fields: Any) -> Document:
    return Document("draft", name, data, T0, "ada", **fields)


def token(name: str = "t1", **fields: Any) -> TokenRecord:
    return TokenRecord(name, f"digest of {name}", "ada", ("read", "run"), T0, **fields)


def audited(action: str = "POST /api/v1/runs", **fields: Any) -> AuditRecord:
    line: dict[str, Any] = {"at": T0, "who": "ada", "target": "/api/v1/runs", "status": 201, "token_id": "t1"}
    return AuditRecord(action=action, **{**line, **fields})


def notice(key: str = "n1", **fields: Any) -> NoticeRecord:
    return NoticeRecord(key, "ops", b'{"text": "failed"}', T0, **fields)


# -- workflows -------------------------------------------------------------------------------------------------------


def test_versions_are_numbered_for_each_name_and_project(store: Store) -> None:
    records = store.server_records

    numbers = [
        records.publish(one).number
        for one in (version(text="1"), version(text="2"), version("other"), version(text="1", project="blue"))
    ]

    assert numbers == [1, 2, 1, 1]


def test_the_same_text_again_is_the_same_version_but_an_older_one_is_a_new_version(store: Store) -> None:
    records = store.server_records
    records.publish(version(text="1"))

    again = records.publish(version(text="1", note="again"))
    records.publish(version(text="2"))
    back = records.publish(version(text="1"))

    assert (again.number, again.note, again.text) == (1, "", "1")
    assert back.number == 3


def test_a_version_is_read_as_it_was_published(store: Store) -> None:
    written = version(
        text="name: näch\0tlich", format="mulligan", note="why\0", labels={"team": "data"}, project="blue"
    )

    store.server_records.publish(written)
    found = store.server_records.version("blue", "nightly")

    assert found is not None
    assert (found.text, found.format, found.labels) == (written.text, "mulligan", {"team": "data"})
    assert (found.published_at, found.published_by, found.number) == (T0, "ada", 1)
    assert store.server_records.version("blue", "nightly", 1) == found
    assert store.server_records.version("blue", "nightly", 2) is None
    assert store.server_records.version("", "nightly") is None


def test_versions_are_listed_the_newest_first_without_their_texts(store: Store) -> None:
    records = store.server_records
    for text in "abc":
        records.publish(version(text=text))

    assert [one.number for one in records.versions("", "nightly", limit=2)] == [3, 2]
    assert [one.number for one in records.versions("", "nightly", before=2)] == [1]
    assert {one.text for one in records.versions("", "nightly")} == {""}


def test_the_newest_versions_are_listed_by_name(store: Store) -> None:
    records = store.server_records
    for name in "cab":
        records.publish(version(name, text="1"))
        records.publish(version(name, text="2", note="the second"))
    records.publish(version("d", project="blue"))

    listed = records.newest_versions("", limit=2)

    assert [(one.name, one.number, one.note, one.text) for one in listed] == [
        ("a", 2, "the second", ""),
        ("b", 2, "the second", ""),
    ]
    assert [one.name for one in records.newest_versions("", after="b")] == ["c"]
    assert [one.name for one in records.newest_versions("blue")] == ["d"]


def test_two_that_publish_at_once_get_different_numbers(place: Place, opened: Open) -> None:
    def publishing(store: Store, who: str) -> Callable[[], list[int]]:
        return lambda: [store.server_records.publish(version(text=f"{who}{n}")).number for n in range(5)]

    one, other = at_once(place, publishing(opened(), "a"), publishing(opened(), "b"))

    assert sorted(one + other) == list(range(1, 11))


def test_two_that_publish_the_same_text_at_once_get_the_same_version(place: Place, opened: Open) -> None:
    def publishing(store: Store) -> Callable[[], int]:
        return lambda: store.server_records.publish(version()).number

    assert at_once(place, publishing(opened()), publishing(opened())) == [1, 1]


# -- documents -------------------------------------------------------------------------------------------------------


def test_a_document_has_a_revision_that_grows(store: Store) -> None:
    records = store.server_records

    first = records.put_document(document(data=b"1", project="blue"))
    second = records.put_document(document(data=b"2", project="blue"))

    assert (first.revision, second.revision) == (1, 2)
    assert records.document("blue", "draft", "nightly") == second
    assert records.document("", "draft", "nightly") is None


def test_a_change_of_another_revision_is_refused_and_nothing_is_written(store: Store) -> None:
    records = store.server_records
    records.put_document(document(data=b"1"), expected=0)
    records.put_document(document(data=b"2"), expected=1)

    for expected in (0, 1, 3):
        with pytest.raises(RevisionMismatch) as refused:
            records.put_document(document(data=b"3"), expected=expected)
        assert refused.value.revision == 2
    with pytest.raises(RevisionMismatch) as missing:
        records.put_document(document("absent"), expected=2)

    assert missing.value.revision == 0
    found = records.document("", "draft", "nightly")
    assert found is not None
    assert (found.data, found.revision) == (b"2", 2)
    assert records.document("", "draft", "absent") is None


def test_a_document_is_deleted_at_the_expected_revision_only(store: Store) -> None:
    records = store.server_records
    records.put_document(document())

    with pytest.raises(RevisionMismatch):
        records.delete_document("", "draft", "nightly", expected=2)

    assert records.delete_document("", "draft", "nightly", expected=1)
    assert not records.delete_document("", "draft", "nightly")
    assert not records.delete_document("", "draft", "nightly", expected=1)


def test_documents_are_listed_by_kind_and_project(store: Store) -> None:
    records = store.server_records
    for one in (document("b"), document("a", project="blue"), document("a"), replace(document("c"), kind="hook")):
        records.put_document(one)

    assert [(one.project, one.name) for one in records.documents("draft")] == [("", "a"), ("", "b"), ("blue", "a")]
    assert [one.name for one in records.documents("draft", "blue")] == ["a"]
    assert [one.name for one in records.documents("hook", "")] == ["c"]


def test_of_two_that_change_the_same_revision_at_once_one_is_refused(place: Place, opened: Open) -> None:
    first, second = opened(), opened()
    first.server_records.put_document(document())

    def changing(store: Store) -> Callable[[], int]:
        def change() -> int:
            try:
                return store.server_records.put_document(document(data=b"new"), expected=1).revision
            except RevisionMismatch as refused:
                return -refused.revision

        return change

    assert sorted(at_once(place, changing(first), changing(second))) == [-2, 2]


# -- tokens and audit ------------------------------------------------------------------------------------------------


def test_a_token_is_found_by_the_digest_of_its_secret(store: Store) -> None:
    limits = TokenLimits(workflows=("nightly",), decisions_per_hour=5)
    whole = token(project=None, note="ci", limits=limits, expires_at=T0 + MINUTE, created_by="root")
    store.server_records.add_token(whole)
    store.server_records.add_token(token("t2", project="blue"))

    assert store.server_records.token_of("digest of t1") == whole
    assert store.server_records.token_of("digest of t3") is None


def test_a_revoked_token_stays_known_with_the_first_time_of_its_revocation(store: Store) -> None:
    store.server_records.add_token(token())

    assert store.server_records.revoke_token("t1", T0 + MINUTE)
    assert store.server_records.revoke_token("t1", T0 + 2 * MINUTE)
    assert not store.server_records.revoke_token("t2", T0)

    found = store.server_records.token_of("digest of t1")
    assert found is not None
    assert found.revoked_at == T0 + MINUTE


def test_tokens_are_listed_the_newest_first(store: Store) -> None:
    for number in range(3):
        store.server_records.add_token(replace(token(f"t{number}"), created_at=T0 + number * MINUTE))

    assert [one.id for one in store.server_records.tokens()] == ["t2", "t1", "t0"]


def test_the_audit_is_listed_the_newest_first_by_project_who_and_action(store: Store) -> None:
    records = store.server_records
    records.add_audit([audited(), audited(who="bob", project="blue"), audited("PUT /x", why="a\0reason", source="::1")])
    records.add_audit([])

    everything = records.audit()

    assert [(one.who, one.action, one.status) for one in everything] == [
        ("ada", "PUT /x", 201),
        ("bob", "POST /api/v1/runs", 201),
        ("ada", "POST /api/v1/runs", 201),
    ]
    assert [one.id for one in everything] == sorted({one.id for one in everything}, reverse=True)
    assert records.audit(limit=1) + records.audit(before=everything[0].id) == everything
    assert records.audit("blue") == [everything[1]]
    assert records.audit("blue", who="ada") == []
    assert records.audit(who="ada", action="PUT /x") == [everything[0]]
    assert records.audit("") == [everything[0], everything[2]]


def test_accepted_changes_of_a_token_are_counted_since_a_moment(store: Store) -> None:
    counted, other = "POST decisions", "POST runs"
    store.server_records.add_audit(
        [
            audited(counted),
            audited(counted, at=T0 - MINUTE),
            audited(counted, at=T0 + MINUTE),
            audited(counted, status=403),
            audited(counted, token_id="t2"),
            audited(other),
        ]
    )

    assert store.server_records.count_audit("t1", [counted], T0) == 2
    assert store.server_records.count_audit("t1", [counted, other], T0) == 3
    assert store.server_records.count_audit("t1", [], T0) == 0


def test_rows_are_added_within_a_limit_all_or_none(store: Store) -> None:
    counted = "POST decisions"
    records = store.server_records
    records.add_audit([audited(counted, at=T0 - MINUTE), audited(counted, status=403), audited(counted, token_id="t2")])

    def add(number: int) -> bool:
        rows = [audited(counted)] * number
        return records.add_audit_within(rows, actions=[counted], since=T0, count_max=3)

    assert [add(2), add(2), add(1), add(1), add(0)] == [True, False, True, False, True]
    assert records.count_audit("t1", [counted], T0) == 3
    blue = view_project(store, "blue").server_records
    assert not blue.add_audit_within([audited(counted)], actions=[counted], since=T0, count_max=3)


def test_two_that_take_the_last_places_at_once_do_not_both_get_them(place: Place, opened: Open) -> None:
    counted, stores = "POST decisions", [opened(), opened()]

    def take(records: ServerRecords) -> list[bool]:
        row = audited(counted)
        return [records.add_audit_within([row], actions=[counted], since=T0, count_max=7) for _ in range(10)]

    taken = at_once(place, *(partial(take, store.server_records) for store in stores))

    assert sum(sum(one) for one in taken) == 7
    assert stores[0].server_records.count_audit("t1", [counted], T0) == 7


def test_the_audit_of_a_start_is_written_with_the_run_or_not_at_all(store: Store) -> None:
    blue = view_project(store, "blue")

    (turn,) = store.create([new_run(key="k")], audit=[audited(why="first")])
    with pytest.raises(KeyUsed):
        store.create([new_run(key="k")], audit=[audited(why="again")])
    with pytest.raises(MulliganError):
        store.create([new_run()], "nobody", audit=[audited(why="unknown holder")])
    blue.create([new_run(key="k")], audit=[audited(why="blue", project="red")])

    rows = store.server_records.audit()
    assert store.run(turn.run_id)
    assert [(row.why, row.project) for row in rows] == [("blue", "blue"), ("first", "")]


# -- notices ---------------------------------------------------------------------------------------------------------


def test_a_notice_is_added_once_for_each_key(store: Store) -> None:
    records = store.server_records

    assert records.put_notices([notice("a"), notice("b"), notice("a", project="blue")]) == 2
    assert records.put_notices([notice("b"), notice("c")]) == 1
    assert records.put_notices([]) == 0

    assert [(one.key, one.target, one.body) for one in records.notices()] == [
        (key, "ops", b'{"text": "failed"}') for key in "cba"
    ]


def test_a_claimed_notice_is_given_to_nobody_else_before_its_time(store: Store) -> None:
    records = store.server_records
    records.put_notices([notice("a"), notice("b", due_at=T0), notice("later", due_at=T0 + 5 * MINUTE), notice("d")])

    first = records.claim_notices("ops", T0, T0 + MINUTE, 2)
    second = records.claim_notices("ops", T0, T0 + MINUTE, 9)

    assert ([one.key for one in first], [one.key for one in second]) == (["a", "d"], ["b"])
    assert records.claim_notices("ops", T0 + MINUTE / 2, T0 + MINUTE, 9) == []
    assert [one.key for one in records.claim_notices("ops", T0 + MINUTE, T0 + 2 * MINUTE, 9)] == ["a", "b", "d"]


def test_what_was_sent_or_given_up_is_not_claimed_again(store: Store) -> None:
    records = store.server_records
    records.put_notices([notice("sent"), notice("again"), notice("given up")])
    sent, again, given_up = records.claim_notices("ops", T0, T0 + MINUTE, 9)

    records.settle_notices([SettledNotice(sent.id, "sent", 1, None)])
    records.settle_notices([SettledNotice(again.id, "waiting", 1, T0 + 2 * MINUTE, "no answer")])
    records.settle_notices([SettledNotice(given_up.id, "given_up", 9, None, "refused")])
    records.settle_notices([SettledNotice(sent.id, "waiting", 2, None, "a sender that was late")])

    assert records.claim_notices("ops", T0 + MINUTE, T0 + 3 * MINUTE, 9) == []
    (found,) = records.claim_notices("ops", T0 + 2 * MINUTE, T0 + 3 * MINUTE, 9)
    assert (found.key, found.attempts, found.reason) == ("again", 1, "no answer")
    assert [(one.key, one.attempts) for one in records.notices(status="sent")] == [("sent", 1)]
    assert [one.reason for one in records.notices(status="given_up")] == ["refused"]
    assert [one.key for one in records.notices(before=given_up.id, limit=1)] == ["again"]


def test_notices_are_found_by_project_and_run_and_the_next_due_time_is_known(store: Store) -> None:
    records = store.server_records
    assert records.waiting_targets(T0) == []
    blue = notice("blue", project="blue", run_id=7, due_at=T0 + MINUTE)
    records.put_notices([blue, notice("mine", run_id=7, due_at=T0 + 2 * MINUTE)])

    assert [one.key for one in records.notices(project="blue")] == ["blue"]
    assert [one.key for one in records.notices(project="", run_id=7)] == ["mine"]
    assert [one.key for one in records.notices(run_id=8)] == []
    assert records.waiting_targets(T0) == [WaitingTarget("ops", T0 + MINUTE)]
    records.settle_notices([SettledNotice(records.notices(project="blue")[0].id, "sent", 1, T0)])
    assert records.waiting_targets(T0) == [WaitingTarget("ops", T0 + 2 * MINUTE)]


def test_all_that_waits_and_nobody_has_can_be_made_due_and_no_target_is_left_alone_then(store: Store) -> None:
    records = store.server_records
    records.put_notices([notice("claimed"), notice("waits", due_at=T0 + 5 * MINUTE)])
    records.claim_notices("ops", T0, T0 + 2 * MINUTE, 1)
    records.put_target_pause(TargetPause("ops", 1, T0, T0 + 3 * MINUTE, "refused"))
    assert [one.next_at for one in records.waiting_targets(T0)] == [T0 + 5 * MINUTE]

    records.make_notices_due(T0)

    assert [one.pause for one in records.waiting_targets(T0)] == [None]
    assert [one.key for one in records.claim_notices("ops", T0, T0 + MINUTE, 9)] == ["waits"]


def test_a_notice_without_a_time_is_the_next_that_is_due(store: Store) -> None:
    records = store.server_records
    records.put_notices([notice("later", due_at=T0 + MINUTE), notice("at once")])

    (waiting,) = records.waiting_targets(T0)

    assert waiting.due_at <= T0


def test_two_senders_never_get_the_same_notice(place: Place, opened: Open) -> None:
    first, second = opened(), opened()
    first.server_records.put_notices([notice(f"n{number}") for number in range(40)])

    def claiming(store: Store) -> Callable[[], list[str]]:
        def claim() -> list[str]:
            batches = [store.server_records.claim_notices("ops", T0, T0 + MINUTE, 3) for _ in range(20)]
            return [one.key for batch in batches for one in batch]

        return claim

    one, other = at_once(place, claiming(first), claiming(second))

    assert sorted(one + other) == sorted(f"n{number}" for number in range(40))


def test_old_notices_are_removed_unless_they_wait(store: Store) -> None:
    records = store.server_records
    records.put_notices([notice("old"), notice("waits"), replace(notice("new"), created_at=T0 + MINUTE)])
    for one in records.notices():
        if one.key != "waits":
            records.settle_notices([SettledNotice(one.id, "sent", 1, None)])

    assert records.remove_notices(T0 + MINUTE) == 1

    assert [one.key for one in records.notices()] == ["new", "waits"]


# -- logs of other hosts ---------------------------------------------------------------------------------------------


def test_a_log_is_read_by_ranges_whatever_pieces_it_came_in(store: Store) -> None:
    records = store.server_records
    records.append_log([LogChunk(KEY, 0, b"abc"), LogChunk(KEY, 3, b"def")])
    records.append_log([LogChunk(KEY, 6, b"ghi", is_last=True)])

    assert records.read_log(KEY, 0, 100) == b"abcdefghi"
    assert records.read_log(KEY, 2, 7) == b"cdefg"
    assert records.read_log(KEY, 4, 5) == b"e"
    assert (records.read_log(KEY, 9, 20), records.read_log(KEY, 5, 5)) == (b"", b"")
    assert records.log_size(KEY) == (9, True)


def test_a_piece_that_is_written_again_changes_nothing(store: Store) -> None:
    records = store.server_records
    records.append_log([LogChunk(KEY, 0, b"abc"), LogChunk(KEY, 3, b"def", is_last=True)])
    records.append_log([LogChunk(KEY, 0, b"abc"), LogChunk(KEY, 3, b"def"), LogChunk(KEY, 0, b"ab")])

    assert records.read_log(KEY, 0, 9) == b"abcdef"
    assert records.log_size(KEY) == (6, True)


def test_a_log_that_was_shipped_in_part_may_be_shipped_again_in_other_pieces(store: Store) -> None:
    records = store.server_records
    records.append_log([LogChunk(KEY, 0, b"ab"), LogChunk(KEY, 2, b"cd")])
    records.append_log([LogChunk(KEY, 0, b"abcde", is_last=True)])

    assert records.read_log(KEY, 0, 9) == b"abcde"
    assert records.log_size(KEY) == (5, True)


def test_what_comes_after_a_gap_is_not_kept(store: Store) -> None:
    records = store.server_records
    records.append_log([LogChunk(KEY, 0, b"ab"), LogChunk(KEY, 4, b"ef", is_last=True)])
    records.append_log([LogChunk(KEY, 4, b"ef", is_last=True)])

    assert (records.read_log(KEY, 0, 9), records.log_size(KEY)) == (b"ab", (2, False))

    records.append_log([LogChunk(KEY, 2, b"cd"), LogChunk(KEY, 4, b"ef", is_last=True)])
    assert (records.read_log(KEY, 0, 9), records.log_size(KEY)) == (b"abcdef", (6, True))


@pytest.mark.parametrize(
    "forged",
    [
        [LogChunk(KEY, 0, b"XXXX")],
        [LogChunk(KEY, 0, b"XX"), LogChunk(KEY, 2, b"XX")],
        [LogChunk(KEY, 1, b"XXX")],
        [LogChunk(KEY, 1, b"X"), LogChunk(KEY, 2, b"X"), LogChunk(KEY, 3, b"X")],
        [LogChunk(KEY, 0, b"X" * 100)],
    ],
)
def test_what_is_stored_of_a_log_is_never_replaced(store: Store, forged: list[LogChunk]) -> None:
    records = store.server_records
    records.append_log([LogChunk(KEY, 0, b"ab"), LogChunk(KEY, 2, b"cd")])

    records.append_log(forged)

    assert records.read_log(KEY, 0, 4) == b"abcd"
    records.append_log([LogChunk(KEY, records.log_size(KEY)[0], b"", is_last=True)])  # type: ignore[index]
    before = records.log_size(KEY)
    records.append_log([*forged, LogChunk(KEY, 0, b"Y" * 200)])
    assert records.log_size(KEY) == before


def test_an_empty_log_is_known_as_whole_and_an_unknown_one_is_not(store: Store) -> None:
    store.server_records.append_log([LogChunk(KEY, 0, b"", is_last=True)])

    assert store.server_records.log_size(KEY) == (0, True)
    assert store.server_records.log_size(replace(KEY, stream="stderr")) is None
    assert store.server_records.read_log(replace(KEY, attempt=2), 0, 9) == b""


def test_the_logs_of_a_run_are_listed(store: Store) -> None:
    keys = [LogKey(1, "a", 1, "stderr"), LogKey(1, "a", 1, "stdout"), LogKey(1, "a", 2, "stdout")]
    store.server_records.append_log([LogChunk(key, 0, b"x") for key in (*reversed(keys), LogKey(2, "a", 1, "stdout"))])
    store.server_records.append_log([LogChunk(keys[0], 1, b"y")])

    assert store.server_records.logs_of(1) == keys
    assert store.server_records.logs_of(3) == []


# -- with the runs ---------------------------------------------------------------------------------------------------


def test_logs_and_settled_notices_go_with_their_run_and_what_waits_is_sent_all_the_same(store: Store) -> None:
    gone, stays = started(store), started(store)
    records = store.server_records
    for turn in (gone, stays):
        records.append_log([LogChunk(replace(KEY, run_id=turn.run_id), 0, b"x")])
    records.put_notices(
        [
            notice("sent", run_id=gone.run_id, status="sent"),
            notice("waits", run_id=gone.run_id),
            notice("of another", run_id=stays.run_id, status="sent"),
            notice("of no run", status="sent"),
        ]
    )
    store.commit([commit(gone, status="completed", is_last=True)])

    assert store.remove([gone.run_id]) == [gone.run_id]

    assert records.logs_of(gone.run_id) == []
    assert len(records.logs_of(stays.run_id)) == 1
    assert [one.key for one in records.notices()] == ["of no run", "of another", "waits"]


def test_on_a_store_for_many_hosts_what_a_server_keeps_wakes_no_worker(store_schema_url: str) -> None:
    worker, server = PostgresSchema(store_schema_url).open(), PostgresSchema(store_schema_url).open()
    has_news(worker)

    server.server_records.add_audit([audited()])
    server.server_records.put_notices([notice()])
    server.server_records.append_log([LogChunk(KEY, 0, b"x")])

    assert not has_news(worker)
    worker.close()
    server.close()


def at_once(place: Place, *works: Callable[[], Result]) -> list[Result]:
    """What each of these gives. They run at the same time, except in memory, where a call is never interrupted."""
    if isinstance(place, Memory):
        return [work() for work in works]
    barrier = Barrier(len(works))

    def begin(work: Callable[[], Result]) -> Result:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))
