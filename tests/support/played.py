"""Pages that are played: their files are written, their commands typed, and what comes is held against what they show.

    ```yaml nightly.yaml      a file
    ```console                commands, in a folder of the page's own
    ```text                   what the commands just before it print

A page begins in an empty folder, or with the modules that stand beside it. A block sees what earlier ones exported, and
goes on in the folder where they stopped.

To write what is printed today into a page: `PYTHONPATH=src python tests/support/played.py docs/concepts/ladder.md`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
# A whole start of the interpreter for every command.
PROGRAM = f'#!/bin/sh\nexec "{sys.executable}" -m mulligan "$@"\n'
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a block with a name may hold: a workflow, in whatever it is written, or a program.
_FILES = ("yaml", "json", "json5", "kdl", "toml", "python", "sh")
# What differs from one playing to the next: dates and times, how long it took, how much it used, which process and port
# it was. Steps that take a second or more say so, and others do not.
_VARYING = re.compile(
    r"\d{4}-\d\d-\d\d( at \d\d:\d\d)?|(?<!\d)\d\d:\d\d:\d\d(\.\d+)?Z?|\b\d+(\.\d+)? ?(ms|s|m\d\ds|[KMG]iB)\b"
    r"|(?<=process )\d+|(?<=127\.0\.0\.1:)\d+|(?<=kept )\d+(\.\d+)?(?= busy)|(?<=it used )\d+\.\d(?= of)"
)
_TOOK = re.compile(r"(\bcompleted\b.*) in \d+(\.\d+)?s$", re.MULTILINE)
# Of a difference of times: which was longer depends on the machine.
_SIGN = re.compile(r"(?<=time )[+-](?=\d)")
_SPACES = re.compile(r" +")
# The variables that a page may see. Any other may change what is printed: pytest, for one, writes more where CI is set.
_KEPT = ("HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ")
_KEPT_FAMILIES = ("LC_", "PIP_", "UV_", "SSL_")


class Shown(NamedTuple):
    """What a page shows, where that stands in its text, and what was printed."""

    text: str
    start: int
    end: int
    printed: str


def play(page: Path, folder: Path, program: str = PROGRAM) -> Iterator[Shown]:
    """Do what the page says, in `folder`; every output that it shows, with the one that there was.

    `program` is the text of the `mulligan` that is typed.
    """
    for beside in page.parent.glob("*.py"):
        shutil.copy(beside, folder)
    environ = _environ(folder, program)
    printed, left_in = "", Path(environ["BASH_ENV"]).with_name("folder")
    for found in _FENCE.finditer(page.read_text(encoding="utf-8")):
        language, words, text = found.groups()
        if language in _FILES and words.strip():
            (folder / words.strip()).write_text(text, encoding="utf-8")
        elif language == "console":
            printed = _typed(text, folder, environ)
            folder = Path(left_in.read_text(encoding="utf-8").removesuffix("\n"))
        elif language == "text" and printed:
            yield Shown(text, found.start(3), found.end(3), printed)
            printed = ""


def steady(text: str) -> list[str]:
    """The lines without what varies, in an order of their own: steps that run side by side may change places."""
    return sorted(
        _SPACES.sub(" ", _VARYING.sub("…", _SIGN.sub("", line))).rstrip()
        for line in _TOOK.sub(r"\1", text).splitlines()
    )


def environment() -> dict[str, str]:
    """What a page sees of the variables around it, and what it is to see."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_FAMILIES)}
    ours = {"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "utf-8", "LOGNAME": "operator", "COLUMNS": "120"}
    return {**kept, **ours}


def _environ(folder: Path, program: str) -> dict[str, str]:
    """As somebody finds it who has installed Mulligan, and nothing else of ours."""
    programs = Path(tempfile.mkdtemp(dir=folder.parent))
    python = f'exec "{sys.executable}"'
    typed = {"mulligan": program, "python": f'#!/bin/sh\n{python} "$@"\n'}
    typed["nl2sql"] = f'#!/bin/sh\n{python} -m mulligan_nl2sql.command_line "$@"\n'
    for name, text in typed.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    # Read by the shell of a block before its first line, and by none that it starts.
    exports, start = programs / "exports", programs / "start"
    leave = f'export -p > "{exports}"; pwd > "{programs / "folder"}"'
    start.write_text(f'unset BASH_ENV; [ ! -e "{exports}" ] || . "{exports}"; trap \'{leave}\' EXIT\n')
    path = f"{programs}:{os.environ['PATH']}"
    return {**environment(), "PATH": path, "BASH_ENV": str(start), "MULLIGAN_CACHE": str(programs / "cache")}


def _typed(commands: str, folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", commands],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def rewrite(page: Path) -> None:
    """Write what is printed today into the page."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "nightly"
        folder.mkdir()
        shown = list(play(page, folder))
    for one in reversed(shown):
        if steady(one.text) != steady(one.printed):
            text = text[: one.start] + one.printed + text[one.end :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
