"""Typed values, live: a table through maps, called runs, handlers, forks, reused results and garbage collection."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import is_artifact
from mulligan.service.host.gc import RunRetention
from mulligan.values.files import load_output

MAKE = """
          - step: make
            python: |
              import polars
              def main(n):
                  parts = [polars.DataFrame({"a": [i]}) for i in (1, 2)]
                  return {"table": polars.DataFrame({"a": list(range(n))}), "parts": parts}
            args: {n: 3}
"""
COUNT = "def main(table): return table.height"


def loaded(live: Live, value: Any) -> Any:
    return load_output(value, live.service.runs.read_artifact)


def artifacts_of(live: Live) -> list[str]:
    return sorted(record.name for record in live.service.reader.store.artifacts.records())


def outputs_of(ran: Ran) -> dict[str, Any]:
    return {name: step["output"] for name, step in ran.steps.items()}


def test_a_table_travels_through_expressions_maps_called_runs_and_handlers(live: Live) -> None:
    live.write(
        "called.yaml",
        f"""
        name: called
        inputs: {{table: {{type: any}}}}
        steps: [{{step: count, python: "{COUNT}", args: {{table: "${{inputs.table}}"}}}}]
        outputs: {{count: "${{steps.count.output}}", table: "${{inputs.table}}"}}
    """,
    )

    ran = live.run(f"""
        name: tables
        order: sequential
        steps:{MAKE}          - step: seen
            when: steps.make.output.table.rows == 3 && size(steps.make.output.parts) == 2
            shell: 'echo ${{steps.make.output.table.type}}; head -c 4 ${{steps.make.output.table}}'
          - step: each
            map: {{over: "${{steps.make.output.parts}}"}}
            do:
              - python: 'def main(part): return part.with_columns(b=part["a"] * 2)'
                args: {{part: "${{item}}"}}
          - step: joined
            python: |
              import polars
              def main(parts): return polars.concat(parts)
            args: {{parts: "${{steps.each.output.results}}"}}
          - step: called
            workflow: {{file: called.yaml, inputs: {{table: "${{steps.joined.output}}"}}}}
          - step: fails
            shell: exit 3
            on_failure:
              python: "{COUNT}"
              args: {{table: "${{steps.make.output.table}}"}}
        outputs: {{joined: "${{steps.joined.output}}", called: "${{steps.called.output}}"}}
    """)

    found = outputs_of(ran)
    assert not [step["failure"] for step in ran.steps.values() if step["status"] == "failed"]
    assert ran.status == "completed"
    assert found["seen"] == "polars.DataFrame\nPAR1"
    assert loaded(live, found["joined"]).to_dict(as_series=False) == {"a": [1, 2], "b": [2, 4]}
    assert found["called"]["count"] == 2
    assert found["fails"] == 3
    assert loaded(live, ran.shown["outputs"])["called"]["table"].equals(pl.DataFrame({"a": [1, 2], "b": [2, 4]}))
    assert is_artifact(live.service.runs.output(ran.run_id, "joined").value)


@pytest.mark.nightly
def test_a_fork_a_retry_and_gc_keep_the_tables_that_they_need(live_file: Live) -> None:
    ran = live_file.run(f"""
        name: forked
        order: sequential
        steps:{MAKE}          - step: count
            shell: test -e ready
          - step: last
            python: "{COUNT}"
            args: {{table: "${{steps.make.output.table}}"}}
    """)
    (live_file.folder / "ready").touch()
    kept = artifacts_of(live_file)

    live_file.service.changes.retry(ran.run_id)
    again = live_file.resume(ran.run_id)
    forked = live_file.resume(live_file.service.changes.fork(ran.run_id, "last", {}).fork_run_id)
    live_file.service.machine.collect_garbage(RunRetention(keep=1))
    forked_again = live_file.resume(live_file.service.changes.fork(forked.run_id, "last", {}).fork_run_id)

    assert (ran.status, again.status, forked.status, forked_again.status) == ("failed", *["completed"] * 3)
    assert outputs_of(forked_again)["last"] == 3
    assert artifacts_of(live_file) == kept


def test_a_step_whose_argument_is_the_same_table_is_up_to_date(live_file: Live) -> None:
    workflow = f"""
        name: cached
        order: sequential
        steps:{MAKE}          - step: count
            cache: true
            python: "def main(table): print('called'); return [table, table.height]"
            args: {{table: "${{steps.make.output.table}}"}}
    """

    first, second = live_file.run(workflow), live_file.run(workflow)

    assert second.steps["count"]["up_to_date_since"] == first.run_id
    assert loaded(live_file, outputs_of(second)["count"])[1] == 3
    assert loaded(live_file, outputs_of(second)["count"])[0].height == 3


def test_a_typed_argument_that_does_not_fit_is_a_failure_that_a_route_may_take(live_file: Live) -> None:
    ran = live_file.run("""
        name: misfit
        steps:
          - step: load
            python: |
              import datetime
              def main(day: datetime.date): return day.year
            args: {day: yesterday}
            on_failure: {shell: 'echo "${error.code}"'}
    """)

    assert ran.status == "completed"
    assert outputs_of(ran)["load"] == "INPUT_INVALID"
    (failed,) = ran.facts(e.AttemptFailed, place="load")
    assert failed.failure.message == (
        "argument 'day' does not fit: day must be a date in ISO 8601, and is \"yesterday\""
    )


@pytest.mark.parametrize("limit", ["'validate' sees the description", "the table itself"])
def test_validate_may_look_at_the_description_of_a_table(live_file: Live, limit: str) -> None:
    expression = "output.rows > 5" if limit.startswith("'") else "size(output.columns) > 5"
    ran = live_file.run(f"""
        name: validated
        steps:
          - step: make
            python: |
              import polars
              def main(): return polars.DataFrame({{"a": [1, 2]}})
            validate: '{expression}'
    """)

    assert ran.status == "failed"
    assert ran.steps["make"]["failure"]["code"] in ("VALIDATION_FAILED", "EXPRESSION_FAILED")
