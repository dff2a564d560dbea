"""Small inputs that cause large work: each ends soon, in little memory, with a refusal that says why.

`python -m proof.fuzz.bombs NAME` sets one off in this process, under the same limits.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.model.failure import MESSAGE_CHARS_MAX
from mulligan.errors import MulliganError
from mulligan.formats import examine, json5_text
from mulligan.formats.torc import kdl
from mulligan.language.expressions import check, evaluate
from mulligan.language.loading import load_text
from mulligan.language.shell.shell import rewrite
from mulligan.language.text.nodes import Refusal, Source

from . import large_values
from .seeds import PROJECT
from .sentences import require

CPU_SECONDS_MAX = 60
MEMORY_BYTES_MAX = 1 << 30
ENDED_WELL = 0
# It is taken or refused, whichever: what counts is that it ends soon.
ANY = "*"


class Bomb(NamedTuple):
    """What is done, what must be said of it ("" where it is to be taken), and how long it may take."""

    name: str
    light: Callable[[], object]
    says: str
    cpu_seconds: int = CPU_SECONDS_MAX


def _laughs() -> str:
    """Aliases of aliases: each line stands for ten of the one before."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


def _read(text: Callable[[], str]) -> Callable[[], object]:
    """A Mulligan file. Its text is made when the bomb runs: some are large."""
    return lambda: load_text(text())


def _includes(**files: str) -> Callable[[], object]:
    """Files that name each other, in a folder of their own; one that begins with '->' is a link."""

    def light() -> object:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            for name, text in files.items():
                path = Path(folder) / f"{name}.yaml"
                if text.startswith("->"):
                    path.symlink_to(f"{text[2:]}.yaml")
                else:
                    path.write_text(text)
            return examine(Path(folder) / "a.yaml")

    return light


def _calls(*names: str) -> str:
    return "steps:\n" + "".join(f"- {{step: s{number}, workflow: {name}.yaml}}\n" for number, name in enumerate(names))


def _evaluated(source: str, **inputs: Callable[[], object]) -> Callable[[], object]:
    """An expression, with inputs that are made when the bomb runs."""
    return lambda: evaluate(check(source), {"inputs": {name: make() for name, make in inputs.items()}})


# Two names of one file: each holds a copy.
_DOUBLING = {f"f{number}": _calls(f"f{number + 1}", f"./f{number + 1}") for number in range(15)}
_CHAIN = {f"f{number}": _calls(f"f{number + 1}") for number in range(40)}
_STEP = "steps: [{step: a, shell: make"
_DEPTH = 100_000

# As much as a caller may send. Each shape was once read in a time that grew with the square of its size.
_CHARS = 900_000
_SHELLS = {
    "values": '[a] "${inputs.x}" ',
    "assignments": 'A=1 "${inputs.x}" [',
    "wrappers": 'sudo env "${inputs.x}" [',
    "values-in-a-word": "[a${inputs.x}",
    "braces-in-quotes": "'${ ' ",
    "open-arithmetic": '$((a "(" ) ) ',
    "shells": "sh -c a [",
    "brackets": "x[",
}


def _shell(pattern: str) -> Callable[[], object]:
    """Shell text that repeats a pattern until it is as large as a request may be."""
    return lambda: rewrite(pattern * (_CHARS // len(pattern)) + '"${inputs.x}"')


BOMBS = [
    *(Bomb(f"shell-of-{name}", _shell(pattern), ANY, cpu_seconds=30) for name, pattern in _SHELLS.items()),
    Bomb("billion-laughs", _read(_laughs), "the aliases of this file stand for more than 200,000 values"),
    Bomb("an-alias-of-itself", _read(lambda: "a: &a [*a]"), "the alias '*a' is inside the value that it refers to"),
    Bomb("deep-flow", _read(lambda: "a: " + "[" * _DEPTH), "lists and mappings are nested more than 80 deep"),
    Bomb("deep-block", _read(lambda: "- " * _DEPTH), "lists and mappings are nested more than 80 deep"),
    Bomb("deep-json", lambda: json5_text.parse(Source("[" * _DEPTH, "w")), "inside each other"),
    Bomb("deep-kdl", lambda: kdl.parse(Source("a {" * _DEPTH, "w")), "inside each other"),
    Bomb("a-scalar-of-50-MB", _read(lambda: f"description: {'x' * 50_000_000}\n{_STEP}}}]"), ""),
    Bomb("a-file-of-65-MB", _read(lambda: "#" + "x" * (65 << 20)), "the file has more than 64 MiB"),
    Bomb(
        "a-million-keys",
        _read(lambda: "".join(f"k{n}: 1\n" for n in range(1_000_000))),
        "'k0' is not a key of the workflow",
    ),
    Bomb("a-million-digits", _read(lambda: f"{_STEP}, timeout: {'9' * 1_000_000}}}]"), "does not fit into 64 bits"),
    Bomb(
        "a-million-quoted-digits",
        _read(lambda: f"{_STEP}, timeout: '{'9' * 1_000_000}'}}]"),
        "a duration such as 30s is expected",
    ),
    Bomb(
        "a-matrix-of-billions",
        _read(lambda: f"{_STEP}, matrix: {{a: 0..9999, b: 0..9999, c: 0..9999}}}}]"),
        "the maximum is 100,000",
    ),
    Bomb("a-range-of-billions", _read(lambda: f"{_STEP}, matrix: {{a: 0..9999999999}}}}]"), "100,000 are the most"),
    Bomb("a-hole-in-holes", _read(lambda: f"{_STEP}, env: {{A: '{'${' * _DEPTH}'}}}}]"), "is not closed"),
    Bomb(
        "an-expression-of-a-megabyte",
        _read(lambda: f"{_STEP}, when: '{'1 + ' * 250_000}1'}}]"),
        "longer than 8192 characters",
    ),
    Bomb("an-expression-in-parentheses", _read(lambda: f"{_STEP}, when: '{'(' * 4000}1{')' * 4000}'}}]"), "nested"),
    Bomb(
        "an-expression-in-loops",
        _evaluated(
            "inputs.l.all(x, inputs.m == inputs.m)",
            l=lambda: [0] * 1_000,
            m=lambda: {str(n): n for n in range(100_000)},
        ),
        "it takes more than 1 s to evaluate",
        cpu_seconds=5,
    ),
    Bomb("an-expression-that-doubles", _evaluated("['a']" + ".map(x, [x, x])" * 24), "to evaluate", cpu_seconds=5),
    Bomb(
        "a-pattern-that-looks-everywhere",
        lambda: require(not is_found(r"(?:\B|a){240}b", "x" * MESSAGE_CHARS_MAX), "it is not there"),
        "",
        cpu_seconds=5,
    ),
    Bomb("a-pattern-that-backtracks", _read(lambda: f"{_STEP}, retry: {{rules: [{{pattern: '(a+)+$'}}]}}}}]"), ""),
    Bomb(
        "a-pattern-of-a-million-parts",
        _read(lambda: f"{_STEP}, retry: {{rules: [{{pattern: '(a{{1000}}){{1000}}'}}]}}}}]"),
        "parts",
    ),
    Bomb(
        "a-circle-of-files",
        _includes(a=_calls("b"), b=_calls("a")),
        "'a.yaml' includes itself: a.yaml → b.yaml → a.yaml",
    ),
    Bomb("a-link-to-itself", _includes(a=_calls("b"), b="->b"), "'b.yaml'"),
    Bomb("a-link-back", _includes(a=_calls("b"), b="->a"), "'b.yaml' includes itself: a.yaml → a.yaml"),
    Bomb("files-that-double", _includes(a=_calls("f0"), **_DOUBLING, f15=f"{_STEP}}}]"), "more than 10,000 workflows"),
    Bomb("files-without-end", _includes(a=_calls("f0"), **_CHAIN), "16 deep"),
    *(Bomb(name, light, "") for name, light in large_values.WAYS.items()),
]


def set_off(bomb: Bomb) -> str:
    """Return what was wrong with a bomb that ran in its own process; "" if nothing was."""
    command = [sys.executable, "-m", "proof.fuzz.bombs", bomb.name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "src")])}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == -signal.SIGXCPU:
        return f"it takes more than {bomb.cpu_seconds} seconds"
    return "" if done.returncode == ENDED_WELL else done.stdout.strip()[-500:] or done.stderr.strip()[-500:]


def judged(bomb: Bomb) -> str:
    """What is wrong with how it goes off here."""
    try:
        bomb.light()
    except (MulliganError, Refusal) as refused:
        return "" if bomb.says == ANY or (bomb.says and bomb.says in str(refused)) else f"it says: {str(refused)[:300]}"
    except MemoryError:
        return f"it takes more than {MEMORY_BYTES_MAX >> 20} MiB"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return f"it is taken, and should be refused: {bomb.says}" if bomb.says not in ("", ANY) else ""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    bomb = next(bomb for bomb in BOMBS if bomb.name == sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (bomb.cpu_seconds, bomb.cpu_seconds + 1))
    problem = judged(bomb)
    print(problem or "it ends as it should")
    sys.exit(1 if problem else ENDED_WELL)


if __name__ == "__main__":
    main()
