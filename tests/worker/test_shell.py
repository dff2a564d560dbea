"""Shell tasks: what they are given, what they give, and how their end is read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded


def code_of(report: TaskEnded) -> str:
    failure, _ = classify(report.outcome)
    return failure.code if failure else ""


# -- how it ended ----------------------------------------------------------------------------------------------------


def test_a_command_that_ends_well_has_nothing_wrong_and_its_output_without_the_last_newline(work: Work) -> None:
    report = work.run_shell("echo hello; echo there")

    assert (report.outcome, report.output) == (Outcome(), "hello\nthere")


def test_what_was_used_is_told(work: Work) -> None:
    usage = work.run_shell("true").usage

    assert list(usage) == ["started", "ended", "wall_seconds", "cpu_seconds", "peak_memory"]
    assert usage["started"] <= usage["ended"]
    assert usage["wall_seconds"] > 0
    assert usage["peak_memory"] > 0


@pytest.mark.parametrize("code", [1, 3, 127, 255])
def test_an_exit_code_is_what_it_is(work: Work, code: int) -> None:
    outcome = work.run_shell(f"echo no >&2; exit {code}").outcome

    assert outcome == Outcome(exit_code=code, stderr_tail="no\n")


def test_what_it_printed_is_told_where_it_failed_and_stderr_is_empty(work: Work) -> None:
    silent, loud, well = (work.run_shell(text) for text in ("echo why; exit 2", "echo a; echo b >&2; exit 2", "echo a"))

    assert [report.outcome.stdout_tail for report in (silent, loud, well)] == ["why\n", "", ""]


@pytest.mark.parametrize("signal", [6, 9, 11, 15])
def test_death_by_a_signal_is_told_as_such(work: Work, signal: int) -> None:
    outcome = work.run_shell(f"kill -{signal} $$").outcome

    assert (outcome.exit_code, outcome.signal) == (None, signal)


def test_a_program_that_is_not_there_ends_as_the_shell_says(work: Work) -> None:
    outcome = work.run_shell("no-such-program a b").outcome

    assert outcome == Outcome(exit_code=127, stderr_tail="bash: line 1: no-such-program: command not found\n")


@pytest.mark.parametrize("interpreter", ["no-such-shell", "/no/such/shell"])
def test_a_shell_that_is_not_there_ends_as_a_shell_would_say(work: Work, interpreter: str) -> None:
    outcome = work.run_shell("true", interpreter=interpreter).outcome

    assert outcome == Outcome(exit_code=127, stderr_tail=f"{interpreter}: command not found")


def test_the_path_of_a_shell_is_relative_to_where_run_was_called(work: Work) -> None:
    (work.folder / "mine").write_text('#!/bin/sh\nprintf "%s:" "$@"')
    (work.folder / "mine").chmod(0o755)

    assert work.run_shell("what to do", interpreter="./mine", cwd="/").output == "-c:what to do:"


def test_a_shell_that_cannot_be_executed_is_126(work: Work) -> None:
    (work.folder / "plain").write_text("no program")

    plain = str(work.folder / "plain")

    outcome = work.run_shell("true", interpreter=plain).outcome

    assert outcome == Outcome(exit_code=126, stderr_tail=f"'{plain}' cannot be executed: permission denied")


def test_another_shell_reads_the_text(work: Work) -> None:
    assert work.run_shell("echo $0", interpreter="sh").output == "sh"


@pytest.mark.parametrize("text", ["false\necho on", "echo $not_set\necho on", "false | cat\necho on"])
def test_strict_text_stops_at_the_first_command_that_fails(work: Work, text: str) -> None:
    strict, lenient = work.run_shell(text, strict=True), work.run_shell(text)

    assert (strict.outcome.exit_code, strict.output) == (1, None)
    assert (lenient.outcome.exit_code, lenient.output.strip()) == (0, "on")


def test_sh_is_strict_as_far_as_it_can_be(work: Work) -> None:
    failed, unset = (
        work.run_shell(f"{text}; echo on", interpreter="sh", strict=True) for text in ("false", "echo $no")
    )

    assert (failed.outcome.exit_code, unset.outcome.exit_code) == (1, 2)


def test_a_value_that_is_null_is_an_empty_variable_to_a_strict_shell(work: Work) -> None:
    assert work.run_shell('echo "<${_x}>"', strict=True, env={"_x": None}).output == "<>"


def test_a_task_finds_who_it_is_in_its_environment(work: Work) -> None:
    lease = work.shell(
        # Without the variable that has the tests of the night run.
        "env -0 | grep -z ^MULLIGAN_ | grep -zv ^MULLIGAN_NIGHTLY= | sort -z | tr '\\0' '\\n'",
        place="build[3].script@2",
        step="build",
        attempt=4,
        env_attempt=2,
        visit=5,
        item=3,
        error_code="TIMEOUT",
        return_code=9,
        context="what happened",
        tries=1,
    )

    found = dict(line.split("=", 1) for line in work.run(lease).output.split("\n"))

    side = f"{work.home}/workers/{work.name}/1"
    assert found == {
        "MULLIGAN_RUN_ID": "7",
        "MULLIGAN_WORKFLOW": "nightly",
        "MULLIGAN_STEP": "build",
        "MULLIGAN_ITEM": "3",
        "MULLIGAN_VISIT": "5",
        "MULLIGAN_ATTEMPT": "2",
        "MULLIGAN_RETRY": "1",
        "MULLIGAN_ERROR_CODE": "TIMEOUT",
        "MULLIGAN_RETURN_CODE": "9",
        "MULLIGAN_OUTPUT_DIR": f"{work.home}/runs/7/output",
        "MULLIGAN_OUTPUT": f"{side}.output",
        "MULLIGAN_ERROR": f"{side}.error",
        "MULLIGAN_PROGRESS": f"{side}.progress",
        "MULLIGAN_ARTIFACTS": f"{side}.artifacts",
        "MULLIGAN_DATA": f"{side}.data",
        "MULLIGAN_DATA_SET": f"{side}.data_set",
        "MULLIGAN_FAILURE_CONTEXT": f"{side}.context",
        "MULLIGAN_FENCE": "1",
        "MULLIGAN_IDEMPOTENCY_KEY": "7:build[3].script@2:5",
        "MULLIGAN_CPUS": "1",
        "MULLIGAN_WORKER": work.name,
        "MULLIGAN_CACHE": os.environ["MULLIGAN_CACHE"],
    }


def test_the_failure_context_is_a_file_while_the_task_runs(work: Work) -> None:
    report = work.run_shell('cat "$MULLIGAN_FAILURE_CONTEXT"', context="it broke\u2026\n")

    assert report.output == "it broke\u2026"
    assert not list(work.home.rglob("*.context"))


def test_the_output_folder_is_there_and_the_same_for_all_of_a_run(work: Work) -> None:
    work.run_shell('echo kept > "$MULLIGAN_OUTPUT_DIR/a"')

    assert work.run_shell('cat "$MULLIGAN_OUTPUT_DIR/a"').output == "kept"


HOSTILE = "$(touch here); `id` \"'\\ \n* \u202e é 🎲 \x7f\x1b"


def test_values_arrive_as_they_are_whatever_is_in_them(work: Work) -> None:
    env = {"a": HOSTILE, "b": None, "c": 1.5, "d": {"x": [1, True]}}

    report = work.run_shell('printf "%s|" "$a" "$b" "$c" "$d"', env=env)

    assert report.output == f'{HOSTILE}||1.5|{{"x":[1,true]}}|'
    assert os.listdir(work.folder) == []


def test_a_value_with_a_nul_is_refused_before_anything_starts(work: Work) -> None:
    outcome = work.run_shell("touch here", env={"a": "x\0y"}).outcome

    assert outcome == Outcome(
        exit_code=None,
        code="INPUT_INVALID",
        message="the value of 'a' has a NUL, which no environment variable can hold;"
        " pass it with 'stdin:', or write it to a file and pass the name of the file",
    )
    assert os.listdir(work.folder) == []


def test_a_text_with_a_nul_is_refused(work: Work) -> None:
    outcome = work.run_shell("echo a\0b").outcome

    assert outcome == Outcome(exit_code=None, code="INPUT_INVALID", message="it cannot be started: embedded null byte")


@pytest.mark.parametrize(
    ("kind", "params", "fields"),
    [
        ("shell", {"text": "true", "stdin": "\ud800"}, {}),
        ("shell", {"text": "true"}, {"context": "\ud800"}),
        ("python", {"code": "def main(x): pass", "args": {"x": "\ud800"}}, {}),
    ],
)
def test_half_of_a_character_is_refused(
    work: Work, kind: str, params: dict[str, object], fields: dict[str, object]
) -> None:
    outcome = work.run(work.lease(kind, params, **fields)).outcome

    message = "a value contains a lone surrogate, which no process can be given"
    assert outcome == Outcome(exit_code=None, code="INPUT_INVALID", message=message)
    assert work.run_shell("echo fine").output == "fine"


def test_values_that_are_too_large_together_are_refused(work: Work) -> None:
    env = {f"v{number}": "x" * 90_000 for number in range(100)}

    outcome = work.run_shell("true", env=env).outcome

    assert outcome == Outcome(
        exit_code=None,
        code="INPUT_INVALID",
        message="its text and its values together are too large to start a process with",
    )


@pytest.mark.parametrize("given", ["", "one\ntwo", HOSTILE, "x" * 300_000, {"a": [1, None]}])
def test_standard_input_is_what_was_given(work: Work, given: object) -> None:
    report = work.run_shell("cat; echo .", stdin=given)

    assert report.output == ('{"a":[1,null]}' if isinstance(given, dict) else given) + "."
    assert not list(work.home.rglob("*.stdin"))


def test_without_one_standard_input_is_empty(work: Work) -> None:
    assert work.run_shell("cat; readlink /proc/self/fd/0").output == "/dev/null"


def test_a_task_that_reads_none_of_a_large_input_ends_all_the_same(work: Work) -> None:
    assert work.run_shell("echo done", stdin="x" * 1_000_000).output == "done"


def test_a_task_gets_no_descriptor_but_its_three(work: Work) -> None:
    # `ls` itself opens the folder it lists.
    assert work.run_shell("bash -c 'ls /proc/$$/fd; :'").output == "0\n1\n2"


def test_a_pipe_that_nobody_reads_ends_the_writer(work: Work) -> None:
    assert work.run_shell("yes | head -1; echo ${PIPESTATUS[0]}").output == "y\n141"


# -- where it runs ---------------------------------------------------------------------------------------------------


def test_a_task_runs_where_run_was_called(work: Work) -> None:
    assert work.run_shell("/bin/pwd").output == str(work.folder)


def test_a_folder_of_its_own_is_relative_to_that(work: Work) -> None:
    (work.folder / "a b").mkdir()

    assert work.run_shell("/bin/pwd", cwd="a b").output == f"{work.folder}/a b"
    assert work.run_shell("/bin/pwd", cwd="/").output == "/"


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_folder_that_is_not_there_is_refused_and_the_next_task_runs(work: Work, kind: str) -> None:
    params = {"text": "true", "code": "def main(): return 1"}

    outcome = work.run(work.lease(kind, params, cwd="gone")).outcome

    assert outcome == Outcome(
        exit_code=None,
        code="INPUT_INVALID",
        message=f"the folder '{work.folder}/gone' cannot be entered: no such file or directory",
    )
    assert work.run(work.lease(kind, params)).outcome == Outcome()


# -- what it gives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "capture", "output"),
    [
        ("true", "text", ""),
        ("printf 'a\\n\\n'", "text", "a\n"),
        # not UTF-8: what cannot be read is shown as such
        ("printf 'a\\xff\\x00b'", "text", "a\ufffd\0b"),
        ("true", "lines", []),
        ("printf 'a\\nb'", "lines", ["a", "b"]),
        ("printf 'a\\n\\nb\\n'", "lines", ["a", "", "b"]),
        # only a newline ends a line
        ("printf 'a\\x0bb\\u2028c\\rd\\n'", "lines", ["a\x0bb\u2028c\rd"]),
        ("echo ' {\"a\": [1, null]} '", "json", {"a": [1, None]}),
        ("echo 12", "json", 12),
    ],
)
def test_standard_output_is_captured_as_was_asked(work: Work, text: str, capture: str, output: object) -> None:
    report = work.run_shell(text, capture=capture, env={"LC_ALL": "C.UTF-8"})

    assert (report.outcome, report.output) == (Outcome(), output)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("true", "its standard output is not JSON: it is empty"),
        ("echo NaN", "its standard output is not JSON: JSON is malformed: invalid character (byte 0)"),
        ("echo '[1,]'", "its standard output is not JSON: JSON is malformed: trailing comma in array (byte 3)"),
        ("echo 1e999", "its standard output is not JSON: Number out of range"),
        ("echo '\"\\ud800 \"'", None),
        ("printf '\"\\xff\"'", None),
        ("printf '[%.0s' {1..100000}", None),
    ],
)
def test_what_is_not_json_is_an_invalid_output(work: Work, text: str, problem: str | None) -> None:
    report = work.run_shell(text, capture="json")

    assert (code_of(report), report.output) == ("OUTPUT_INVALID", None)
    if problem is not None:
        assert report.outcome == Outcome(output_error=problem)


def test_json_in_the_output_file_wins(work: Work) -> None:
    report = work.run_shell("""echo text; echo '{"a": 1}' > "$MULLIGAN_OUTPUT" """)

    assert report.output == {"a": 1}
    assert not list(work.home.rglob("*.output"))


def test_an_output_file_that_is_not_json_is_invalid_and_no_later_task_sees_it(work: Work) -> None:
    report = work.run_shell('echo "{" > "$MULLIGAN_OUTPUT"')
    after = work.run_shell("echo fine")

    assert report.outcome == Outcome(output_error="$MULLIGAN_OUTPUT is not JSON: Input data was truncated")
    assert after.output == "fine"


def test_what_a_failed_task_left_in_its_files_no_later_task_sees(work: Work) -> None:
    work.run_shell('echo 1 > "$MULLIGAN_OUTPUT"; echo \'{"code": "MINE"}\' > "$MULLIGAN_ERROR"; exit 1')

    report = work.run_shell("echo fine")

    assert (report.outcome, report.output) == (Outcome(), "fine")


def test_a_large_output_comes_whole(work: Work) -> None:
    report = work.run_shell("head -c 5000000 /dev/zero | tr '\\0' x")

    assert report.output == "x" * 5_000_000


def test_text_beyond_the_bound_is_no_output_and_the_step_is_told_so(work: Work) -> None:
    report = work.run_shell("truncate -s 101M /dev/stdout")

    assert (code_of(report), report.output) == ("", None)
    assert report.outcome == Outcome(
        output_warning="its standard output has 105,906,176 bytes; the limit is 67,108,864; "
        "it was not kept, and the log has all of it",
        output_bytes=105_906_176,
    )


@pytest.mark.parametrize("capture", ["json", "lines"])
def test_what_was_asked_for_and_is_beyond_the_bound_is_invalid(work: Work, capture: str) -> None:
    report = work.run_shell("truncate -s 101M /dev/stdout", capture=capture)

    assert (code_of(report), report.output) == ("OUTPUT_INVALID", None)
    assert report.outcome == Outcome(output_error="its standard output has 105,906,176 bytes; the limit is 67,108,864")


def test_the_tail_of_standard_error_is_bounded_and_never_breaks(work: Work) -> None:
    outcome = work.run_shell(
        "printf 'é%.0s' {1..5000} >&2; printf '\\xff' >&2; exit 1", env={"LC_ALL": "C.UTF-8"}
    ).outcome

    assert outcome.stderr_tail == "é" * 1999 + "\ufffd"
    assert outcome.stderr_head == "é" * 3000


@pytest.mark.parametrize(
    ("size", "head", "left_out"), [(1999, 0, 0), (2000, 0, 0), (4000, 2000, 0), (9000, 3000, 4000)]
)
def test_the_beginning_of_a_long_standard_error_is_kept_too(work: Work, size: int, head: int, left_out: int) -> None:
    outcome = work.run_shell(f"printf 'x%.0s' {{1..{size}}} >&2; exit 1").outcome

    found = len(outcome.stderr_head), len(outcome.stderr_tail), outcome.stderr_left_out
    assert found == (head, min(size, 2000), left_out)


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ('{"code": "MINE", "message": "no"}', ({"code": "MINE", "message": "no"},)),
        ('[{"code": "A"}, {"code": "B"}]', ({"code": "A"}, {"code": "B"})),
        ('"only a text"', ("only a text",)),
        ("", ()),
        ("[]", ()),
    ],
)
def test_errors_that_a_task_writes_are_its_own_word(work: Work, written: str, reported: tuple[object, ...]) -> None:
    report = work.run_shell('printf %s "$e" > "$MULLIGAN_ERROR"', env={"e": written})

    assert report.outcome == Outcome(reported=reported)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('echo "{" > "$MULLIGAN_ERROR"', "is not JSON: Input data was truncated"),
        ('head -c 70000 /dev/zero > "$MULLIGAN_ERROR"', "has 70,000 bytes; the limit is 65,536"),
        ('mkdir "$MULLIGAN_ERROR"', "is a folder, not a file"),
    ],
)
def test_errors_that_cannot_be_read_are_told(work: Work, text: str, problem: str) -> None:
    assert work.run_shell(text).outcome == Outcome(report_error=problem)


def test_a_warning_fails_nothing_and_the_output_counts(work: Work) -> None:
    report = work.run_shell("""echo fine; echo '{"code": "OLD", "severity": "warning"}' > "$MULLIGAN_ERROR" """)

    assert (code_of(report), report.output) == ("", "fine")


def test_declared_files_that_are_missing_after_a_good_end_are_told(work: Work) -> None:
    files = {"mesh": "out/mesh.vtk", "log": "a.log", "other": str(work.folder / "other")}

    report = work.run_shell("touch a.log other", files=files)

    assert report.outcome == Outcome(missing_outputs=("mesh",))


def test_after_a_bad_end_nobody_asks_for_files(work: Work) -> None:
    assert work.run_shell("exit 2", files={"mesh": "mesh"}).outcome == Outcome(exit_code=2)


# -- logs ------------------------------------------------------------------------------------------------------------


def test_logs_have_the_name_of_the_attempt(work: Work) -> None:
    lease = work.shell("echo out; echo err >&2", place="check[3].0", attempt=2)

    work.run(lease)

    assert work.log(lease) == work.home / "runs/7/logs/check[3].0#2.out"
    assert work.log(lease).read_text() == "out\n"
    assert work.log(lease, "err").read_text() == "err\n"


def test_a_task_that_says_nothing_has_no_logs(work: Work) -> None:
    work.run_shell("true")

    assert list((work.home / "runs/7/logs").iterdir()) == []


def test_a_log_can_be_read_while_the_task_runs(work: Work, announcements: Announcements) -> None:
    lease = work.shell(f"echo first; read line < {work.folder}/go; echo $line")
    os.mkfifo(work.folder / "go")
    work.start(lease)

    seen = work.wait_for(lambda: work.log(lease).exists() and work.log(lease).read_text())
    (work.folder / "go").write_text("second\n")
    (report,) = work.reports()

    assert seen == "first\n"
    assert isinstance(report, TaskEnded)
    assert report.output == "first\nsecond"
    assert work.log(lease).read_text() == "first\nsecond\n"


@pytest.mark.parametrize("place", ["../../up", "a/b", "..", "", ".hidden", "é\n🎲", "x" * 500])
def test_no_name_of_a_place_leads_out_of_the_folder(work: Work, place: str) -> None:
    lease = work.shell("echo said", place=place, step="a")

    assert work.run(lease).outcome == Outcome()

    (log,) = (work.home / "runs/7/logs").iterdir()
    assert log == work.log(lease)
    assert log.read_text() == "said\n"


def test_two_long_names_are_two_files(work: Work) -> None:
    one, other = work.shell("echo 1", place="x" * 300 + "a"), work.shell("echo 2", place="x" * 300 + "b")

    work.run(one)
    work.run(other)

    assert (work.log(one).read_text(), work.log(other).read_text()) == ("1\n", "2\n")


def test_a_home_that_cannot_be_written_is_told_and_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file in its place")
    work = Work(tmp_path)

    outcome = work.run_shell("true").outcome

    assert outcome == Outcome(exit_code=None, code="EXCEPTION", message="its files cannot be written: not a directory")
    work.close()


def test_a_task_that_is_slow_to_start_keeps_all_that_it_writes(work: Work) -> None:
    work.run_shell("true")
    lease = work.shell("echo said; echo complained >&2")
    os.kill(work.executor._supervisor.pid, signal.SIGSTOP)

    work.start(lease)
    work.wait_for(lambda: work.log(lease).exists())
    os.kill(work.executor._supervisor.pid, signal.SIGCONT)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert (report.output, work.log(lease).read_text()) == ("said", "said\n")
    assert work.log(lease, "err").read_text() == "complained\n"


def test_what_one_task_wrote_is_not_in_the_log_of_the_next(work: Work) -> None:
    first = work.shell("read -r word < go; echo $word")
    os.mkfifo(work.folder / "go")
    work.start(first)
    work.wait_for(lambda: work.log(first).exists())
    (work.folder / "go").write_text("first\n")
    work.reports()

    second = work.shell("echo second")
    report = work.run(second)

    assert (report.output, work.log(first).read_text(), work.log(second).read_text()) == (
        "second",
        "first\n",
        "second\n",
    )
