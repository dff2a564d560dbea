"""Projects: runs belong to one, lists may ask for one, and a view of one shows nothing of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model import reports as r
from mulligan.errors import Conflict, KeyUsed, StaleLease, UnknownRun
from mulligan.ports import AuditRecord, Document, LogChunk, LogKey, NoticeRecord, Store, TokenRecord, WorkflowVersion
from mulligan.store import view_project
from mulligan.store.project_view import ProjectView

from .keeping import T0, commit, ended, new_run, offer, started, task


def ids(records: list[Any]) -> list[int]:
    return [record.run_id for record in records]


def test_a_run_is_in_its_project_and_a_child_in_that_of_its_parent(store: Store) -> None:
    first, blue = started(store), started(store, project="blue")
    (done,) = store.commit([commit(blue, children=[new_run("child", parent_place="call", parent_attempt=1)])])

    assert [store.run(turn.run_id).project for turn in (first, blue, *done.children)] == ["", "blue", "blue"]


def test_lists_may_ask_for_one_project(store: Store) -> None:
    first, blue, red = (started(store, project=project).run_id for project in ("", "blue", "red"))
    more = started(store, project="blue")
    store.commit([commit(more, status="failed", is_last=True)])

    def found(**wanted: Any) -> list[int]:
        return ids(store.lists.find(RunFilter(**wanted), limit=9))

    assert found(project="blue") == [more.run_id, blue]
    assert found(project="") == [first]
    assert found() == found(statuses=("running", "failed")) == [more.run_id, red, blue, first]
    assert found(project="blue", statuses=("failed",)) == [more.run_id]
    assert found(project="red", workflows=("nightly",)) == [red]
    assert found(project="red", since=T0) == [red]
    assert found(project="none") == []
    assert store.lists.count(RunFilter(project="blue"), limit=9) == 2
    assert store.lists.status_counts("blue") == {"running": 1, "failed": 1}
    assert store.lists.status_counts() == {"running": 3, "failed": 1}
    assert ids(store.lists.find(RunFilter(project="blue"), limit=1, before=more.run_id)) == [blue]


@pytest.mark.parametrize("after", [-1, -(2**32), -(2**33), -(2**63)])
def test_a_log_never_begins_before_its_own_run(store: Store, after: int) -> None:
    blue, red = started(store, project="blue"), started(store, project="red")
    store.commit([commit(blue), commit(red)])
    view = view_project(store, "red")

    whole = store.log(red.run_id)

    assert whole
    assert store.log(red.run_id, after) == view.log(red.run_id, after) == whole
    assert store.search_log(red.run_id, ("",), after) == store.search_log(red.run_id, ("",))


def test_a_view_has_every_method_of_a_store() -> None:
    missing = {name for name in dir(Store) if not name.startswith("_")} - set(dir(ProjectView))

    assert missing == set()


def test_the_runs_of_another_project_are_unknown_to_every_method(store: Store) -> None:
    turn = started(store, project="blue")
    run_id = turn.run_id
    row = ("places", "build", "parked", b"{}")
    store.commit([commit(turn, rows=[row], queued=[task(run_id)], children=[new_run("child", parent_place="c")])])
    store.put(run_id, r.PauseRequested(T0))
    red = view_project(store, "red")

    for refused in (
        lambda: red.run(run_id),
        lambda: red.load(run_id),
        lambda: red.put(run_id, r.PauseRequested(T0)),
    ):
        with pytest.raises(UnknownRun) as unknown:
            refused()
        with pytest.raises(UnknownRun) as absent:
            store.run(999)
        assert unknown.value.message == absent.value.message.replace("999", str(run_id))
    with pytest.raises(Conflict):
        red.commit([commit(turn, 1)])
    empty: list[Any] = [
        *(red.runs(), red.children(run_id), red.log(run_id), red.waiting_places(), red.rows_of_kind("places")),
        *(red.search_log(run_id, ("run.",)),),
        *(red.recent_rows("nightly", "places", "build", 9), red.tagged_rows("parked", 9), red.inbox([run_id])),
        *(list(red.records_containing("nightly")), red.remove([run_id]), red.runs_with_messages("w")),
        *(red.take_turns([run_id], "w"), red.queued_tasks(run_id), red.lease("w", offer())),
        *(red.lease("w", offer(), root_run_id=run_id), red.lists.records([run_id]), red.lists.attributes([run_id])),
        *(red.lists.rows([run_id], "places", 9), red.lists.places([(run_id, "build")])),
        *(red.lists.open_tasks([run_id]), red.lists.open_timers([run_id]), red.lists.holders()),
        *(red.lists.find(RunFilter(), limit=9), red.lists.find(RunFilter(project="blue"), limit=9)),
    ]
    assert [found for found in empty if found] == []
    assert not red.has_leases(run_id)
    assert red.lists.status_counts() == red.lists.status_counts("blue") == {}
    assert red.lists.outcome_counts(T0 - timedelta(days=1), T0 + timedelta(days=1)) == []
    assert red.lists.count(RunFilter(with_children=True), limit=9) == 0


def test_a_view_shows_its_own_project_as_the_store_does(store: Store) -> None:
    turn = started(store, project="blue")
    run_id = turn.run_id
    started(store)
    blue = view_project(store, "blue")
    row = ("places", "build", "parked", b"{}")
    (done,) = blue.commit(
        [commit(turn, rows=[row], queued=[task(run_id)], children=[new_run("child", parent_place="c")])]
    )
    child = done.children[0].run_id

    assert ids(blue.runs()) == [child, run_id]
    assert ids(blue.lists.find(RunFilter(), limit=9)) == [run_id]
    assert ids(blue.children(run_id)) == [child]
    assert blue.load(run_id) == store.load(run_id)
    assert blue.log(run_id) == store.log(run_id)
    assert [one.place for one in blue.waiting_places()] == ["build"]
    assert [one[0] for one in blue.recent_rows("nightly", "places", "other", 9)] == []
    assert len(blue.tagged_rows("parked", 1)) == 1
    assert blue.queued_tasks(run_id) == [("build", 1)]
    assert len(blue.lists.open_tasks([run_id])) == 1
    assert blue.lists.holders() == [("w", 1, run_id)]
    (lease,) = blue.lease("w", offer(), root_run_id=run_id)
    assert blue.has_leases(run_id)
    assert [one.run_id for one in blue.lists.leased_tasks()] == [run_id]
    assert blue.leases_of("w") == [lease]
    with pytest.raises(StaleLease):
        view_project(store, "red").report(lease.token, ended())
    blue.report(lease.token, ended())
    assert not blue.has_leases(run_id)


def test_rows_of_other_projects_do_not_take_the_place_of_ours(store: Store) -> None:
    row = ("places", "build", "t", b"{}")
    ours = started(store, project="blue")
    store.commit([commit(ours, rows=[row])])
    for _ in range(5):
        store.commit([commit(started(store, project="red"), rows=[row])])

    found = view_project(store, "blue").tagged_rows("t", 1)

    assert [one[0] for one in found] == [ours.run_id]


def test_a_run_that_is_created_in_a_view_is_in_its_project_under_a_key_of_its_own(store: Store) -> None:
    blue, red, first = (view_project(store, name) for name in ("blue", "red", ""))
    (one,), (other,), (third,), (fourth,) = (
        view.create([new_run(key=key)]) for view, key in ((blue, "k"), (red, "k"), (first, "k"), (first, "@blue/k"))
    )

    with pytest.raises(KeyUsed) as used:
        blue.create([new_run(key="k")])

    assert (used.value.run_id, used.value.message) == (one.run_id, f"run {one.run_id} was started under the key 'k'")
    assert [store.run(turn.run_id).project for turn in (one, other, third, fourth)] == ["blue", "red", "", ""]
    with pytest.raises(KeyUsed) as plain:
        store.create([new_run(key="k")])
    assert plain.value.run_id == third.run_id


def test_a_view_limits_what_a_server_keeps(store: Store) -> None:
    turn = started(store, project="blue")
    log = LogKey(turn.run_id, "build", 1, "stdout")
    blue, red = view_project(store, "blue").server_records, view_project(store, "red").server_records
    blue.publish(WorkflowVersion("nightly", "digest", T0, "ada", text="x", project="red"))
    blue.put_document(Document("draft", "nightly", b"{}", T0, project="red"))
    blue.add_token(TokenRecord("t1", "digest", "ada", ("read",), T0, project=None))
    blue.add_audit([AuditRecord(T0, "ada", "POST", "/", 200, project="red")])
    blue.put_notices([NoticeRecord("key", "ops", b"{}", T0, project="red")])
    blue.append_log([LogChunk(log, 0, b"text")])
    red.append_log([LogChunk(log, 4, b"forged")])

    assert [
        one
        for one in (
            *(red.version("blue", "nightly"), red.versions("blue", "nightly"), red.newest_versions("blue")),
            *(red.document("blue", "draft", "nightly"), red.documents("draft", "blue"), red.documents("draft")),
            *(red.token_of("digest"), red.tokens(), red.revoke_token("t1", T0), red.audit("blue"), red.audit()),
            *(red.notices(), red.read_log(log, 0, 9), red.log_size(log), red.logs_of(turn.run_id)),
            red.delete_document("blue", "draft", "nightly"),
        )
        if one
    ] == []
    assert blue.version("", "nightly") == store.server_records.version("blue", "nightly")
    assert [one.project for one in (*blue.documents("draft"), *blue.tokens(), *blue.audit(), *blue.notices())] == [
        "blue"
    ] * 4
    assert (blue.read_log(log, 0, 99), blue.logs_of(turn.run_id)) == (b"text", [log])
    red.settle_notice(blue.notices()[0].id, "sent", attempts=1, due_at=None)
    assert blue.notices()[0].status == "waiting"


def test_the_notices_of_a_turn_are_written_with_it_and_once_for_each_key(store: Store) -> None:
    turn = started(store)
    notice = NoticeRecord("run 1 failed", "ops", b"{}", T0, run_id=turn.run_id)

    store.commit([commit(turn, notices=[notice])])
    with pytest.raises(Conflict):
        store.commit([commit(turn, 0, notices=[NoticeRecord("never", "ops", b"{}", T0)])])
    store.commit([commit(turn, 1, notices=[notice, NoticeRecord("another", "ops", b"{}", T0)])])

    assert [one.key for one in store.server_records.notices()] == ["another", "run 1 failed"]
