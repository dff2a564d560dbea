"""Runs whose large values and files are objects in a bucket, and the bucket does what it likes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.commands import mulligan, process
from tests.support.runner import Live, Ran
from tests.support.s3_server import S3

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import parse_reference
from mulligan.errors import ArtifactGone, InputInvalid
from mulligan.ports import WorkerRecord
from mulligan.service.host.gc import RunRetention, collect_garbage
from mulligan.service.host.object_places import PLACES_MAX, agree, known_places

WORKFLOW = """
name: train
steps:
  - step: train
    python: |
      import mulligan

      def main():
          with open("model.bin", "wb") as file:
              file.write(b"weights" * 100)
          return {"rows": ["r" * 100] * 1000, "model": mulligan.artifact("model.bin")}
  - step: large
    python: |
      def main():
          return ["r" * 100] * 30_000
  - step: evaluate
    needs: [train, large]
    python: |
      def main(model, rows):
          return [len(model.read_bytes()), len(rows)]
    args: {model: "${steps.train.output.model}", rows: "${steps.large.output}"}
  - {step: count, needs: [train], shell: "wc -c < ${steps.train.output.model}"}
outputs: {evaluated: "${steps.evaluate.output}", counted: "${steps.count.output}", rows: "${size(steps.large.output)}"}
"""
ONE = """
name: one
steps: [{step: large, python: "def main(): return 'r' * 100_000", %s}]
"""


def failure(ran: Ran) -> tuple[str, str]:
    failed = ran.facts(e.AttemptFailed)[-1].failure
    return failed.code, failed.message


def places_of(live: Live) -> Any:
    return known_places(live.service.reader.store)


def test_values_and_files_go_through_the_bucket_and_none_stays_on_the_disk(live: Live, s3: S3):
    ran = live.run(WORKFLOW)

    assert ran.shown["outputs"] == {"evaluated": [700, 30_000], "counted": "700", "rows": 30_000}
    assert not (live.home.folder / "artifacts").exists()
    place = places_of(live).places[0]
    kept = [parse_reference(one) for fact in ran.facts(e.AttemptSucceeded) for one in fact.artifacts]
    assert [(one.place, one.name.rpartition("/")[2]) for one in kept] == [(place, "model.bin")]
    assert {key.split("/")[6] for key in s3.objects} == {
        one.rpartition("/")[0].rpartition("/")[2] for one in s3.objects
    }
    assert all(live.service.details.artifact(ran.run_id, one.sha256).data == b"weights" * 100 for one in kept)
    assert f"in {place}/1/train/1/1/" in mulligan("show", 1, "--home", live.home.folder).out
    assert "secret-of-the-test" not in repr(ran.log)


@pytest.mark.nightly
def test_a_later_worker_without_the_setting_uses_that_of_the_store(live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch):
    live.run(ONE % "reads: []")
    monkeypatch.delenv("MULLIGAN_OBJECT_STORE")

    live.run(ONE % "reads: []")

    assert len(s3.objects) == 2


def test_a_worker_with_another_setting_is_refused_beside_the_workers_of_the_store(
    live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch
):
    live.run(ONE % "reads: []")
    monkeypatch.setenv("MULLIGAN_OBJECT_STORE", "s3://bucket/other")

    live.service.reader.store.register(WorkerRecord("other", "host", 1, cpus=2.0))

    with pytest.raises(InputInvalid) as caught:
        live.run(ONE % "reads: []")

    assert "'s3://bucket/team'" in caught.value.message


@pytest.mark.nightly
def test_without_workers_the_setting_may_change_and_nothing_is_lost(
    live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch
):
    first = live.run(WORKFLOW)
    monkeypatch.setenv("MULLIGAN_OBJECT_STORE", "s3://bucket/other")

    live.run(ONE % "reads: []")

    assert [place.rpartition("/")[0] for place in places_of(live).places] == ["s3://bucket/team", "s3://bucket/other"]
    (kept,) = first.facts(e.AttemptSucceeded, place="train")[0].artifacts
    assert live.service.details.artifact(first.run_id, parse_reference(kept).sha256).data == b"weights" * 100


def test_a_denied_write_fails_the_step_and_is_not_tried_again(live: Live, s3: S3):
    s3.refuse("PUT", 403)

    ran = live.run(ONE % "retry: 3")

    code, message = failure(ran)
    assert (ran.status, code, ran.steps["large"]["attempts"]) == ("failed", "PERMISSION", 1)
    assert message.startswith("its output cannot be stored: artifact '1/large/1/1/")
    assert message.endswith(f"cannot be written in '{places_of(live).places[0]}': access is denied")


def test_a_server_that_is_away_for_a_while_costs_an_attempt(live: Live, s3: S3):
    s3.refuse("PUT", 503)

    def mend(terminal: Any) -> None:
        terminal.wait_for(e.AttemptFailed)
        s3.refuse("PUT", 503, times=0)

    ran = live.run(ONE % "retry: 20", meanwhile=mend)

    assert {fact.failure.code for fact in ran.facts(e.AttemptFailed)} == {"CONNECTION"}
    assert (ran.status, len(s3.objects)) == ("completed", 1)


@pytest.mark.parametrize("damage", ["lost", pytest.param("changed", marks=pytest.mark.nightly)])
def test_a_lost_or_changed_object_fails_who_reads_it_and_is_named(live: Live, s3: S3, damage: str):
    waiting = live.run("""
name: read
steps:
  - {step: make, python: "def main(): return 'r' * 100_000"}
  - {step: go, needs: [make], approve: "go on?"}
  - {step: read, needs: [go], python: "def main(text): return len(text)", args: {text: "${steps.make.output}"}}
""")
    ((key, data),) = s3.objects.items()
    s3.objects = {} if damage == "lost" else {key: b"x" * len(data)}
    live.service.changes.approve(waiting.run_id, "go", is_approved=True, reason="fine")

    ran = live.resume(waiting.run_id)

    code, message = failure(ran)
    place = places_of(live).places[0]
    assert (ran.status, code) == ("failed", "INPUT_INVALID")
    assert (
        message.startswith("a value that it reads is not available: artifact '1/make/1/1/") and f"'{place}'" in message
    )
    assert ("is gone from" if damage == "lost" else "its hash does not match") in message


@pytest.mark.nightly
def test_a_failed_step_keeps_its_failure_when_its_files_cannot_be_uploaded(live: Live, s3: S3):
    s3.refuse("PUT", 403)

    ran = live.run("""
name: fails
steps:
  - step: fails
    python: |
      import mulligan
      def main():
          open("trace", "w").write("what was done")
          mulligan.artifact("trace")
          raise ValueError("no")
""")

    assert failure(ran)[0] == "EXCEPTION"
    assert ran.facts(e.AttemptFailed)[0].artifacts == ()


def test_a_secret_is_not_uploaded(live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEY", "hunter2-hunter2")

    live.run("""
name: secret
secrets: {key: {env: KEY}}
steps:
  - {step: print, shell: "for i in {1..5000}; do echo $KEY is row $i; done", env: {KEY: "${secrets.key}"}}
""")

    assert s3.objects and not any(b"hunter2" in data for data in s3.objects.values())


def test_a_workflow_names_a_bucket_of_its_own(live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MULLIGAN_OBJECT_STORE")

    ran = live.run("artifacts: s3://bucket/mine\n" + ONE.lstrip() % "reads: []")

    (key,) = s3.objects
    (place,) = places_of(live).places
    assert (ran.status, place.rpartition("/")[0]) == ("completed", "s3://bucket/mine")
    assert key.startswith(place.removeprefix("s3://bucket/"))
    assert places_of(live).setting == ""


def test_a_store_takes_only_so_many_buckets_of_workflows(live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MULLIGAN_OBJECT_STORE")
    store = live.service.reader.store
    for number in range(PLACES_MAX):
        agree(store, f"s3://bucket/{number}")

    ran = live.run("artifacts: s3://bucket/another\n" + ONE.lstrip() % "reads: []")

    assert (ran.status, len(places_of(live).places), s3.objects) == ("failed", PLACES_MAX, {})
    assert "this store has artifacts in 100 places" in failure(ran)[1]


def test_without_a_setting_nothing_is_asked_of_a_bucket(live: Live, s3: S3, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MULLIGAN_OBJECT_STORE")

    ran = live.run(ONE % "reads: []")

    assert (ran.status, s3.requests, places_of(live)) == ("completed", [], None)


# -- garbage


@pytest.mark.nightly
def test_a_worker_that_is_killed_between_the_upload_and_its_report_leaves_garbage_alone(live: Live, s3: S3):
    path = live.write("killed.yaml", ONE.lstrip() % "on_lost: rerun")
    killed: list[int] = []

    def kill() -> None:
        if not killed:
            killed.append(running.pid)
            running.kill()

    s3.on_stored = kill
    running = process("run", path, "--home", live.home.folder, cwd=live.folder)
    running.communicate(timeout=60)
    # Its supervisor ends what it has started.
    (left,) = s3.objects

    again = live.resume(1)
    assert (again.status, len(s3.objects)) == ("completed", 2)
    collect_garbage(live.service.reader, RunRetention())

    (kept,) = s3.objects
    (fact,) = again.facts(e.AttemptSucceeded)
    assert left != kept and kept.endswith(parse_reference(fact.output).name)
    assert killed and live.service.runs.output(1, "large").value == "r" * 100_000


def orphan(live: Live, s3: S3, name: str = "1/large/1/1/HASH/output.json") -> str:
    """What a worker leaves that is killed between the upload and its report."""
    key = f"{places_of(live).places[0].removeprefix('s3://bucket/')}/{name}"
    s3.objects[key] = b"left"
    return key


def test_gc_removes_what_no_run_refers_to_and_nothing_else(live: Live, s3: S3):
    live.run(ONE % "reads: []")
    (kept,) = s3.objects
    left = orphan(live, s3)
    s3.objects["team/of-somebody-else"] = b"not ours"

    listed = collect_garbage(live.service.reader, RunRetention(), is_dry=True)
    assert [one.name for one in listed.objects] == [f"s3://bucket/{left}"] and left in s3.objects
    collect_garbage(live.service.reader, RunRetention())

    assert set(s3.objects) == {kept, "team/of-somebody-else"}


@pytest.mark.nightly
def test_gc_leaves_what_was_uploaded_just_now(live: Live, s3: S3):
    live.run(ONE % "reads: []")
    left = orphan(live, s3)
    s3.stored_at[left] = "2100-01-01T00:00:00.000Z"

    collect_garbage(live.service.reader, RunRetention())

    assert left in s3.objects


def test_gc_leaves_what_a_running_attempt_has_uploaded(live: Live, s3: S3):
    live.run(ONE % "reads: []")
    live.write("block", "")

    def look(terminal: Any) -> None:
        terminal.wait_for(e.AttemptStarted, place="wait")
        left = orphan(live, s3, f"{terminal.run_id}/wait/1/1/HASH/output.json")
        collect_garbage(terminal.service.reader, RunRetention())
        assert left in s3.objects
        (live.folder / "block").unlink()

    ran = live.run("{name: w, steps: [{step: wait, shell: 'while [ -e block ]; do sleep 0.02; done'}]}", meanwhile=look)

    assert ran.status == "completed"


def test_gc_removes_the_objects_of_removed_runs_and_of_lost_runs_none(live: Live, s3: S3):
    live.run(ONE % "reads: []")
    beyond = orphan(live, s3, "99/large/1/1/HASH/output.json")

    found = collect_garbage(live.service.reader, RunRetention(keep=0))

    assert (found.runs, found.lost, list(s3.objects)) == ([1], [99], [beyond])


def test_gc_says_which_place_it_cannot_look_at_and_removes_the_rest(live: Live, s3: S3):
    live.run(ONE % "reads: []")
    orphan(live, s3)
    s3.refuse("GET", 403)

    found = collect_garbage(live.service.reader, RunRetention())

    place = places_of(live).places[0]
    assert found.unread == {place: f"'{place}' cannot be listed: access is denied"} and len(s3.objects) == 2


def test_a_reader_learns_which_object_is_gone(live: Live, s3: S3):
    ran = live.run(ONE % "reads: []")
    s3.objects.clear()

    with pytest.raises(ArtifactGone) as caught:
        live.service.runs.output(ran.run_id, "large")

    assert "is gone from 's3://bucket/team/" in caught.value.message
