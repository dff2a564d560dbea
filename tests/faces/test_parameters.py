"""Words in order are read without Typer, and mean what they mean to Typer; all others are left to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from mulligan.cli.commands import COMMANDS, load
from mulligan.cli.parameters import Argument, Option, arguments
from mulligan.cli.parser import as_typer_has_it

from .commands import SRC


def sample(
    file: Annotated[Path, Argument(metavar="FILE", help="A file.")],
    number: Annotated[int | None, Argument(metavar="N", help="A number.")] = None,
    names: Annotated[list[str] | None, Option("--name", "-n", metavar="X", help="Names.")] = None,
    size: Annotated[int, Option("--size", metavar="N", help="A size.")] = 1,
    is_loud: Annotated[bool, Option("--loud", help="Loud.")] = False,
    is_kept: Annotated[bool | None, Option("--keep/--no-keep", help="Keep it.")] = None,
) -> None:
    """A command to try words on."""


IN_ORDER: dict[tuple[str, ...], dict[str, Any]] = {
    ("a.yaml",): {"file": Path("a.yaml")},
    ("a.yaml", "7"): {"file": Path("a.yaml"), "number": 7},
    # options before, between and behind; joined and apart; by the short name
    ("--size", "2", "a.yaml", "--loud"): {"file": Path("a.yaml"), "size": 2, "is_loud": True},
    ("a.yaml", "--size=3"): {"file": Path("a.yaml"), "size": 3},
    ("a.yaml", "-n", "x=1", "--name", "y"): {"file": Path("a.yaml"), "names": ["x=1", "y"]},
    # a flag of two names
    ("a.yaml", "--keep"): {"file": Path("a.yaml"), "is_kept": True},
    ("a.yaml", "--no-keep"): {"file": Path("a.yaml"), "is_kept": False},
    # an empty word is a word
    ("a.yaml", "--name", ""): {"file": Path("a.yaml"), "names": [""]},
}

UNUSUAL = (
    # too few, too many
    (),
    ("a.yaml", "7", "8"),
    # help, and what stands for it
    ("--help",),
    ("a.yaml", "-h"),
    # unknown, twice, without a value, with one too many
    ("a.yaml", "--bogus"),
    ("a.yaml", "--size", "1", "--size", "2"),
    ("a.yaml", "--size"),
    ("a.yaml", "--loud=yes"),
    # not of its kind
    ("a.yaml", "seven"),
    ("a.yaml", "--size", "big"),
    # what looks like another option, and the word that ends them
    ("a.yaml", "--name", "--loud"),
    ("--", "a.yaml"),
    # short names run together
    ("a.yaml", "-nx"),
    # a short start of a long name
    ("a.yaml", "--siz", "2"),
)


@pytest.mark.parametrize(("words", "expected"), IN_ORDER.items(), ids=map(" ".join, IN_ORDER))
def test_words_in_order_are_read(words: tuple[str, ...], expected: dict[str, Any]):
    assert arguments(sample, words) == expected


@pytest.mark.parametrize("words", UNUSUAL, ids=map(" ".join, UNUSUAL))
def test_everything_else_is_left_to_typer(words: tuple[str, ...]):
    assert arguments(sample, words) is None


@pytest.mark.parametrize("words", IN_ORDER, ids=map(" ".join, IN_ORDER))
def test_typer_reads_the_same_words_the_same_way(words: tuple[str, ...]):
    seen: dict[str, Any] = {}

    def noted(**values: Any) -> None:
        seen.update(values)

    marked = as_typer_has_it(sample)
    noted.__signature__, noted.__annotations__ = marked.__signature__, marked.__annotations__  # type: ignore[attr-defined]
    single = typer.Typer(add_completion=False)
    single.command()(noted)

    result = CliRunner().invoke(single, list(words))

    defaults = {"number": None, "names": None, "size": 1, "is_loud": False, "is_kept": None}
    assert result.exit_code == 0, result.output
    assert {key: value or None if key == "names" else value for key, value in seen.items()} == {
        **defaults,
        **IN_ORDER[words],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_signature_that_is_read_without_typer_or_left_to_it(name: str):
    assert arguments(load(name), ["--help"]) is None


# The shell


def completed(shell: str, words: str, count: int) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "_MULLIGAN_COMPLETE": f"complete_{shell}"}
    environment |= {"COMP_WORDS": words, "COMP_CWORD": str(count), "_TYPER_COMPLETE_ARGS": words}
    done = subprocess.run(
        [sys.executable, "-m", "mulligan"], env=environment, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_the_shell_completes_the_options_of_a_command():
    assert completed("bash", "mulligan run --p", 2).split() == ["--parallel"]


def test_the_shell_completes_commands_also_where_the_words_so_far_are_in_order():
    assert set(completed("bash", "mulligan re", 1).split()) >= {"resume", "retry"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_each_shell_can_be_shown(shell: str):
    environment = {**os.environ, "PYTHONPATH": str(SRC), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    done = subprocess.run(
        [sys.executable, "-m", "mulligan", "--show-completion", shell],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "_MULLIGAN_COMPLETE" in done.stdout


def test_the_completion_is_installed_for_bash(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(SRC), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment |= {"HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "mulligan", "--install-completion", "bash"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("*mulligan*"))


def test_a_run_in_order_never_loads_typer_or_rich(tmp_path: Path):
    (tmp_path / "hello.yaml").write_text("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")
    program = (
        "import atexit, sys\n"
        "heavy = ('typer', 'rich', 'pydantic', 'psycopg', 'traceback')\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]))\n"
        "from mulligan.cli.main import main\n"
        "main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "run", "hello.yaml"],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, "[]\n")
