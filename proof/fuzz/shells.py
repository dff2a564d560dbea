"""Targets in which a value meets a program: bash and SQLite themselves show whether it stayed a value.

The bytes choose: pieces of text from the tables here, put into each other, and a value. So whatever they are, the
program is one of ours, and all that it could do is to touch a file that is looked for afterwards.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator

import apsw

from mulligan.errors import LanguageError
from mulligan.language.loading import load_text
from mulligan.language.shell.shell import ShellRefused, environment_value, rewrite
from mulligan.worker.databases.parameters import bind_parameters
from mulligan.worker.databases.statements import Dialect, statements

from .sentences import require

DEPTH_MAX = 4
BOUND = frozenset({"item", "index"})
HOLES = ["${inputs.x}", "${item}", "${item%x}", "${y:-${inputs.x}}", "${y:${inputs.x}:1}", "${y[${inputs.x}]}"]
HOLES += [
    "${y/${item}/x}",
    "${item//a/${inputs.x}}",
    "${#item}",
    "${item^^}",
    "${item@Q}",
    "${!item}",
    "${inputs.x + item}",
]
CONTEXTS = ["{}", '"{}"', "'{}'", "$({})", "`{}`", "$(({}))", "[[ {} -eq 1 ]]", "a[{}]=1", "eval {}", "bash -c {}"]
CONTEXTS += [
    "echo {}",
    "x={}",
    "(\n{}\n)",
    "if true; then {}; fi",
    "let {}",
    "cat <<EOF\n{}\nEOF\n",
    "cat <<'EOF'\n{}\nEOF\n",
]
CONTEXTS += [
    "case a in a) {};; esac",
    "f() {{ {}; }}; f",
    "<({})",
    "declare -i n={}",
    "# {}\n",
    "unset {}",
    "printf -v {} x",
]
CONTEXTS += ["[ {} -eq 1 ]", "(({}))", "trap {} EXIT", "a=({})", "true && {}", "{} | cat", "! {}", "time {}", "{} # '"]
CONTEXTS += ["printf %d {}", "cat <<< {}", "bash <<< {}", "x=1 {}", "declare -a a={}", "export {}=1", "[[ -v {} ]]"]
CONTEXTS += [
    "read {} <<< 1",
    ". /dev/stdin <<< {}",
    "PS4={} bash -x",
    "$[{}]",
    "function f {{ {}; }}; f",
    "source <(echo {})",
]
CONTEXTS += ["for x in {}; do :; done", "for (({};0;)); do :; done", "while {}; do break; done", "test -v {}", "env {}"]
CONTEXTS += [
    "xargs -I% sh -c {} <<< a",
    "echo {} | sh",
    "awk {} </dev/null",
    "cat <<-EOF\n\t{}\n\tEOF\n",
    "$'{}'",
    '$"{}"',
]
CONTEXTS += [
    "coproc {}",
    "select x in {}; do break; done </dev/null",
    "mapfile -t a < <({})",
    "wait -n {}",
    "command {}",
]
CONTEXTS += [
    "builtin {}",
    "exec {}",
    "alias a={}",
    "a{}=1",
    "{}=1",
    "{{ {}; }}",
    "until {}; do break; done",
    "[[ a =~ {} ]]",
]
VALUES = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "a[$(touch pwned)]",
    '"; touch pwned; "',
    "'; touch pwned; '",
]
VALUES += [
    "\ntouch pwned\n",
    "EOF\ntouch pwned\n",
    "x=$(touch pwned)",
    "> pwned",
    "touch pwned",
    "-v a[$(touch pwned)]",
    "|touch pwned",
]

PLACES = ["select {}", "select {} as v", "select (({}))", "select coalesce(null, {})", "select * from (select {})"]
PLACES += [
    "/* ' */ select {}",
    "-- '\nselect {}",
    'select {} as "a""b;"',
    "select {} as [c;']",
    "select {} as `d'`",
    "select {} -- ${inputs.x}",
]
PLACES += ["select {} where ';' = ';'", "select {}\n;", "; ; select {}", "select case when 1 then {} else 2 end"]
PLACES += ["select '${inputs.x}' || {}", 'select "{}"', "select x'00', {}", "select {} || {}", "select '' || '\\', {}"]
VALUES_OF_SQL = [
    "'; drop table canary; --",
    '"; drop table canary; --',
    "1; drop table canary",
    "*/ drop table canary",
    ":mulligan_0",
    "?1",
    "\\'",
]


def shell(data: bytes) -> None:
    """A hole in contexts within contexts: the script is refused, or nothing of the value is ever run."""
    choice = _choices(data)
    text = HOLES[next(choice) % len(HOLES)]
    for _ in range(next(choice) % (DEPTH_MAX + 1)):
        text = CONTEXTS[next(choice) % len(CONTEXTS)].format(text)
    value = VALUES[next(choice) % len(VALUES)]
    try:
        found = rewrite(text, BOUND)
    except ShellRefused:
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        _run(found.text, {name: environment_value(source, value) for name, source in found.bindings.items()}, folder)
        require("pwned" not in os.listdir(folder), f"{value!r} was run by {text!r}")


def _run(script: str, variables: dict[str, str], folder: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", **variables}
    subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )


def sql(data: bytes) -> None:
    """A query with a value in it: refused, or SQLite gives the value back, and what it must not touch is there."""
    choice = _choices(data)
    text = PLACES[next(choice) % len(PLACES)].replace("{}", "${inputs.x}")
    value = "".join(VALUES_OF_SQL[next(choice) % len(VALUES_OF_SQL)] for _ in range(1 + next(choice) % 3))
    try:
        found = load_text(
            "inputs: {x: string}\nsteps:\n- step: a\n  sql:\n    connection: 'sqlite://'\n    query: |\n"
            + _indented(text)
        )
    except LanguageError:
        return
    given = found.steps[0].action
    assert given is not None
    values = dict.fromkeys(given.params.get("params") or {}, value)
    cells = _answers(given.params["query"], values)
    require(any(value in str(cell) for cell in cells), f"{value!r} did not come back from {text!r}: {cells!r}")


def _answers(query: str, values: dict[str, str]) -> list[object]:
    connection = apsw.Connection(":memory:")
    connection.execute("create table canary(x)")
    cells: list[object] = []
    found = statements(query, Dialect.SQLITE)
    for name in bind_parameters(found, values, Dialect.SQLITE):
        require(name in values, "a value that nobody gave")
    for one in found:
        bound = {spot.name: values[spot.name] for spot in one.placeholders}
        cells += [
            cell
            for answer in connection.execute(one.render([f":{spot.name}" for spot in one.placeholders]).text, bound)
            for cell in answer
        ]
    connection.execute("select * from canary")
    return cells


def _indented(text: str) -> str:
    return "".join(f"      {line}\n" for line in text.split("\n"))


def _choices(data: bytes) -> Iterator[int]:
    yield from data
    while True:
        yield 0
