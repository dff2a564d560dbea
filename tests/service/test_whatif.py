"""What a changed workflow makes of runs in a store: runs that really ran."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.analysis.whatif.results import WhatIf
from mulligan.errors import UnknownStep
from mulligan.service.authoring.whatif import WhatIfSelection
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

# `fails` says how many attempts fail.
FLOW = """
name: nightly
inputs: {fails: {type: integer, default: 0}}
steps:
  - step: fetch
    shell: test "$MULLIGAN_ATTEMPT" -gt "${inputs.fails}" || exit 11
    POLICY
  - step: parts
    needs: [fetch]
    map: {over: [1, 2], as: part}
    do:
      - {shell: 'echo ${part}'}
  - step: both
    needs: [parts]
    group:
      steps:
        - step: one
          shell: test "$MULLIGAN_ATTEMPT" -gt 1
          retry: INNER
        - {step: two, needs: [one], shell: echo two}
"""


def flow(policy: str = "retry: {exit_codes: [11], max_retries: 2, delay: 0}", inner: int = 1) -> str:
    return FLOW.replace("POLICY", policy).replace("INNER", f"{{max_retries: {inner}, delay: 0}}")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Four runs, in which no, one, two and three attempts of `fetch` fail; the last run failed."""
    folder = tmp_path_factory.mktemp("whatif")
    with Service(Home(folder / "home"), "ada") as opened:
        workflow = load(opened, folder, flow())
        with opened.driving.driver(Capacity(cpus=4.0, memory=4 << 30)) as driver:
            for fails in range(4):
                prepared = prepare(workflow, {"fails": fails}, folder)
                driver.drive(opened.changes.create(prepared)[0], 0.0)
        yield opened


def load(service: Service, folder: Path, text: str) -> Any:
    file = folder / "flow.yaml"
    file.write_text(text)
    return service.workflows.load_workflow(file)


def tried(service: Service, folder: Path, text: str, **selection: Any) -> WhatIf:
    return service.workflows.whatif(load(service, folder, text), WhatIfSelection(**selection))


def ends(found: WhatIf) -> list[tuple[int, str, str, str]]:
    return [(run.run_id, run.was, run.would_be, run.by) for run in found.changed]


def runs_by_fails(service: Service) -> list[int]:
    return sorted(record.run_id for record in service.reader.runs() if record.parent_run_id is None)


def test_with_the_same_file_every_run_goes_as_it_went(service: Service, tmp_path: Path) -> None:
    found = tried(service, tmp_path, flow())

    assert (found.runs, found.decided, found.facts, found.unchanged) == (4, 4, 4, 4)
    assert (found.completed_before, found.completed_now, found.attempts, found.changed) == (3, 3, 0, ())


def test_fewer_retries_are_known_exactly(service: Service, tmp_path: Path) -> None:
    _, _, third, _ = runs_by_fails(service)

    found = tried(service, tmp_path, flow("retry: {exit_codes: [11], max_retries: 1, delay: 0}"))

    last = max(runs_by_fails(service))
    assert ends(found) == [(third, "completed", "failed", "fact"), (last, "failed", "failed", "fact")]
    assert (found.ends_otherwise_by, found.completed_now) == ({"fact": 1}, 2)
    # Of the third run: an attempt of fetch, those of two parts and of the group. Of the last: one of fetch.
    assert (found.attempts, found.outcomes_estimated) == (-4, {})


def test_more_retries_are_an_estimate_from_the_same_step_and_failure(service: Service, tmp_path: Path) -> None:
    last = max(runs_by_fails(service))
    more = flow("retry: {exit_codes: [11], max_retries: 3, delay: 0}")

    found = tried(service, tmp_path, more)
    again = tried(service, tmp_path, more)
    others = {tried(service, tmp_path, more, seed=seed).completed_now for seed in range(20)}

    assert [(run_id, by) for run_id, _, _, by in ends(found)] == [(last, "estimate")]
    retried = next(one for one in found.estimates if one.place == "fetch")
    # Retries of 'fetch': one that worked in the second run, one of two in the third, none of two in the last.
    assert (retried.kind, retried.failure, retried.worked, retried.tried) == ("again", "exit code 11", 2, 5)
    assert found.completed_low <= found.completed_now <= found.completed_high
    assert found == again
    assert others == {3, 4}


def test_a_policy_inside_a_group_is_tried_on_the_runs_of_the_group(service: Service, tmp_path: Path) -> None:
    *completed, _ = runs_by_fails(service)

    found = tried(service, tmp_path, flow(inner=0))

    assert sorted(ends(found)) == [(run_id, "completed", "failed", "fact") for run_id in completed]
    assert {(run.step, run.why) for run in found.changed} == {("both", "a run that it calls goes another way")}


def test_runs_are_selected_by_number_and_by_the_step_that_failed(service: Service, tmp_path: Path) -> None:
    second = runs_by_fails(service)[1]
    fewer = flow("retry: 0")

    one = tried(service, tmp_path, fewer, run_ids=(second,))
    failed = tried(service, tmp_path, fewer, step="fetch")

    assert ends(one) == [(second, "completed", "failed", "fact")]
    assert (one.runs, failed.runs) == (1, 3)
    with pytest.raises(UnknownStep, match="fetsch"):
        tried(service, tmp_path, fewer, step="fetsch")


def test_what_cannot_be_decided_again_is_listed_with_the_reason(service: Service, tmp_path: Path) -> None:
    gone = tried(service, tmp_path, flow().replace("step: parts", "step: pieces").replace("[parts]", "[pieces]"))
    inputs = tried(service, tmp_path, flow().replace("default: 0", "enum: [7]"))

    assert {(run.code, run.reason) for run in gone.undecided} == {
        ("step_gone", "step 'parts' ran, and is not in the file")
    }
    assert (gone.undecided_total, gone.decided) == (3, 1)
    assert {run.code for run in inputs.undecided} == {"inputs"}


def test_a_store_without_runs_of_the_workflow_has_nothing_to_decide(service: Service, tmp_path: Path) -> None:
    with Service(Home(tmp_path / "none")) as empty:
        assert tried(empty, tmp_path, flow()).runs == 0
    assert tried(service, tmp_path, flow().replace("name: nightly", "name: other")).runs == 0
