"""Rehearsals: real commands in memory; what cannot be carried out is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid, Refused, UnknownStep
from mulligan.language import load_text
from mulligan.testing.history import History
from mulligan.testing.rehearsal import rehearse


def rehearsed(text: str, folder: Path, **inputs: object) -> History:
    return rehearse(load_text(text), folder, inputs=inputs)


def test_a_command_gets_its_values_its_input_and_its_folder(tmp_path: Path):
    (tmp_path / "here").mkdir()

    run = rehearsed(
        """
        inputs: {who: {type: string}}
        steps:
          - step: a
            shell: 'echo "$(cat) ${inputs.who} from $PLACE in $(basename "$PWD")"'
            stdin: "hello ${inputs.who}"
            env: {PLACE: "${inputs.who}ville"}
            cwd: here
        outputs: {said: "${steps.a.output}"}
        """,
        tmp_path,
        who="you; rm -rf /",
    )

    assert run.status == "completed"
    assert run.state.run.outputs == {"said": "hello you; rm -rf / you; rm -rf / from you; rm -rf /ville in here"}


@pytest.mark.parametrize(
    ("capture", "command", "output"),
    [
        # As text, without the last newline alone.
        ("text", "printf 'a\\n\\n'", "a\n"),
        ("lines", "printf 'a\\nb\\n'", ["a", "b"]),
        ("json", "echo '{\"n\": 1}'", {"n": 1}),
        # What is written to the file wins over what is printed.
        ("text", "echo printed; echo '[1]' > \"$MULLIGAN_OUTPUT\"", [1]),
    ],
)
def test_an_output_is_taken_as_capture_says(capture: str, command: str, output: object, tmp_path: Path):
    run = rehearsed(
        f"steps:\n  - step: a\n    capture: {capture}\n    shell: |\n      {command}\n",
        tmp_path,
    )

    assert run["a"].output == output


FAILURES = {
    "an exit code": ("exit 3", "EXIT_NONZERO", 3),
    "a signal": ("kill -9 $$", "SIGNALED", 137),
    "time": ("sleep 60", "TIMEOUT", None),
    "output that is not what was asked for": ("touch made.txt; echo nonsense", "OUTPUT_INVALID", 0),
    "a file that is not there": ("echo '{}'", "OUTPUT_MISSING", 0),
    "its own word": ('echo \'{"code": "DISK_FULL"}\' > "$MULLIGAN_ERROR"', "DISK_FULL", 0),
    "its own word, garbled": ('echo nonsense > "$MULLIGAN_ERROR"; echo {}', "OUTPUT_INVALID", 0),
}


@pytest.mark.parametrize(("command", "code", "exit_code"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_is_told_by(command: str, code: str, exit_code: int | None, tmp_path: Path):
    run = rehearsed(
        f"""
        files: {{made: made.txt}}
        steps:
          - step: a
            writes: [made]
            capture: json
            timeout: {"200ms" if code == "TIMEOUT" else "1m"}
            shell: |
              {command}
        """,
        tmp_path,
    )

    assert run.status == "failed"
    assert run["a"].failure is not None
    assert (run["a"].failure.code, run["a"].failure.exit_code) == (code, exit_code)


def test_a_remediation_finds_the_context_in_a_file(tmp_path: Path):
    run = rehearsed(
        """
        steps:
          - {step: a, shell: "echo broken pipe >&2; exit 1", next: [{to: fix, on: failure}]}
          - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT"'}
        """,
        tmp_path,
    )

    assert run.status == "completed"
    assert run["fix"].output.startswith("MULLIGAN_FAILURE_ROUTE_CONTEXT v1\n")
    assert "broken pipe" in run["fix"].output


def test_a_stopped_run_leaves_no_process_behind(tmp_path: Path):
    run = rehearsed(
        """
        fail_fast: always
        cancel_grace: 0s
        steps:
          - {step: slow, shell: "touch started; sleep 60"}
          - {step: bad, shell: "until [ -e started ]; do :; done; exit 1"}
        """,
        tmp_path,
    )

    assert run.status == "failed"
    assert run.statuses == {"slow": "cancelled", "bad": "failed"}


def test_a_rehearsal_ends_where_a_person_is_waited_for(tmp_path: Path):
    run = rehearsed("steps:\n  - {step: a, approve: {message: go on?}}\n", tmp_path)

    assert (run.status, run["a"].status) == ("running", "running")


def test_a_value_too_large_for_the_environment_fails_the_step(tmp_path: Path):
    run = rehearsed(
        "inputs: {big: {type: string}}\nsteps:\n  - {step: a, shell: 'echo ${inputs.big}'}\n",
        tmp_path,
        big="x" * 99_000,
    )

    assert run["a"].failure is not None
    assert run["a"].failure.code == "INPUT_INVALID"


IMPOSSIBLE = {
    "python": ("steps:\n  - {step: a, python: 'def main(): return 1'}\n", "'python'"),
    "in a handler": ("steps:\n  - {step: a, shell: 'false', on_failure: {agent: fix it}}\n", "'agent'"),
    "for an item": ("steps:\n  - {step: a, map: {over: [1]}, do: [{http: {url: 'http://x'}}]}\n", "'http'"),
}


@pytest.mark.parametrize(("text", "named"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_a_rehearsal_cannot_do_is_refused_before_it_starts(text: str, named: str, tmp_path: Path):
    with pytest.raises(Refused) as refused:
        rehearsed(text, tmp_path)

    assert refused.value.render() == (
        f"error[refused]: a rehearsal runs only shell commands, and step 'a' has {named}\n"
        "  define how it ends: fakes={'a': {'output': …}}"
    )


def test_a_secret_is_refused_before_it_could_be_printed(tmp_path: Path):
    text = "secrets: {token: {env: TOKEN}}\nsteps:\n  - {step: a, shell: 'echo ${secrets.token}'}\n"

    with pytest.raises(Refused) as refused:
        rehearsed(text, tmp_path)

    assert refused.value.render() == (
        "error[refused]: a rehearsal looks up no secrets, and step 'a' reads one\n"
        "  pass it as an environment variable: ${env.NAME}"
    )


def test_a_folder_that_is_not_there_is_told_in_words(tmp_path: Path):
    with pytest.raises(InputInvalid) as refused:
        rehearsed("steps:\n  - {step: a, shell: 'true'}\n", tmp_path / "nowhere")

    assert refused.value.message == f"'{tmp_path / 'nowhere'}' is not a folder"


def test_a_command_that_cannot_be_started_fails_and_climbs(tmp_path: Path):
    run = rehearsed(
        """
        steps:
          - {step: a, shell: 'true', cwd: nope, next: [{to: b, on: failure}]}
          - {step: b, shell: 'true'}
        """,
        tmp_path,
    )

    assert (run.status, run.statuses) == ("completed", {"a": "failed", "b": "completed"})
    assert run["a"].failure is not None
    assert run["a"].failure.code == "INPUT_INVALID"


def test_every_turn_is_watched(tmp_path: Path):
    seen: list[str] = []
    workflow: Workflow = load_text("steps:\n  - {step: a, shell: 'true'}\n")

    rehearse(workflow, tmp_path, watch=lambda state, entries: seen.extend(type(x.fact).__name__ for x in entries))

    assert seen[0] == "RunStarted"
    assert seen[-1] == "RunCompleted"


# -- fakes -----------------------------------------------------------------------------------------------------------

NIGHTLY = """
steps:
  - step: fetch
    http: {url: https://example.invalid}
    retry: {codes: [HTTP_5XX], max_retries: 1}
  - {step: clean, needs: fetch, python: {call: 'm:main'}}
  - {step: load, needs: clean, sql: {connection: 'sqlite://db', query: select 1}, next: {to: mend, on: failure}}
  - {step: report, needs: load, shell: 'echo "${steps.load.output[0].n} of ${size(steps.fetch.output.body)}"'}
  - {step: mend, shell: echo mended}
"""


def test_steps_of_every_kind_are_faked_and_the_rest_is_real(tmp_path: Path):
    fakes = {
        "fetch": [{"status": 503}, {"body": [1, 2]}],
        "clean": {"returns": [1]},
        "load": {"rows": [{"n": 1}]},
    }

    run = rehearse(load_text(NIGHTLY), tmp_path, fakes=fakes)

    assert run.status == "completed"
    assert (run["fetch"].attempt, run["report"].output) == (2, "1 of 2")


def test_a_faked_failure_leads_to_what_is_done_about_it(tmp_path: Path):
    fakes = {"fetch": {"body": []}, "clean": {"returns": []}, "load": {"fail": "CONNECTION"}}

    run = rehearse(load_text(NIGHTLY), tmp_path, fakes=fakes)

    assert run.statuses == {
        **{"fetch": "completed", "clean": "completed", "load": "failed", "report": "skipped"},
        "mend": "completed",
    }


def test_a_fake_of_a_step_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UnknownStep):
        rehearse(load_text(NIGHTLY), tmp_path, fakes={"loud": {"output": 1}})


TRIAGED = """
name: night
steps:
  - step: fetch
    shell: exit 7
    triage: {by: agent, agent: claude, max_per_run: 2}
"""


def test_a_rehearsal_plays_the_answers_of_a_triager(tmp_path):
    retry = {"verdict": "retry", "confidence": 0.9, "reason": "the mirror was down"}
    unsure = {"verdict": "fail", "confidence": 0.2, "reason": "again"}

    run = rehearse(load_text(TRIAGED), tmp_path, fakes={"fetch.triager": [{"output": retry}, {"output": unsure}]})

    assert run["fetch"].status == "pending_failed"
    assert [fact.by for fact in run.facts(e.StepClassified)] == ["agent:claude"]
    assert [fact.why_not for fact in run.facts(e.TriageSuggested)] == ["below_confidence"]


def test_a_rehearsal_asks_no_agent(tmp_path):
    with pytest.raises(Refused) as caught:
        rehearse(load_text(TRIAGED), tmp_path)

    assert "'fetch.triager'" in caught.value.hint


def test_the_undo_of_a_faked_step_that_no_rehearsal_could_run_succeeds(tmp_path: Path):
    workflow = load_text(
        """
        steps:
          - {step: reserve, python: {call: "rooms:reserve"}, undo: {python: {call: "rooms:release"}}}
          - {step: note, shell: touch noted, undo: rm noted}
          - {step: pay, needs: [reserve, note], shell: exit 1}
        """
    )

    run = rehearse(workflow, tmp_path, fakes={"reserve": {"returns": "r7"}, "note": {"output": "n"}})

    assert run.status == "failed"
    assert [fact.step for fact in run.facts(e.UndoCompleted)] == ["reserve"]
    # That of 'note' is a command, which is run: there is no such file.
    assert [fact.step for fact in run.facts(e.UndoFailed)] == ["note"]


def test_the_undo_of_a_step_that_is_not_faked_is_still_refused(tmp_path: Path):
    workflow = load_text("steps: [{step: a, shell: 'true', undo: {python: {call: 'rooms:release'}}}]")

    with pytest.raises(Refused):
        rehearse(workflow, tmp_path)
