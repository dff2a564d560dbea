"""Files of kept steps, live: a round and a fork rely on what is there, and not on what was there once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.core.model.file_records import StaleFile
from mulligan.errors import NothingToRetry

BUILD = """
    name: build
    files: {result: out/result.txt}
    steps:
      - {step: mesh, shell: "echo mesh >> trace; mkdir -p out; echo mesh > out/mesh.txt", writes: out/mesh.txt}
      - step: solve
        shell: "echo solve >> trace; cat out/mesh.txt > ${files.result}"
        reads: out/mesh.txt
        writes: result
      - {step: aside, shell: "echo aside >> trace"}
      - {step: check, needs: [solve, aside], shell: "echo check >> trace; test -e ready"}
"""


def done(live: Live) -> list[str]:
    lines = sorted(live.lines("trace"))
    live.write("trace")
    return lines


def failed(live: Live, workflow: str = BUILD) -> Ran:
    ran = live.run(workflow)
    assert ran.status == "failed"
    live.write("trace")
    live.write("ready")
    return ran


def retried(live: Live, ran: Ran, **options: Any) -> Ran:
    live.service.changes.retry(ran.run_id, **options)
    return live.resume(ran.run_id)


def test_what_steps_wrote_is_in_their_events(live_file: Live):
    ran = failed(live_file)

    (fact,) = ran.facts(e.AttemptSucceeded, place="solve")
    assert [(one.name, one.path, one.size, len(one.sha256)) for one in fact.files] == [
        ("result", "out/result.txt", 5, 64),
    ]


def test_files_that_are_as_they_were_keep_their_steps(live_file: Live):
    ran = failed(live_file)

    second = retried(live_file, ran)

    assert (second.status, done(live_file)) == ("completed", ["check"])
    assert second.facts(e.RunReopened)[0].stale == ()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(Path.unlink, "gone"), (lambda path: path.write_text("MESH\n"), "changed")],
    ids=["gone", "changed"],
)
def test_a_step_whose_file_is_gone_or_changed_runs_again_with_all_behind_it(live: Live, damage: Any, problem: Any):
    ran = failed(live)
    damage(live.folder / "out/mesh.txt")

    planned = live.service.changes.retry(ran.run_id, dry_run=True)
    second = retried(live, ran)

    stale = (StaleFile("mesh", "out/mesh.txt", problem),)
    assert (planned.steps, planned.kept, planned.stale) == (("mesh", "solve", "check"), ("aside",), stale)
    assert planned.why["solve"] == "it comes after 'mesh'"
    assert (second.status, done(live)) == ("completed", ["check", "mesh", "solve"])
    assert second.facts(e.RunReopened)[0].stale == stale
    assert f"mesh: runs again: {stale[0].text}" in second.story


def test_a_run_that_completed_gets_a_round_where_a_file_is_gone(live_file: Live):
    live_file.write("ready")
    ran = live_file.run(BUILD)
    with pytest.raises(NothingToRetry):
        live_file.service.changes.retry(ran.run_id)
    live_file.write("trace")
    (live_file.folder / "out/result.txt").unlink()

    second = retried(live_file, ran)

    assert (second.status, second.shown["round"], done(live_file)) == ("completed", 2, ["check", "solve"])


def test_a_fork_runs_a_step_whose_file_has_changed_and_keeps_the_records_of_the_others(live_file: Live):
    ran = failed(live_file)
    live_file.write("out/result.txt", "damaged")

    planned = live_file.service.changes.fork(ran.run_id, "check", {}, dry_run=True)
    forked = live_file.resume(live_file.service.changes.fork(ran.run_id, "check", {}).fork_run_id)

    stale = (StaleFile("solve", "out/result.txt", "changed"),)
    assert (planned.steps, planned.kept, planned.stale) == (("solve", "check"), ("mesh", "aside"), stale)
    assert (forked.status, done(live_file)) == ("completed", ["check", "solve"])
    assert forked.facts(e.RunStarted)[0].stale == stale
    assert f"solve: runs again: {stale[0].text}" in forked.story
    (live_file.folder / "out/mesh.txt").unlink()
    assert live_file.service.changes.fork(forked.run_id, "check", {}, dry_run=True).stale == (
        StaleFile("mesh", "out/mesh.txt", "gone"),
    )


def test_of_two_steps_that_write_one_file_the_later_one_is_asked_for_it(live_file: Live):
    ran = failed(
        live_file,
        """
        name: twice
        steps:
          - {step: first, shell: "echo first >> trace; echo 1 > f.txt", writes: f.txt}
          - {step: second, needs: first, shell: "echo second >> trace; echo 2 >> f.txt", writes: f.txt}
          - {step: check, needs: second, shell: "test -e ready"}
        """,
    )
    assert live_file.service.changes.retry(ran.run_id, dry_run=True).steps == ("check",)

    live_file.write("f.txt", "1\n")

    assert live_file.service.changes.retry(ran.run_id, dry_run=True).steps == ("second", "check")


def test_what_a_map_or_a_handler_wrote_is_recorded_for_the_step(live_file: Live):
    ran = failed(
        live_file,
        """
        name: others
        steps:
          - {step: each, map: {over: "${[1, 2]}"}, do: [{shell: "echo ${item} >> all.txt"}], writes: ./all.txt}
          - {step: saved, shell: exit 3, writes: saved.txt, on_failure: {shell: echo 1 > saved.txt, strategy: fallback}}
          - {step: check, needs: [each, saved], shell: "test -e ready"}
        """,
    )
    assert live_file.service.changes.retry(ran.run_id, dry_run=True).steps == ("check",)

    live_file.write("all.txt", "")
    live_file.write("saved.txt", "")

    assert live_file.service.changes.retry(ran.run_id, dry_run=True).steps == ("each", "saved", "check")
    assert (retried(live_file, ran).status, live_file.lines("saved.txt")) == ("completed", ["1"])


def test_a_path_with_a_value_is_where_the_value_led(live_file: Live):
    workflow = """
        name: daily
        inputs: {day: string}
        steps:
          - {step: fetch, shell: 'echo fetch >> trace; mkdir -p raw; echo 1 > "raw/${inputs.day}.csv"',
             writes: "raw/${inputs.day}.csv"}
          - {step: check, needs: fetch, shell: "test -e ready"}
    """
    ran = live_file.run(workflow, inputs={"day": "mon"})
    live_file.write("ready")
    (live_file.folder / "raw/mon.csv").unlink()

    assert live_file.service.changes.retry(ran.run_id, dry_run=True).stale == (
        StaleFile("fetch", "raw/mon.csv", "gone"),
    )
    assert retried(live_file, ran).status == "completed"


@pytest.mark.parametrize("action", ["shell: 'true'", "map: {over: '${[1]}'}, do: [{shell: 'true'}]"])
def test_a_value_that_leads_a_path_out_of_its_folder_fails_the_step(live_file: Live, action: str):
    ran = live_file.run(
        f"""
        name: escaping
        inputs: {{name: string}}
        steps:
          - {{step: fetch, {action}, writes: "raw/${{inputs.name}}"}}
        """,
        inputs={"name": "../../outside"},
    )

    assert ran.status == "failed"
    assert "must stay in" in ran.steps["fetch"]["failure"]["message"]


def test_a_round_for_items_of_a_map_runs_all_of_them_where_what_it_is_built_on_is_gone(live_file: Live):
    workflow = """
        name: items
        steps:
          - {step: list, shell: "echo list >> trace; echo '[1, 2]' > list.json; cat list.json",
             capture: json, writes: list.json}
          - step: each
            needs: list
            map: {over: "${steps.list.output}", on_item_failure: collect}
            do: [{shell: "echo ${item} >> trace; test ${item} = 1 || test -e ready"}]
    """
    ran = live_file.run(workflow)
    live_file.write("ready")
    live_file.write("trace")
    assert live_file.service.changes.retry(ran.run_id, from_step="each", items=(), dry_run=True).items == {"each": (1,)}
    (live_file.folder / "list.json").unlink()

    second = retried(live_file, ran, from_step="each", items=())

    assert (second.status, done(live_file)) == ("completed", ["1", "2", "list"])
