"""kill -9 between an artifact and the event that refers to it: an orphan stays, the run is right, `gc` removes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.model.artifacts import is_artifact, parse_reference
from mulligan.service.service import Service
from proof.crashes.command_runner import command_runner
from proof.crashes.faults import Fault
from proof.stage import Stage

LARGE = """
name: large
steps:
  - {step: text, shell: seq 1 20000}
  - {step: count, needs: [text], shell: wc -l, stdin: "${steps.text.output}"}
"""


def names(service: Service) -> list[str]:
    return sorted(record.name for record in service.reader.store.artifacts.records())


# The task has ended and its output is kept: first nobody was told, then it was not yet written.
@pytest.mark.parametrize(("point", "nth"), [("before_report", 1), ("before_commit", 2)])
def test_an_artifact_whose_event_was_never_written_is_an_orphan_and_the_run_is_right(
    tmp_path: Path, store_url: str, point: str, nth: int
) -> None:
    stage = Stage(tmp_path, store_url)
    with command_runner(stage, tmp_path) as processes:
        dead = processes.run(stage, "run", stage.workflow(LARGE), "--json", fault=Fault("kill", point, nth))
        assert dead.code == -9, dead.said

        with stage.service() as service:
            (run,) = service.reader.runs(limit=1)
            orphan = f"{run.run_id}/text/1/1/output.txt"
            assert names(service) == [orphan]

            ended = processes.run(stage, "resume", str(run.run_id), "--json")

            output = ended.shown["steps"]["text"]["output"]
            assert (ended.code, ended.shown["steps"]["count"]["output"].strip()) == (0, "19999")
            assert is_artifact(output)
            kept = parse_reference(output).name
            assert names(service) == sorted([orphan, kept])
            stage.expect_promises(service, run.run_id)

            swept = processes.run(stage, "gc", "--json")

            assert [one["name"] for one in swept.shown["artifacts"]] == [orphan]
            assert names(service) == [kept]
