"""Projects: runs belong to one, lists may ask for one, and a view of one shows nothing of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace
from tests.support.keeping import (
    T0,
    Memory,
    Place,
    PostgresSchema,
    SqliteFolder,
    commit,
    ended,
    new_run,
    offer,
    queue,
    reports,
    started,
    task,
    worker,
)

from mulligan.core.effects.run_lists import RunFilter
from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import Artifact, make_reference
from mulligan.errors import Conflict, KeyUsed, StaleLease, StoreRefused, UnknownArtifact, UnknownRun
from mulligan.ports import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NewRun,
    NoticeRecord,
    SettledNotice,
    Store,
    TokenRecord,
    Turn,
    WorkflowVersion,
)
from mulligan.store import view_project
from mulligan.store.project_view import OF_THE_WHOLE_STORE, ProjectView

pytestmark = pytest.mark.postgres


def ids(records: list[Any]) -> list[int]:
    return [record.run_id for record in records]


def test_a_run_is_in_its_project_and_a_child_in_that_of_its_parent(store: Store) -> None:
    first, blue = started(store), started(store, project="blue")
    (done,) = store.commit([commit(blue, children=[new_run("child", parent_place="call", parent_attempt=1)])])

    assert [store.run(turn.run_id).project for turn in (first, blue, *done.children)] == ["", "blue", "blue"]


# -- definitions -----------------------------------------------------------------------------------------------------


def test_a_definition_is_read_in_its_project_alone_whoever_came_first_under_its_version(store: Store) -> None:
    planted, honest = (
        replace(new_run(project=project), workflow=body) for project, body in (("red", b"1"), ("", b"2"))
    )
    turns = [started_with(store, one) for one in (planted, honest, replace(planted, project="blue", workflow=b"3"))]
    child = replace(new_run("child", parent_place="call", parent_attempt=1), version="v2", workflow=b"4")
    (done,) = store.commit([commit(turns[0], children=[child])])
    ours = started_with(store, replace(child, parent_place="", parent_attempt=0, project="blue", workflow=b"5"))

    run_ids = [turn.run_id for turn in (*turns, *done.children, ours)]
    assert [store.load(run_id).workflow for run_id in run_ids] == [b"1", b"2", b"3", b"4", b"5"]
    assert sorted(one.workflow for one in store.load_all(run_ids)) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_definition_goes_with_the_last_run_of_its_project(store: Store) -> None:
    runs = [replace(new_run(project=project), workflow=project.encode()) for project in ("red", "blue", "blue")]
    red, blue, more = (started_with(store, one) for one in runs)
    store.commit([commit(turn, status="failed", is_last=True) for turn in (red, blue)])

    assert store.remove([red.run_id, blue.run_id]) == [red.run_id, blue.run_id]

    assert store.load(more.run_id).workflow == b"blue"
    again = started_with(store, replace(runs[0], workflow=b"other"))
    assert store.load(again.run_id).workflow == b"other"


def test_a_definition_that_an_older_version_stored_stays_for_all_projects(place: Place, store: Store) -> None:
    if isinstance(place, Memory):
        pytest.skip("a store in memory is never older than the program")
    red, blue = (started(store, project=project) for project in ("red", "blue"))
    forget_projects(place)

    assert {store.load(turn.run_id).workflow for turn in (red, blue)} == {new_run().workflow}
    planted = started_with(store, replace(new_run(project="red"), workflow=b"other"))
    assert store.load(planted.run_id).workflow == b"other"
    assert store.load(blue.run_id).workflow == new_run().workflow
    store.commit([commit(red, status="failed", is_last=True)])
    store.remove([red.run_id])
    assert store.load(blue.run_id).workflow == new_run().workflow


def started_with(store: Store, run: NewRun) -> Turn:
    if not store.workers():
        store.register(worker())
    (turn,) = store.create([run], "w")
    store.commit([commit(turn, 0, 0, drained=[(message.id, None) for message in store.inbox([turn.run_id])])])
    return turn


def forget_projects(place: Place) -> None:
    """As schema 12 has definitions: once for all projects."""
    if isinstance(place, PostgresSchema):
        with psycopg.connect(place.url) as server:
            server.execute("DELETE FROM workflows WHERE version = '@blue/v1'")
            server.execute("UPDATE workflows SET version = 'v1'")
    else:
        assert isinstance(place, SqliteFolder)
        file = apsw.Connection(str(place.path))
        file.execute("DELETE FROM workflows WHERE version = '@blue/v1'; UPDATE workflows SET version = 'v1'")
        file.close()


# -- artifacts -------------------------------------------------------------------------------------------------------


def test_an_artifact_of_another_project_is_unknown_to_a_view(store: Store) -> None:
    turn, theirs = started(store, project="blue"), started(store, project="red")
    blue, red = (view_project(store, name).artifacts for name in ("blue", "red"))
    kept = blue.keep(f"{turn.run_id}/build/1/1/output.txt", b"secret", "text")

    assert blue.fetch(kept) == b"secret" == store.artifacts.fetch(kept)
    assert blue.path(kept) == store.artifacts.path(kept)
    assert [one.name for one in blue.records()] == [kept.name] and not list(red.records())
    for name in (kept.name, f"0{kept.name}"):
        with pytest.raises(UnknownArtifact):
            red.fetch(replace(kept, name=name))
        assert red.path(replace(kept, name=name)) == ""
    with pytest.raises(UnknownArtifact):
        red.keep(kept.name, b"other", "text")
    red.remove([kept.name])
    assert blue.fetch(kept) == b"secret"
    assert red.keep(f"{theirs.run_id}/build/1/1/output.txt", b"own", "text").size == 3


def test_no_report_and_no_input_of_a_view_refers_to_an_artifact_of_another_project(store: Store) -> None:
    blue, red = started(store, project="blue"), started(store, project="red")
    queue(store, red, task(red.run_id))
    view = view_project(store, "red")
    (lease,) = view.lease("w", offer())
    stolen = make_reference(Artifact(f"{blue.run_id}/build/1/1/output.txt", 6, "0" * 64, "text"))
    report = replace(ended(), output={"deep": [stolen]})
    request = replace(new_run().request, inputs={"a": stolen})

    for attempt in (
        lambda: view.report(lease.token, report),
        lambda: view.report_all([(lease.token, replace(ended(), artifacts=(stolen,)), None)]),
        lambda: view.report_and_lease("w", [(lease.token, report, None)], offer()),
        lambda: view.put(red.run_id, report),
        lambda: view.create([replace(new_run(), request=request)]),
    ):
        with pytest.raises(UnknownArtifact):
            attempt()

    own = make_reference(Artifact(f"{red.run_id}/build/1/1/output.txt", 6, "0" * 64, "text"))
    view.report_all([(lease.token, replace(ended(), output=own), None)])
    assert replace(ended(), output=own) in reports(store, red.run_id)


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
    own = {name for name in vars(ProjectView) if not name.startswith("_")}
    missing = {name for name in dir(Store) if not name.startswith("_")} - own

    assert missing == OF_THE_WHOLE_STORE


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
        *(red.runs(), red.children(run_id), red.log(run_id), red.waiting_places(), red.tallies()),
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
    # A worker of all projects asks for a run: it reuses no result of another project.
    assert [one[0] for one in store.tagged_rows("t", 9, ours.run_id)] == [ours.run_id]
    assert len(store.tagged_rows("t", 9)) == 6 and not store.tagged_rows("t", 9, 999)


def test_a_run_that_is_created_in_a_view_is_in_its_project_under_a_key_of_its_own(store: Store) -> None:
    blue, red, first = (view_project(store, name) for name in ("blue", "red", ""))
    (one,), (other,), (third,), (fourth,) = (
        view.create([new_run(key=key)]) for view, key in ((blue, "k"), (red, "k"), (first, "k"), (first, "@blue/k"))
    )

    with pytest.raises(KeyUsed) as used:
        blue.create([new_run(key="k")])

    assert (used.value.run_id, used.value.message) == (one.run_id, f"run {one.run_id} was started under the key 'k'")
    assert [store.run(turn.run_id).project for turn in (one, other, third, fourth)] == ["blue", "red", "", ""]
    assert [view.runs_under("k") for view in (blue, red)] == [[("k", one.run_id)], [("k", other.run_id)]]
    with pytest.raises(KeyUsed) as plain:
        store.create([new_run(key="k")])
    assert plain.value.run_id == third.run_id
    # A slash in the name of a project does not make a key that of another project.
    view_project(store, "blue/k").create([new_run(key="x")])
    assert blue.create([new_run(key="k/x")])


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
    with pytest.raises(StoreRefused):
        red.settle_notices([SettledNotice(blue.notices()[0].id, "sent", 1)])
    assert blue.notices()[0].status == "waiting"


def test_the_notices_of_a_turn_are_written_with_it_and_once_for_each_key(store: Store) -> None:
    turn = started(store)
    notice = NoticeRecord("run 1 failed", "ops", b"{}", T0, run_id=turn.run_id)

    store.commit([commit(turn, notices=[notice])])
    with pytest.raises(Conflict):
        store.commit([commit(turn, 0, notices=[NoticeRecord("never", "ops", b"{}", T0)])])
    store.commit([commit(turn, 1, notices=[notice, NoticeRecord("another", "ops", b"{}", T0)])])

    assert [one.key for one in store.server_records.notices()] == ["another", "run 1 failed"]
