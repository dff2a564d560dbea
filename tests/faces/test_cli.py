"""The command line itself: what goes where, which exit code, and never a traceback."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.support.commands import mulligan
from tests.support.pipes import read_terminal

from mulligan import __version__
from mulligan.cli.output.internal_errors import bug
from mulligan.cli.output.terminal import exit_code_of, paint_error, wants_colour
from mulligan.cli.words.commands import COMMANDS
from mulligan.errors import IllegalTransition, LanguageError, Problem

SRC = Path(__file__).parent.parent.parent / "src"


def environment(**extra: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "MULLIGAN_DEBUG")}
    return inherited | {"PYTHONPATH": str(SRC), "TERM": "xterm"} | extra


def process(*arguments: str, **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "mulligan.cli.main", *arguments], env=environment(), **options)


# Version, help, start-up


def test_the_version_is_one_line_on_stdout():
    result = mulligan("--version")

    assert (result.code, result.out, result.err) == (0, f"mulligan {__version__}\n", "")


def test_help_lists_every_command_with_its_line():
    result = mulligan("--help")

    head, _, commands = result.out.partition("Commands:\n")
    assert result.code == 0
    assert (
        head
        == """\
Usage: mulligan [OPTIONS] COMMAND [ARGS]...

  Durable workflows in which failure is a first-class path.

Options:
  --version             Show the version and exit.
  --install-completion  Install completion for the current shell.
  --show-completion     Print the completion script of the current shell.
  -h, --help            Show this message and exit.

"""
    )
    wide = max(map(len, COMMANDS))
    assert commands.splitlines() == [f"  {name:<{wide}}  {summary}" for name, (_, summary) in COMMANDS.items()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded_and_has_help_of_its_own(name: str):
    result = mulligan(name, "-h")

    assert result.code == 0
    assert result.out.startswith(f"Usage: mulligan {name} ")
    assert " ".join(result.out.split()).count(COMMANDS[name][1]) == 1


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"worker", "demo", "dashboard", "mcp"}))
def test_every_command_that_answers_a_question_answers_as_json_too(name: str):
    result = mulligan(name, "-h")

    assert "--json" in result.out.split()


def loaded_by(heavy: tuple[str, ...], *arguments: str, cwd: Path) -> list[str]:
    """Which of the heavy modules a command line has loaded when it ends."""
    program = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(*(name for name in {heavy!r} if name in sys.modules), file=sys.stderr))\n"
        "from mulligan.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment(), cwd=cwd, capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_what_needs_no_workflow_loads_nothing_heavy(argument: str, tmp_path: Path):
    heavy = ("yaml", "rich", "cel", "cel_expr_python", "pydantic", "mulligan.language", "mulligan.core")

    assert loaded_by(heavy, argument, cwd=tmp_path) == []


def test_a_command_loads_only_what_it_needs(tmp_path: Path):
    (tmp_path / "hello.yaml").write_text("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")

    assert loaded_by(("rich", "pydantic", "urllib.request"), "validate", "--json", "hello.yaml", cwd=tmp_path) == []
    # Of a server, of what sends notices, of what few files need, and of what shows other things than a run.
    others = ("http.client", "ssl", "tomllib", "starlette", "prometheus_client", "mulligan.store.http.http_connection")
    rare = (
        "ast",
        "difflib",
        "subprocess",
        "typing_extensions",
        "mulligan.service.runs.changes.preview",
        "mulligan.service.runs.statistics.forecast",
    )
    assert set(loaded_by(others + rare, "run", "--json", "hello.yaml", cwd=tmp_path)) & {*others, *rare} == set()


def test_what_is_imported_bottom_up_works_as_if_it_had_been_imported_in_any_order():
    program = (
        "import re; compile_now = re.compile\n"
        "from mulligan.service.driving.import_order import import_in_order; import_in_order()\n"
        "from mulligan.language.text.yaml_library import import_yaml; import_yaml()\n"
        "import yaml; print(yaml.load('[1.5, 0x1F, 2024-01-31, yes, ~]', yaml.SafeLoader), re.compile is compile_now)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("[1.5, 31, datetime.date(2024, 1, 31), True, None] True\n", "")


def test_the_shell_completes_commands_without_loading_them():
    done = subprocess.run(
        [sys.executable, "-m", "mulligan.cli.main"],
        env=environment(_MULLIGAN_COMPLETE="complete_bash", COMP_WORDS="mulligan va", COMP_CWORD="1"),
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "validate\n", "")


# Bad usage


def test_without_a_command_the_help_goes_to_stderr_and_it_is_no_success():
    result = mulligan()

    assert (result.code, result.out) == (2, "")
    assert result.err == mulligan("--help").out


USAGE = {
    # a slip of the finger
    ("validat", "x.yaml"): "error[usage]: no such command 'validat'\n  did you mean 'mulligan validate'?\n",
    # a word of other programs
    ("status",): "error[usage]: no such command 'status'\n  did you mean 'mulligan show'?\n",
    ("stop", "1"): "error[usage]: no such command 'stop'\n  did you mean 'mulligan cancel'?\n",
    # an input without its option
    ("run", "x.yaml", "n=a b"): (
        "error[usage]: unexpected argument 'n=a b'\n  inputs are given with -i: mulligan run … -i 'n=a b'\n"
    ),
    # a step without its option
    ("retry", "1", "load"): (
        "error[usage]: unexpected argument 'load'\n  a step is given with --from: mulligan retry … --from load\n"
    ),
    # nothing like it
    ("zzz",): "error[usage]: no such command 'zzz'\n  see: mulligan --help\n",
    ("--bogus",): "error[usage]: no such option '--bogus'\n  options follow the command; see: mulligan --help\n",
    # an option that is nearly right, and one that belongs behind the command
    ("run", "--paralel", "2"): "error[usage]: no such option '--paralel'\n  did you mean '--parallel'?\n",
    ("--versoin",): "error[usage]: no such option '--versoin'\n  did you mean '--version'?\n",
    ("help", "run"): "error[usage]: no such command 'help'\n  did you mean 'mulligan --help'?\n",
    ("",): "error[usage]: no such command ''\n  see: mulligan --help\n",
    (
        "--home",
        "x",
        "list",
    ): "error[usage]: no such option '--home'\n  options follow the command; see: mulligan --help\n",
    ("validate",): "error[usage]: missing argument 'FILE...'\n  see: mulligan validate --help\n",
    ("convert",): "error[usage]: missing argument 'FILE'\n  see: mulligan convert --help\n",
}


@pytest.mark.parametrize(("arguments", "words"), USAGE.items(), ids=[" ".join(arguments) for arguments in USAGE])
def test_bad_usage_is_refused_in_our_words(arguments: tuple[str, ...], words: str):
    result = mulligan(*arguments)

    assert (result.code, result.out, result.err) == (2, "", words)


# What a command raises


def raising(error: BaseException) -> int:
    def act() -> None:
        raise error

    return exit_code_of(act)


def test_an_error_of_ours_is_rendered_and_gives_its_exit_code(capsys: pytest.CaptureFixture[str]):
    code = raising(LanguageError([Problem(code="language.x", message="it is odd", file="a.yaml")]))

    assert (code, *capsys.readouterr()) == (2, "", "error[language.x]: a.yaml: it is odd\n")


def test_a_forbidden_turn_is_exit_code_1(capsys: pytest.CaptureFixture[str]):
    code = raising(IllegalTransition("a completed step cannot fail"))

    assert (code, *capsys.readouterr()) == (1, "", "error[internal.unlawful]: a completed step cannot fail\n")


def test_an_unforeseen_exception_names_the_place_and_shows_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MULLIGAN_DEBUG", raising=False)

    code = raising(KeyError("x"))

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert re.fullmatch(
        r"error\[internal\.bug\]: KeyError: 'x' \(mulligan/cli/output/terminal\.py:\d+\)\n"
        r"  this is a bug in Mulligan; MULLIGAN_DEBUG=1 shows the traceback\n",
        err,
    )


def test_the_traceback_of_a_bug_is_shown_to_who_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MULLIGAN_DEBUG", "1")

    raising(KeyError("x"))

    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == "Traceback (most recent call last):"
    assert lines[-1] == "KeyError: 'x'"


def test_a_machine_that_says_no_is_no_bug_of_ours(capsys: pytest.CaptureFixture[str]):
    code = raising(OSError(28, "No space left on device", "out.svg"))

    assert (code, *capsys.readouterr()) == (1, "", "error[system]: out.svg: no space left on device\n")


def test_an_exception_without_words_or_place_is_told_too():
    assert bug(RuntimeError()).render().splitlines()[0] == "error[internal.bug]: RuntimeError (nowhere)"


# Streams


@pytest.mark.parametrize("argument", ["schema", "--help", "--version"])
def test_a_reader_that_goes_away_ends_the_program_in_silence(argument: str):
    reading, writing = os.pipe()
    os.close(reading)

    child = process(argument, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, said = child.communicate(timeout=60)

    assert (child.returncode, said) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_told_in_words():
    with open("/dev/full", "wb") as full:
        child = process("--version", stdout=full, stderr=subprocess.PIPE)
        _, said = child.communicate(timeout=60)

    assert (child.returncode, said) == (1, b"error[system]: no space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_refusal_that_cannot_be_told_has_its_exit_code_all_the_same(tmp_path: Path):
    with open("/dev/full", "wb") as full:
        child = process("validate", str(tmp_path / "none.yaml"), stdout=subprocess.PIPE, stderr=full)
        out, _ = child.communicate(timeout=60)

    assert (child.returncode, out) == (2, b"")


def test_a_refusal_that_nobody_reads_has_its_exit_code_all_the_same(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)

    child = process("validate", str(tmp_path / "none.yaml"), stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    out, _ = child.communicate(timeout=60)

    assert (child.returncode, out) == (2, b"")


def test_an_interrupt_is_exit_code_130(tmp_path: Path):
    pipe = tmp_path / "slow.yaml"
    os.mkfifo(pipe)

    # Who runs the tests in the background of a shell has SIGINT ignored, and children inherit that.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    child = process("validate", str(pipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heard)
    # Opening waits until the other side reads: from here on the program waits for us.
    with pipe.open("w"):
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=60)

    assert (child.returncode, out, said) == (130, b"", b"interrupted\n")


def told_on_a_terminal(tmp_path: Path, **extra: str) -> str:
    """What `validate` of a missing file says when stderr is a terminal."""
    ours, theirs = os.openpty()
    subprocess.run(
        [sys.executable, "-m", "mulligan.cli.main", "validate", "missing.yaml"],
        env=environment(**extra),
        cwd=tmp_path,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    return read_terminal(ours).decode().replace("\r\n", "\n")


def test_errors_are_coloured_on_a_terminal(tmp_path: Path):
    assert told_on_a_terminal(tmp_path) == (
        "\033[1;31merror[language.unreadable]:\033[0m missing.yaml: there is no such file\n"
    )


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_terminal_whose_owner_wants_no_colour_gets_none(tmp_path: Path, extra: dict[str, str]):
    assert told_on_a_terminal(tmp_path, **extra) == "error[language.unreadable]: missing.yaml: there is no such file\n"


def test_a_file_or_pipe_never_gets_colour():
    assert not wants_colour(io.StringIO(), {"TERM": "xterm"})


def test_paint_marks_the_head_and_the_carets_and_leaves_the_words():
    plain = (
        "error[language.x]: a.yaml:14:13: no\n"
        "  14 |     needs: [fetchh]\n"
        "     |             ^^^^^^ did you mean 'fetch'?"
    )

    coloured = paint_error(plain)

    assert coloured == (
        "\033[1;31merror[language.x]:\033[0m a.yaml:14:13: no\n"
        "  14 |     needs: [fetchh]\n"
        "     | \033[1m            ^^^^^^ did you mean 'fetch'?\033[0m"
    )


def test_the_package_itself_can_be_run():
    child = subprocess.run([sys.executable, "-m", "mulligan", "--version"], capture_output=True, text=True, timeout=60)

    assert (child.returncode, child.stdout, child.stderr) == (0, f"mulligan {__version__}\n", "")


@pytest.mark.parametrize(("words", "collects"), [((), True), (("--version",), True), (("show", "--help"), False)])
def test_a_process_collects_garbage_unless_its_command_reads_a_run_and_ends(
    words: tuple[str, ...], collects: bool
) -> None:
    # As the entry point does, before it imports anything.
    gc.disable()
    try:
        code = mulligan(*words).code

        assert (gc.isenabled(), code) == (collects, 0 if words else 2)
    finally:
        gc.enable()
        gc.unfreeze()
