"""Targets in which a value meets a program of a NoETL playbook: shells and DuckDB show whether it stayed a value.

As in `shells`, the bytes choose among texts, contexts and values from tables: the worst that a program could do is to
touch a file, or to drop a table, that is looked for afterwards.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator

import duckdb

from mulligan import StepError
from mulligan.formats.noetl.runtime.file_texts import mark_file_texts
from mulligan.formats.noetl.runtime.placeholders import mark_values
from mulligan.formats.noetl.runtime.shell_text import bind_command
from mulligan.formats.noetl.runtime.sql_text import bind_query
from mulligan.worker.databases.statements import Dialect, statements

from .sentences import require
from .shells import CONTEXTS as OURS
from .shells import DEPTH_MAX, VALUES, VALUES_OF_SQL

SHELLS = ["sh", "bash"]
CONTEXTS = [*OURS, "echo ${{y:-<({})}}", 'echo "${{HOME#<({})}}"', "[[ a = <({}) ]]", "[[ ( a < {} ) ]]", "cat < {}"]
CONTEXTS += ["echo '{0}' \"{0}\"", "test -n '{}' && true", "{{ true; {}; }} > /dev/null"]
TEMPLATES = ["{{ x }}", "{{x}}", "{{ x }}{{ x }}", "a{{ x }}b", "{{ x | trim }}", "{{ [x, x] | join(' ') }}"]
TEMPLATES += [
    "{% set y = x %}{{ y }}",
    "{% for y in [x, x] %}{{ y }} {% endfor %}",
    "{% if x %}{{ x }}{% endif %}",
    "{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}",
    "{{ file }}{{ x }}",
    "{{ x if file else file }}",
    "{{ file ~ x }}",
    "{{ (file, x) | last }}",
    "${y:-{{ x }}}",
    "${{ x }}",
    "\\{{ x }}",
    '{{ x | replace("\'", "\'\'") }}',
    '{{ "\'" ~ x ~ "\'" }}',
]
PLACES = ["select {}", "select '{}' as v", "select 'a {} b' as v", "select '{}{}' as v", "select E'{}' as v"]
PLACES += [
    "select E'\\{}' as v",
    "select * from (values ({}))",
    "select coalesce({}, 'b') as v",
    "select 'a' || {} as v",
]
PLACES += ["select * from {}", 'select 1 as "{}"', "select $${}$$ as v", "select $a${}$a$ as v", "select 1 -- {}\n"]
PLACES += [
    "select /* {} */ '{}' as v",
    "{}",
    "select 1; {}",
    "select 'x' in ({}) as v",
    "select 'a'{} as v",
    "select {}::text as v",
]
PLACES += [
    "select t{} as v",
    "select '{}'::text as v",
    "select N'{}' as v",
    "select ''''||'{}' as v",
    "select 5 -{} as v",
]
PLACES += [
    "select '--' || '{}' as v",
    "select '/*' || '{}' || '*/' as v",
    "select [{}, 'b'] as v",
    "select {'k': {}} as v",
]


def shell(data: bytes) -> None:
    """A template in contexts within contexts: it is refused, or nothing of the value is ever run."""
    choice = _choices(data)
    program = SHELLS[next(choice) % len(SHELLS)]
    text = TEMPLATES[next(choice) % len(TEMPLATES)]
    for _ in range(next(choice) % (DEPTH_MAX + 1)):
        text = CONTEXTS[next(choice) % len(CONTEXTS)].format(text)
    value = VALUES[next(choice) % len(VALUES)]
    try:
        command = bind_command(mark_values(text, {"x": value, "file": mark_file_texts("echo ")}))
    except StepError:
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", **command.variables}
        subprocess.run(
            [program, "-c", command.text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        require("pwned" not in os.listdir(folder), f"{value!r} was run by {program} in {text!r}")


def sql(data: bytes) -> None:
    """A query with a template in it: it is refused, or it says the same whatever the value is."""
    choice = _choices(data)
    template = TEMPLATES[next(choice) % len(TEMPLATES)]
    text = PLACES[next(choice) % len(PLACES)].replace("{}", template)
    value = "".join(VALUES_OF_SQL[next(choice) % len(VALUES_OF_SQL)] for _ in range(1 + next(choice) % 3))
    for dialect in (Dialect.DUCKDB, Dialect.POSTGRES):
        queries = []
        for x in ("harmless", value):
            try:
                queries.append(
                    bind_query(mark_values(text, {"x": x, "file": mark_file_texts("a")}, is_query=True), dialect)
                )
            except StepError:
                return
        plain, found = (statements(query.text, dialect) for query in queries)
        words = [[[word for word in one.words if word != "E"] for one in side] for side in (plain, found)]
        require(words[0] == words[1], f"{value!r} has changed {text!r}: {queries[1].text!r}")
        if dialect is Dialect.DUCKDB:
            _ask(queries[1].text, queries[1].values, value, text)


def _ask(query: str, values: dict[str, object], value: str, text: str) -> None:
    with duckdb.connect(":memory:") as connection:
        connection.execute("create table canary (n integer)")
        for one in statements(query, Dialect.DUCKDB):
            spots = [spot for spot in one.placeholders if spot.name in values]
            one.placeholders = spots
            try:
                sent = one.render([f"${spot.name}" for spot in spots]).text
                connection.execute(sent, {spot.name: values[spot.name] for spot in spots}).fetchall()
            except duckdb.Error:
                break
        tables = connection.execute("select count(*) from duckdb_tables() where table_name = 'canary'").fetchone()
        require(tables == (1,), f"{value!r} was run in {text!r}")


def _choices(data: bytes) -> Iterator[int]:
    yield from data
    while True:
        yield 0
