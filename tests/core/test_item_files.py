"""Files that the commands of an item declare: each item has its own."""

from __future__ import annotations

from typing import Any

from mulligan.core.effects.reuse import reuse_of
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import reports as r
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Map, Template
from mulligan.testing.history import History, command, expression, handler, step, workflow

IN, OUT = "in/${n}.txt", "out/${n}.txt"
PATHS = {name: Template((name.partition("$")[0], expression("n", "n"), ".txt")) for name in (IN, OUT)}


def items(*names: str, **fields: Any) -> History:
    """A map over these items whose command reads and writes a file of each."""
    convert = command("convert", reads=(IN, "ref.fa"), writes=(OUT,), file_paths=PATHS, **fields)
    answers = {"items": list(names), "n": lambda found: found["n"]}
    mapped = step("m", map=Map(over=expression("items"), name="n"), do=(convert,), needs=["before"])
    return History(workflow(step("before"), mapped), answers).start(changed_only=True).ok("before")


def ended(run: History, place: str, *files: FileRecord) -> History:
    return run.report(r.TaskEnded(run.clock, place, run[place].attempt, fingerprint=f"tag of {place}", files=files))


def test_each_item_must_write_the_file_with_its_own_value_in_the_path() -> None:
    run = items("a", "b")

    assert make_task(run.state, "m[0].0").files == {OUT: "out/a.txt"}
    assert make_task(run.state, "m[1].0").files == {OUT: "out/b.txt"}


def test_an_item_that_does_not_write_its_file_fails_and_the_others_do_not() -> None:
    run = items("a", "b")
    run.report(r.TaskEnded(run.clock, "m[0].0", 1, Outcome(exit_code=0, missing_outputs=("out/a.txt",))))
    ended(run, "m[1].0")

    assert run["m"].failure is not None
    assert (run["m[0]"].status, run["m[1]"].status, run["m"].failure.code) == ("failed", "completed", "ITEMS_FAILED")
    assert run["m[0]"].failure.code == "OUTPUT_MISSING"


def test_the_last_command_of_a_handler_that_completes_an_item_must_have_written_the_file() -> None:
    run = items("a", on_failure=handler("clean", "write it")).fail("m[0].0")
    first = make_task(run.state, "m[0].0.on_failure@1.0")
    run.ok("m[0].0.on_failure@1.0")
    last = make_task(run.state, "m[0].0.on_failure@1.1")

    assert (first.files, last.files) == ({}, {OUT: "out/a.txt"})
    # The value in the path may not lead out of its folder there either.
    assert last.folders[f"file.{OUT}"] == make_task(items("a").state, "m[0].0").folders[f"file.{OUT}"]


def test_files_are_recorded_with_their_item_and_forgotten_when_it_runs_again() -> None:
    record = FileRecord(OUT, "out/a.txt", 3, "abc")
    run = items("a", "b")
    ended(run, "m[0].0", record)

    assert run["m[0]"].files == (record,)
    assert run["m[0]"].fingerprint == "tag of m[0].0"
    assert run["m"].files == ()


def test_an_item_is_known_by_the_files_that_it_reads_and_not_by_the_steps_before_the_map() -> None:
    run = items("a", "b")

    found = reuse_of(run.state, run["m[1].0"])

    assert found is not None
    assert (found.reads, found.after, found.looks) == ({IN: "in/b.txt", "ref.fa": "ref.fa"}, {}, True)


def test_files_of_a_handler_of_a_step_stay_with_the_step() -> None:
    run = History(workflow(step("a", writes=("f",), on_failure=handler("fix")))).start().fail("a")
    ended(run, "a.on_failure@1.0", FileRecord("f", "f", 1, "abc"))

    assert [record.name for record in run["a"].files] == ["f"]
