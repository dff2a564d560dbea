"""What Torc's jobs and recovery scripts find in their environment, and its names for logs."""

from __future__ import annotations

from pathlib import Path

from tests.support.runner import Live

from .reading import loaded, ours

ENVIRONMENT = """
name: env
jobs:
  - name: first job
    command: env | grep ^TORC_ | sort > first; [ $TORC_ATTEMPT_ID -gt 1 ] && echo mended || { echo broken >&2; exit 7; }
    failure_handler: h
  - name: second
    command: env | grep ^TORC_ | sort > second
  - name: missing
    command: "[ $TORC_ATTEMPT_ID = 1 ] || touch out"
    output_files: [out]
    failure_handler: h
files: [{name: out, path: out}]
failure_handlers:
  - name: h
    rules:
      - exit_codes: [1, 7]
        recovery_script: "env | grep ^TORC_ | sort > script-$TORC_JOB_ID"
"""


def variables(live: Live, name: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in live.lines(name))


def test_a_job_finds_what_torc_tells_it(live: Live) -> None:
    ran = live.run(ENVIRONMENT)

    assert ran.status == "completed"
    shared = {"TORC_API_URL": "", "TORC_OUTPUT_DIR": "output", "TORC_RUN_ID": "1", "TORC_WORKFLOW_ID": str(ran.run_id)}
    first = {**shared, "TORC_JOB_ID": "1", "TORC_JOB_NAME": "first job"}
    assert variables(live, "first") == {**first, "TORC_ATTEMPT_ID": "2"}
    assert variables(live, "second") == {
        **shared,
        "TORC_JOB_ID": "2",
        "TORC_JOB_NAME": "second",
        "TORC_ATTEMPT_ID": "1",
    }
    assert variables(live, "script-1") == {**first, "TORC_ATTEMPT_ID": "1", "TORC_RETURN_CODE": "7"}


def test_a_file_that_is_missing_is_a_return_code_of_one(live: Live) -> None:
    live.run(ENVIRONMENT)

    assert variables(live, "script-3")["TORC_RETURN_CODE"] == "1"


def test_what_each_attempt_wrote_is_found_under_torcs_names(live: Live) -> None:
    ran = live.run(ENVIRONMENT, inputs={"output_dir": "elsewhere"})

    folder = live.folder / "elsewhere/job_stdio"
    stem = f"job_wf{ran.run_id}_j1_r1"
    assert (folder / f"{stem}_a1.e").read_text() == "broken\n"
    assert (folder / f"{stem}_a2.o").read_text() == "mended\n"


def test_the_output_folder_exists_when_the_first_job_starts(live: Live) -> None:
    ran = live.run("name: w\njobs: [{name: a, command: 'echo hi > $TORC_OUTPUT_DIR/mine'}]\n")

    assert ran.status == "completed"
    assert live.lines("output/mine") == ["hi"]


def test_the_output_folder_may_be_anywhere_as_it_may_in_torc(live: Live, tmp_path: Path) -> None:
    ran = live.run(ENVIRONMENT, inputs={"output_dir": str(tmp_path / "scratch")})

    log = tmp_path / "scratch" / "job_stdio" / f"job_wf{ran.run_id}_j1_r1_a2.o"
    assert log.read_text() == "mended\n"


def test_the_variables_are_said_once_and_a_name_only_where_it_had_to_be_changed() -> None:
    workflow = loaded("name: w\njobs: [{name: a, command: b}, {name: 'x ${y}', command: c}]")

    first, second = workflow.steps
    assert first.env["TORC_JOB_NAME"].reads == ("step",)
    assert second.env["TORC_JOB_NAME"].parts == ("x ${y}",)
    assert second.name == "x___y_"


def test_a_file_that_names_no_variable_has_steps_that_say_nothing_of_them() -> None:
    assert ours("name: w\njobs: [{name: a, command: b}]") == {"name": "w", "steps": [{"step": "a", "shell": "b"}]}
