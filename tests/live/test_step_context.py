"""Progress and kept files, live: shown while a step runs and afterwards, and gone with the run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.runner import Live, Terminal

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import KEY
from mulligan.service.host.gc import RunRetention
from mulligan.service.rendering.json_output import to_json

KEEPING = """
    name: keeping
    steps:
      - step: train
        retry: 1
        python: |
          import mulligan
          def main():
              number = mulligan.attempt()
              open("model.bin", "w").write("w" * number)
              model = mulligan.artifact("model.bin")
              mulligan.progress(number, 2, "trained")
              if number == 1:
                  raise ValueError("no")
              return {"accuracy": 0.9, "model": model}
      - step: evaluate
        needs: [train]
        python: |
          def main(model):
              yield 0.5
              return len(model.read_bytes())
        args: {model: "${steps.train.output.model}"}
      - {step: size, needs: [train], shell: 'wc -c < ${steps.train.output.model}'}
    outputs: {model: "${steps.train.output.model}", accuracy: "${steps.train.output.accuracy}"}
"""


def test_what_steps_reported_and_kept_is_part_of_the_run(live: Live) -> None:
    ran = live.run(KEEPING)

    assert ran.status == "completed"
    assert [ran.steps[name]["output"] for name in ("evaluate", "size")] == [2, "2"]
    assert ran.shown["outputs"]["accuracy"] == 0.9
    found = live.service.runs.overview(ran.run_id, with_attempts=True)
    files = [(one.place, one.attempt, one.file, one.size) for one in found.artifacts]
    assert files == [("train", 1, "model.bin", 1), ("train", 2, "model.bin", 2)]
    progress = found.steps["train"].progress
    assert progress is not None and progress.text == "trained"
    tries = to_json(found.steps["train"].tries)
    assert [(one["progress"]["done"], one["progress"]["total"]) for one in tries] == [(1, 2), (2, 2)]
    assert [[file["size"] for file in one["artifacts"]] for one in tries] == [[1], [2]]
    assert live.service.runs.attempts(ran.run_id)["evaluate"][0].progress.share == 0.5  # type: ignore[union-attr]


def test_the_output_of_a_step_has_the_path_of_a_kept_file_where_there_is_one(live: Live) -> None:
    ran = live.run(KEEPING)

    kept = live.service.runs.output(ran.run_id, "train").value["model"][KEY]

    is_shared = live.service.reader.store.is_shared
    assert is_shared or Path(kept["path"]).read_text() == "ww"
    assert kept["format"] == "file"


def test_the_report_has_the_progress_and_the_files(live_file: Live) -> None:
    ran = live_file.run(KEEPING)

    report = live_file.service.runs.report(ran.run_id, datetime.now(UTC))

    assert [(one.file, one.attempt) for one in report.artifacts] == [("model.bin", 1), ("model.bin", 2)]
    assert [one.progress for one in report.attempts if one.place == "train"] == ["1/2 trained", "2/2 trained"]
    page = live_file.service.runs.report_page(report, folder=None, home_option="")
    assert all(text in page for text in ('id="artifacts"', "<td>model.bin</td>", "at 1/2 trained"))


def test_progress_is_read_while_the_step_runs(live: Live) -> None:
    live.write("go")
    reported: list[Any] = []

    def look(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="slow")
        there.wait_until(lambda: there.service.runs.attempt_progress(there.run_id, "slow", 1))
        reported.append(there.service.runs.overview(there.run_id).steps["slow"].progress)
        (there.folder / "go").unlink()

    ran = live.run(
        """
        name: slow
        steps:
          - {step: slow, shell: 'echo 3/10 copying > $MULLIGAN_PROGRESS; while [ -e go ]; do sleep 0.01; done'}
        """,
        meanwhile=look,
    )

    assert ran.status == "completed"
    assert [(one.done, one.total, one.text) for one in reported] == [(3, 10, "copying")]


def test_kept_files_and_progress_go_with_the_run(live: Live) -> None:
    ran = live.run(KEEPING)
    artifacts, progress = live.service.reader.store.artifacts, live.home.folders.progress(ran.run_id, "train", 1)
    live.service.machine.collect_garbage(RunRetention())
    before = len(list(artifacts.records())), Path(progress).exists()

    live.service.machine.collect_garbage(RunRetention(keep=0))

    assert before == (2, True)
    assert (list(artifacts.records()), Path(progress).exists()) == ([], False)


def test_a_fork_keeps_the_files_of_the_run_that_it_came_from(live: Live) -> None:
    first = live.run(KEEPING)

    second = live.resume(live.service.changes.fork(first.run_id, "evaluate", {}).fork_run_id)

    assert (second.status, second.steps["evaluate"]["output"]) == ("completed", 2)
    assert second.shown["outputs"] == first.shown["outputs"]


def test_an_item_of_a_map_has_its_own_progress(live_file: Live) -> None:
    ran = live_file.run("""
        name: items
        steps:
          - {step: each, map: {over: [4, 5], as: n}, do: [{shell: 'echo ${n}/9 > $MULLIGAN_PROGRESS'}]}
    """)

    found = [live_file.service.runs.item_history(ran.run_id, "each", index).history for index in (0, 1)]

    assert [to_json(one)[0]["progress"]["done"] for one in found] == [4, 5]
