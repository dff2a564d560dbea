"""The words of a command line: what they mean, and how they are refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.support.commands import SRC, mulligan

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.commands import COMMANDS, load
from mulligan.cli.words.help import command_help
from mulligan.cli.words.parameters import Argument, Flag, Option, parameters_of
from mulligan.cli.words.parser import parse


def sample(
    file: Annotated[Path, Argument("FILE", "A file.")],
    number: Annotated[int | None, Argument("N", "A number.")] = None,
    names: Annotated[list[str] | None, Option("X", "A name.", "--name", "-n")] = None,
    input: Annotated[list[str] | None, Option("KEY=VALUE", "An input.", "--input", "-i")] = None,
    size: Annotated[int, Option("N", "A size.", show_default=True)] = 1,
    is_loud: Annotated[bool, Flag("Be loud.", "--loud", "-l")] = False,
    is_kept: Annotated[bool, Flag("Keep it.", "--keep/--no-keep", show_default=True)] = True,
) -> None:
    """Try words on a command.

    This is
    a paragraph.
    """


def read(line: str) -> dict[str, Any] | None:
    return parse("sample", parameters_of(sample), line.split())


PARSED = {
    "a.yaml": {},
    "a.yaml 7": {"number": 7},
    # options before, between and after arguments
    "--size 2 a.yaml --loud": {"size": 2, "is_loud": True},
    "a.yaml --size 2 7": {"size": 2, "number": 7},
    # values apart and joined
    "a.yaml --size=3": {"size": 3},
    "a.yaml --name=": {"names": [""]},
    "a.yaml -n x=1 --name y": {"names": ["x=1", "y"]},
    "a.yaml -nx=1": {"names": ["x=1"]},
    "a.yaml -ikey=value": {"input": ["key=value"]},
    # flags run together, the last one with a value
    "a.yaml -ln x": {"is_loud": True, "names": ["x"]},
    "a.yaml -lnx": {"is_loud": True, "names": ["x"]},
    # both names of a flag; the last one counts, as for any option that takes one value
    "a.yaml --keep": {"is_kept": True},
    "a.yaml --no-keep": {"is_kept": False},
    "a.yaml --no-keep --keep": {"is_kept": True},
    "a.yaml --size 1 --size 2": {"size": 2},
    # values that start with a dash
    "a.yaml --size -5": {"size": -5},
    "a.yaml --name -x": {"names": ["-x"]},
    "a.yaml --name --loud": {"names": ["--loud"]},
    "a.yaml --name --": {"names": ["--"]},
    # arguments that start with a dash
    "-- a.yaml": {},
    "a.yaml -- -7": {"number": -7},
    "--loud -- a.yaml -7": {"is_loud": True, "number": -7},
}


@pytest.mark.parametrize(("line", "expected"), PARSED.items(), ids=PARSED)
def test_a_line_gives_values_to_the_parameters(line: str, expected: dict[str, Any]):
    assert read(line) == {"file": Path("a.yaml"), **expected}


def test_a_dash_alone_is_an_argument():
    assert read("-") == {"file": Path("-")}


@pytest.mark.parametrize("line", ["-h", "--help", "a.yaml -lh", "a.yaml --size big --help", "a.yaml 7 8 -h"])
def test_help_may_stand_anywhere(line: str):
    assert read(line) is None


REFUSED = {
    "": "missing argument 'FILE'\n  see: mulligan sample --help",
    "a.yaml 7 8": "unexpected argument '8'\n  see: mulligan sample --help",
    "a.yaml 7 8 9": "unexpected arguments '8' '9'\n  see: mulligan sample --help",
    "a.yaml 7 k=v $x=y": "unexpected arguments 'k=v' '$x=y'\n"
    "  inputs are given with -i: mulligan sample … -i k=v -i '$x=y'",
    "a.yaml seven": "N must be a whole number, not 'seven'\n  see: mulligan sample --help",
    "a.yaml --size big": "--size must be a whole number, not 'big'\n  see: mulligan sample --help",
    f"a.yaml --size {'1' * 5000}": f"--size must be a whole number, not '{'1' * 198}…{'1' * 99}'\n"
    "  see: mulligan sample --help",
    "a.yaml --size": "--size needs a value\n  see: mulligan sample --help",
    "a.yaml --loud=yes": "--loud does not take a value\n  see: mulligan sample --help",
    "a.yaml --bogus": "no such option '--bogus'\n  see: mulligan sample --help",
    "a.yaml --bogus=1": "no such option '--bogus'\n  see: mulligan sample --help",
    "a.yaml -x": "no such option '-x'\n  see: mulligan sample --help",
    "a.yaml -lx": "no such option '-x'\n  see: mulligan sample --help",
    "a.yaml -7": "no such option '-7'\n  see: mulligan sample --help",
    # names are not shortened, and not guessed without asking
    "a.yaml --siz 2": "no such option '--siz'\n  did you mean '--size'?",
    "a.yaml --hlep": "no such option '--hlep'\n  did you mean '--help'?",
    "a.yaml -loud": "no such option '-loud'\n  did you mean '--loud'?",
    # what no keyboard has
    "a.yaml --\udcff": "no such option '--\udcff'\n  see: mulligan sample --help",
    "a.yaml -\u202e": "no such option '-\u202e'\n  see: mulligan sample --help",
    "a.yaml \udcff": "N must be a whole number, not '\udcff'\n  see: mulligan sample --help",
}


@pytest.mark.parametrize(("line", "expected"), REFUSED.items(), ids=range(len(REFUSED)))
def test_a_line_that_makes_no_sense_is_refused(line: str, expected: str):
    with pytest.raises(UsageRefused) as refused:
        read(line)

    assert refused.value.render() == f"error[usage]: {expected}"


@pytest.mark.parametrize(
    "words", [["run", "x", "\udcff\x1b[2J"], ["\udcff"], ["--\x1b[2J"], ["list", "--limit", "\udcff"]]
)
def test_bytes_that_are_no_text_are_refused_without_commanding_the_terminal(words: list[str]):
    said = mulligan(*words)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error[usage]: ")
    assert said.err.replace("\n", "").isprintable()


def test_the_help_of_a_command_is_made_from_its_signature(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(COMMANDS, "sample", ("", "Try words on a command."))

    assert (
        command_help("sample", sample)
        == """\
Usage: mulligan sample [OPTIONS] FILE [N]

  Try words on a command.

  This is a paragraph.

Arguments:
  FILE  A file.  [required]
  N     A number.

Options:
  -n, --name X           A name.
  -i, --input KEY=VALUE  An input.
  --size N               A size.  [default: 1]
  -l, --loud             Be loud.
  --keep / --no-keep     Keep it.  [default: --keep]
  -h, --help             Show this message and exit."""
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_two_options_of_a_command_have_the_same_name(name: str):
    flags = [flag for parameter in parameters_of(load(name)) for flag, _ in parameter.flags()]

    assert len(flags) == len({*flags, "-h", "--help"}) - 2


def test_a_run_loads_nothing_that_only_help_and_tables_need(tmp_path: Path):
    (tmp_path / "hello.yaml").write_text("name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n")
    program = (
        "import atexit, sys\n"
        "heavy = ('rich', 'inspect', 'argparse', 'mulligan.cli.words.help', 'psycopg', 'traceback')\n"
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
