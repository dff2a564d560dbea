"""The command `nl2sql`: questions on the command line, answers with a receipt, and exit codes that agree."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from mulligan import Home, StepError
from mulligan_nl2sql import __version__
from mulligan_nl2sql.asking.answers import EXIT_INTERRUPTED, EXIT_USAGE, Answer, Problem, Status
from mulligan_nl2sql.asking.indexes import make_indexes, show_indexes
from mulligan_nl2sql.asking.inspections import diagnose, read_permissions, show_diagnosis, show_permissions
from mulligan_nl2sql.asking.questions import Interrupted, ask, read_question, resume
from mulligan_nl2sql.asking.shown_answers import printable, show_answer, show_problem
from mulligan_nl2sql.benchmark import measuring
from mulligan_nl2sql.benchmark.case_files import read_benchmark
from mulligan_nl2sql.benchmark.reports import Bars, Report
from mulligan_nl2sql.benchmark.shown_reports import show_report, show_report_problem
from mulligan_nl2sql.database_urls import KNOWN
from mulligan_nl2sql.failures import Code
from mulligan_nl2sql.indexing.kept_indexes import FOLDER, utc_now
from mulligan_nl2sql.planning.find_planner import DEFAULT, NAMES

# What the user gave is wrong; any other code says that the database is.
_WRONG_USAGE = frozenset(
    {"QUESTION_INVALID", "BENCHMARK_INVALID", "INPUT_INVALID", Code.URL_INVALID.value, Code.POLICY_INVALID.value}
)
_EXIT_PIPE_CLOSED = 141
_LOADING_SECONDS_MAX = 5.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_EXITS = """\
exit codes: 0 answered, 1 failed, 2 wrong usage, 3 the planner refused, 4 a part of the answer is missing,
  5 a benchmark is below its bar, 124 the deadline has passed, 130 interrupted
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"error: {message}\n  nl2sql --help shows how it is used\n")


class _StdoutFailed(Exception):
    """Why stdout cannot be written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code. A user never sees a traceback.

    Without `arguments` this is the program itself: its deadline counts from the start of the process, and it ends
    without unloading its modules, which takes a tenth of a second.
    """
    started = time.monotonic() - (_seconds_since_start() if arguments is None else 0.0)
    options = _parser().parse_args(arguments)
    if options.deadline is not None:
        options.deadline += started
    try:
        code = _answer(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
        code = _EXIT_PIPE_CLOSED
    except _StdoutFailed as failed:
        _discard_stdout()
        print(f"error: stdout cannot be written: {failed}", file=sys.stderr)
        code = 1
    if arguments is None:
        sys.stderr.flush()
        os._exit(code)
    return code


def _discard_stdout() -> None:
    """Nothing is left to be flushed at the end of Python then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _seconds_since_start() -> float:
    """How long this process has existed: Python has taken a while to load what it needs.

    Not for ever: a script that waits for something and ends with `exec nl2sql` is the same process.
    """
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        # Behind the name of the program, which may contain anything, in clock ticks since the machine was started.
        ticks = int(file.read().rpartition(")")[2].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return min(max(0.0, seconds), _LOADING_SECONDS_MAX)


def _answer(options: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except StepError as refused:
        return _reject(options, _problem(refused), EXIT_USAGE if refused.code in _WRONG_USAGE else 1)
    except Interrupted as interrupted:
        print(f"interrupted\n  to let it go on: {_how_to_resume(options, interrupted.run)}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted before anything was started", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, _StdoutFailed):
        raise
    except Exception as error:
        return _reject(options, *_explain(error))


def _problem(refused: StepError) -> Problem:
    return Problem(
        code=refused.code,
        message=refused.message,
        severity=refused.severity or "error",
        retryable=bool(refused.retryable),
        details=refused.details,
    )


def _explain(error: Exception) -> tuple[Problem, int]:
    """An error of the engine has a code, a message and a hint. Any other is a mistake of this program."""
    code, message, hint = (getattr(error, name, "") for name in ("code", "message", "hint"))
    if isinstance(code, str) and code and message:
        exit_code = getattr(error, "exit_code", 1)
        return Problem(code=code, message=f"{message}{f'; {hint}' if hint else ''}"), exit_code
    said = f"{type(error).__name__}: {error}"
    return Problem(code="INTERNAL", message=f"this is a mistake in nl2sql, please report it: {said}"), 1


def _show(answer: Answer, options: argparse.Namespace) -> int:
    if options.json:
        _print([_as_json(answer)])
        return answer.exit_code
    _print(show_answer(answer))
    for line in show_problem(answer, _how_to_resume(options, answer.run)):
        print(line, file=sys.stderr)
    return answer.exit_code


def _how_to_resume(options: argparse.Namespace, run: int | None) -> str:
    return f"nl2sql resume {run}{f' --home {shlex.quote(options.home)}' if options.home else ''}"


def _print(lines: Iterable[str]) -> None:
    """Print to stdout."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _StdoutFailed((error.strerror or str(error)).lower()) from None


def _reject(options: argparse.Namespace, problem: Problem, exit_code: int) -> int:
    """Say why nothing was asked."""
    if options.json:
        question = getattr(options, "question", "")
        answer = Answer(status=Status.FAILED, exit_code=exit_code, question=question, failure=problem)
        _print([_as_json(answer)])
    else:
        print(f"error[{problem.code}]: {printable(problem.message)}", file=sys.stderr)
    return exit_code


def _as_json(shown: msgspec.Struct) -> str:
    return json.dumps(msgspec.to_builtins(shown), indent=2, ensure_ascii=False)


def _ask(options: argparse.Namespace) -> int:
    question = read_question(
        options.question,
        options.db,
        policy=options.policy,
        planner=options.planner,
        execute=not options.no_exec,
        strict=options.strict,
    )
    with Home(options.home) as home:
        return _show(ask(question, home, deadline=options.deadline), options)


def _resume(options: argparse.Namespace) -> int:
    with Home(options.home) as home:
        run = home.get(options.number)
        if run.workflow == measuring.WORKFLOW:
            return _show_report(measuring.resume_benchmark(run, deadline=options.deadline), options)
        return _show(resume(run, deadline=options.deadline), options)


def _benchmark(options: argparse.Namespace) -> int:
    benchmark = read_benchmark(Path(options.file), options.db or ())
    with Home(options.home) as home:
        report = measuring.measure(
            benchmark,
            home,
            planners=options.planner or (DEFAULT,),
            policy=options.policy,
            parallel=options.parallel,
            bars=Bars(min_right_percent=options.min, max_wrong=options.max_wrong),
            deadline=options.deadline,
        )
        return _show_report(report, options)


def _show_report(report: Report, options: argparse.Namespace) -> int:
    if options.json:
        _print([_as_json(report)])
        return report.exit_code
    _print(show_report(report))
    for line in show_report_problem(report, _how_to_resume(options, report.run)):
        print(line, file=sys.stderr)
    return report.exit_code


def _index(options: argparse.Namespace) -> int:
    with Home(options.home) as home:
        folder = home.folder.absolute() / FOLDER
    report = make_indexes(options.db, options.policy, folder, utc_now())
    _print([_as_json(report)] if options.json else show_indexes(report))
    return report.exit_code


def _policy(options: argparse.Namespace) -> int:
    permissions = read_permissions(options.db, options.policy)
    _print([_as_json(permissions)] if options.json else show_permissions(permissions))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    diagnosis = diagnose(options.db, options.policy, options.planner)
    _print([_as_json(diagnosis)] if options.json else show_diagnosis(diagnosis))
    return 0 if diagnosis.is_usable else 1


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < 1e7:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration, such as 500ms, 30s, 2m or 1h")
    return seconds


def _number(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number of at least {least}")
    return int(text)


def _percent(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?%?", text) or float(text.rstrip("%")) > 100:
        raise argparse.ArgumentTypeError(f"'{text}' is no percentage, such as 95 or 99.5%")
    return float(text.rstrip("%"))


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="nl2sql", description="Ask a database a question.", epilog=_EXITS, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"nl2sql {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=about, epilog=_EXITS, formatter_class=form)
        command.add_argument("--json", action="store_true", help="print it as JSON")
        command.set_defaults(run=run, deadline=None, home=None)
        return command

    asked = add("ask", _ask, "answer a question, with a receipt")
    asked.add_argument("question", metavar="QUESTION")
    asked.add_argument("--no-exec", action="store_true", help="check and bound the SQL, and do not execute it")
    whole = asked.add_mutually_exclusive_group()
    whole.add_argument("--strict", action="store_true", help="fail if any part of the answer is missing")
    whole.add_argument(
        "--partial", action="store_false", dest="strict", help="answer what can be answered, with a warning (default)"
    )
    resumed = add("resume", _resume, "let a question go on that was interrupted, or show its answer again")
    resumed.add_argument("number", metavar="RUN", help="the number of its run, or 'latest'")
    indexed = add("index", _index, "read databases, and keep that for later questions of the same home")
    permitted = add("policy", _policy, "show what may be read")
    examined = add("doctor", _doctor, "look at what protects a database, and whether it can be asked")

    measured = add("benchmark", _benchmark, "ask the questions of a file, and count how many answers are right")
    measured.add_argument("file", metavar="FILE", help="questions and what is expected of each (TOML)")
    measured.add_argument(
        "--planner", action="append", metavar="NAME", help=f"who writes the SQL (repeatable; default: {DEFAULT})"
    )
    measured.add_argument(
        "--parallel",
        type=partial(_number, least=1),
        default=measuring.PARALLEL,
        metavar="N",
        help=f"how many questions at a time (default: {measuring.PARALLEL})",
    )
    measured.add_argument(
        "--min", type=_percent, metavar="PERCENT", help="exit code 5 if fewer answers of a planner are right"
    )
    measured.add_argument(
        "--max-wrong", type=partial(_number, least=0), metavar="N", help="exit code 5 if more of them are wrong"
    )
    measured.add_argument("--db", action="append", metavar="[NAME=]URL", help="instead of a database of the file")

    for command in (asked, indexed, permitted, examined):
        several = {"action": "append"} if command in (asked, indexed) else {}
        command.add_argument("--db", required=True, metavar="[NAME=]URL", help=f"such as {KNOWN}", **several)
    for command in (asked, indexed, permitted, examined, measured):
        command.add_argument(
            "--policy", default="", metavar="FILE", help="what may be read (TOML); all tables without it"
        )
    for command in (asked, examined):
        command.add_argument(
            "--planner",
            default=DEFAULT,
            metavar="NAME",
            help=f"who writes the SQL: {', '.join(NAMES)}, or an agent whose command is $MULLIGAN_AGENT_NAME "
            f"(default: {DEFAULT})",
        )
    for command in (asked, resumed, measured):
        command.add_argument(
            "--deadline", type=_duration, metavar="TIME", help="stop then, such as 30s; it can be resumed"
        )
    for command in (asked, resumed, indexed, measured):
        command.add_argument(
            "--home", metavar="FOLDER", help="where runs are kept (default: $MULLIGAN_HOME or .mulligan)"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
