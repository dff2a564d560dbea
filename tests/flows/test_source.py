"""How the function of a step travels: by its name, or as source that is pinned with the run."""

from __future__ import annotations

import importlib
import json
import linecache
import math
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mulligan import flow, step
from mulligan.errors import LanguageError
from mulligan.flows import pinned_modules
from mulligan.flows.source import action_for
from mulligan.values.decoding import convert_arguments


class Session:
    """A `__main__` without a file: cells are executed one after the other."""

    def __init__(self, main: ModuleType) -> None:
        self.main = main
        self.count = 0
        main.__dict__.update(step=step)

    def cell(self, text: str) -> None:
        self.count += 1
        name = f"<cell-{id(self)}-{self.count}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), self.main.__dict__)

    def action(self, name: str = "fetch") -> dict[str, str]:
        return action_for(self.main.__dict__[name])

    def refusal(self, name: str = "fetch") -> tuple[str, str]:
        with pytest.raises(LanguageError) as refused:
            self.action(name)
        (problem,) = refused.value.problems
        return problem.message, problem.hint

    def result(self, *args: Any, name: str = "fetch") -> Any:
        """What the function gives in another process."""
        return run(self.action(name), *args)


def run(action: dict[str, str], *args: Any) -> Any:
    before = sys.modules.pop("__main__")
    module, _, name = action["call"].partition(":")
    try:
        found = getattr(pinned_modules.load(module, action["source"], action.get("file", "")), name)
        return getattr(found, "__mulligan_function__", found)(*args)
    finally:
        sys.modules.pop(module, None)
        sys.modules["__main__"] = before


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


@pytest.fixture
def session(main: ModuleType) -> Session:
    return Session(main)


def script(main: ModuleType, path: Path, text: str) -> None:
    """Run the file as `python FILE` does, up to its end."""
    path.write_text(text, encoding="utf-8")
    main.__file__ = str(path)
    exec(compile(text, str(path), "exec", dont_inherit=True), main.__dict__)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that can be imported."""
    (tmp_path / "cleaning_steps.py").write_text(
        "import functools\n"
        "def wrapped(function):\n"
        "    @functools.wraps(function)\n"
        "    def inner(*args): return function(*args)\n"
        "    return inner\n"
        "def clean(rows): return sorted(rows)\n"
        "@wrapped\n"
        "def tidy(rows): return rows\n"
        "class Jobs:\n"
        "    @staticmethod\n"
        "    def count(rows): return len(rows)\n"
        "def factory():\n"
        "    def made(rows): return rows\n"
        "    return made\n"
        "made = factory()\n"
        "short = lambda rows: rows\n"
        "settings = object()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("cleaning_steps")
    sys.modules.pop("cleaning_steps", None)


# -- by name ---------------------------------------------------------------------------------------------------------


def test_a_function_at_the_top_of_a_module_is_called_by_its_name(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert action_for(module.clean) == {"call": "cleaning_steps:clean"}
    assert action_for(module.tidy) == {"call": "cleaning_steps:tidy"}
    assert action_for(module.Jobs.count) == {"call": "cleaning_steps:Jobs.count"}
    assert action_for(math.sqrt) == {"call": "math:sqrt"}


def test_workers_import_from_the_folder_of_the_script_too(
    module: ModuleType, main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(main, tmp_path / "nightly.py", NIGHTLY)

    assert action_for(module.clean) == {"call": "cleaning_steps:clean", "import_from": str(tmp_path)}
    assert action_for(math.sqrt) == {"call": "math:sqrt"}

    monkeypatch.chdir(tmp_path)

    assert action_for(module.clean) == {"call": "cleaning_steps:clean"}


def test_a_program_that_changes_its_folder_builds_its_flows_for_the_new_one(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module.clean = step(module.clean)  # type: ignore[attr-defined]

    @flow
    def nightly() -> None:
        module.clean([])

    built_there = nightly.workflow().check().steps[0].action.params
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    built_elsewhere = nightly.workflow().check().steps[0].action.params

    assert (built_there.get("import_from"), built_elsewhere["import_from"]) == (None, str(tmp_path))


def test_workers_import_from_what_the_program_has_added_to_its_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "shop_of_source_test" / "jobs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def count(rows): return len(rows)\n")
    (package / "night.py").write_text("def close(): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("src")

    jobs = importlib.import_module("shop_of_source_test.jobs")
    night = importlib.import_module("shop_of_source_test.jobs.night")

    assert action_for(jobs.count) == {"call": "shop_of_source_test.jobs:count", "import_from": "src"}
    assert action_for(night.close) == {"call": "shop_of_source_test.jobs.night:close", "import_from": "src"}


def test_installed_modules_need_no_folder() -> None:
    assert action_for(json.dumps) == {"call": "json:dumps"}
    assert action_for(pytest.main) == {"call": "_pytest.config:main"}


def test_an_object_that_stands_for_a_function_is_called_by_the_name_of_the_function(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module.clean = step(module.clean)  # type: ignore[attr-defined]

    assert action_for(module.clean) == {"call": "cleaning_steps:clean"}


def test_functions_that_no_worker_could_import_are_refused(module: ModuleType) -> None:
    def refusal(function: Any) -> tuple[str, str]:
        with pytest.raises(LanguageError) as refused:
            action_for(function)
        return refused.value.problems[0].message, refused.value.problems[0].hint

    clean, module.clean = module.clean, None  # type: ignore[attr-defined]

    assert refusal(module.made) == (
        "workers cannot import 'factory.<locals>.made': it is defined inside a function",
        "move it to the top of the module 'cleaning_steps'",
    )
    assert refusal(module.short) == ("a lambda cannot be a step", "write it as a function with 'def'")
    assert refusal(clean) == (
        "workers cannot import 'clean' from 'cleaning_steps': that name is something different there",
        "put @step above all other decorators, and keep the name of the function",
    )
    assert refusal("text".upper)[0] == "a step calls a function, and this is a builtin_function_or_method"
    assert refusal(3) == ("a step calls a function, and this is a int", "write a function with 'def' that calls it")


def test_a_refusal_points_at_the_function(module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(LanguageError) as refused:
        action_for(module.made)

    assert refused.value.render() == (
        f"error[language.function]: {tmp_path}/cleaning_steps.py:13:5: "
        "workers cannot import 'factory.<locals>.made': it is defined inside a function\n"
        "  13 |     def made(rows): return rows\n"
        "     |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^ move it to the top of the module 'cleaning_steps'"
    )


# -- scripts ---------------------------------------------------------------------------------------------------------

NIGHTLY = """
from mulligan import step

WORD = "rows of"

@step
def fetch(url):
    return f"{WORD} {url} in {__name__}"

if __name__ == "__main__":
    STARTED = True
"""


def test_the_whole_script_is_pinned_and_its_main_block_does_not_run(main: ModuleType, tmp_path: Path) -> None:
    script(main, tmp_path / "nightly.py", NIGHTLY)

    action = action_for(main.fetch)

    assert action == {"call": "nightly:fetch", "source": NIGHTLY, "file": str(tmp_path / "nightly.py")}
    assert run(action, "a") == "rows of a in nightly"


def test_the_path_of_a_script_is_relative_to_the_folder_of_the_run(
    main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flows").mkdir()
    script(main, tmp_path / "flows" / "nightly.py", NIGHTLY)
    monkeypatch.chdir(tmp_path)

    assert action_for(main.fetch)["file"] == "flows/nightly.py"


@pytest.mark.parametrize(
    ("file", "name"),
    [("my-flow.py", "script_my_flow"), ("json.py", "script_json"), ("2nd.py", "script_2nd"), ("for.py", "script_for")],
)
def test_a_script_hides_no_module_whatever_its_name(main: ModuleType, tmp_path: Path, file: str, name: str) -> None:
    script(main, tmp_path / file, NIGHTLY)

    assert action_for(main.fetch)["call"] == f"{name}:fetch"


def test_a_script_that_was_edited_or_removed_before_its_run_is_refused(main: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "nightly.py"
    script(main, file, NIGHTLY)

    file.write_text(NIGHTLY.replace("{WORD} {url}", "{url} {WORD}"))
    with pytest.raises(LanguageError, match="has changed since this process loaded it"):
        action_for(main.fetch)
    file.unlink()
    with pytest.raises(LanguageError, match="cannot be read any more"):
        action_for(main.fetch)


def test_an_edit_elsewhere_in_the_script_is_no_obstacle(main: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "nightly.py"
    script(main, file, NIGHTLY)

    file.write_text(NIGHTLY + "# the end\n")

    assert action_for(main.fetch)["source"].endswith("# the end\n")


def test_a_module_that_runs_as_a_script_by_name_is_imported_by_that_name(main: ModuleType, tmp_path: Path) -> None:
    script(main, tmp_path / "nightly.py", NIGHTLY)
    main.__spec__ = ModuleSpec("jobs.nightly", None)

    assert action_for(main.fetch) == {"call": "jobs.nightly:fetch"}


def test_a_function_inside_a_function_of_a_script_takes_its_values_along(main: ModuleType, tmp_path: Path) -> None:
    text = """
def double(x):
    return 2 * x

def make(n):
    def fetch(x):
        text = '''two
lines'''
        return [n, double(x), text]
    return fetch

five = make(5)
"""
    script(main, tmp_path / "nightly.py", text)

    action = action_for(main.five)

    assert action["call"] == "__main__:fetch"
    assert run(action, 4) == [5, 8, "two\nlines"]


# -- cells -----------------------------------------------------------------------------------------------------------


def test_a_function_of_a_cell_takes_along_what_it_uses_and_nothing_else(session: Session) -> None:
    session.cell("import threading\nlock = threading.Lock()\nWORD = 'rows'\nOTHER = 'no'\n")
    session.cell("def helper(x):\n    return f'{WORD} of {x}'\n")
    session.cell("@step\ndef fetch(url):\n    '''Fetch.'''\n    return helper(url)  # a comment\n")

    assert session.action() == {
        "call": "__main__:fetch",
        "source": (
            "\nWORD = 'rows'\n"
            "\ndef helper(x):\n    return f'{WORD} of {x}'\n"
            "\ndef fetch(url):\n    '''Fetch.'''\n    return helper(url)  # a comment\n"
        ),
    }
    assert session.result("a") == "rows of a"


def test_later_cells_do_not_change_what_was_pinned(session: Session) -> None:
    session.cell("WORD = 'first'\n")
    session.cell("def fetch():\n    return WORD\n")
    action = session.action()

    session.cell("WORD = 'second'\ndef fetch():\n    return 'third'\n")

    assert run(action) == "first"
    assert session.result() == "third"


@pytest.mark.parametrize(
    ("before", "expression", "value"),
    [
        ("import math", "math.sqrt(4)", 2.0),
        ("import os.path as p", "p.join('a', 'b')", "a/b"),
        ("import xml.etree.ElementTree", "xml.etree.ElementTree.fromstring('<a/>').tag", "a"),
        ("from math import sqrt as root", "root(4)", 2.0),
        ("from os import environ", "type(environ).__name__", "_Environ"),
        ("from collections import deque", "list(deque([1]))", [1]),
        ("X = {'a': [1, (2,), {3}, frozenset(), None, b'x', 1j]}", "len(X['a'])", 7),
        ("X = set()", "len(X)", 0),
        ("X = float('inf')", "X > 1", True),
        ("from pathlib import Path\nX = Path('a') / 'b'", "str(X)", "a/b"),
        ("from datetime import date, timedelta\nX = date(2026, 1, 2) + timedelta(1)", "X.isoformat()", "2026-01-03"),
        ("from decimal import Decimal\nX = [Decimal('1.5')]", "str(X[0])", "1.5"),
        ("import re\nX = re.compile('a+', re.I)", "X.match('AA').group()", "AA"),
        ("import logging\nX = logging.getLogger('shop')", "X.name", "shop"),
        ("Rows = list[dict[str, int]]", "str(Rows)", "list[dict[str, int]]"),
        ("from typing import Optional\nX = Optional[int]", "str(X)", "typing.Optional[int]"),
        ("from collections import Counter\nX = Counter('aab')", "X['a']", 2),
    ],
)
def test_imports_and_constants_are_written_down(session: Session, before: str, expression: str, value: object) -> None:
    session.cell(before)
    session.cell(f"def fetch():\n    return {expression}\n")

    assert session.result() == value


def test_classes_of_the_session_are_taken_along(session: Session) -> None:
    session.cell("from dataclasses import dataclass\nfrom enum import Enum\nimport pickle\n")
    session.cell("class Size(Enum):\n    SMALL = 1\n\nclass Base:\n    pass\n")
    session.cell("@dataclass\nclass Row(Base):\n    name: str\n    size: 'Size' = Size.SMALL\n")
    session.cell("ROW = Row('a')\nBIGGEST = Size.SMALL\n")
    session.cell(
        "def fetch() -> 'Row':\n    again = pickle.loads(pickle.dumps(ROW))\n    return [again == ROW, BIGGEST.name]\n"
    )

    assert session.result() == [True, "SMALL"]


def test_the_last_definition_of_a_class_without_methods_counts(session: Session) -> None:
    session.cell("class Mark:\n    number = 1\n")
    session.cell("class Mark:\n    number = 2\n")
    session.cell("def fetch():\n    return Mark.number\n")

    assert session.result() == 2


def test_steps_can_be_called_as_plain_functions(session: Session) -> None:
    session.cell("@step\ndef parse(x):\n    return int(x)\n\nread = parse\n")
    session.cell("@step\ndef fetch(x):\n    return [parse.fn(x), read.fn(x)]\n")

    assert session.result("3") == [3, 3]


def test_a_function_that_takes_a_failure_gets_one(session: Session) -> None:
    session.cell("from mulligan import Failure\n")
    session.cell("@step\ndef fetch(failure: Failure, word: str = 'a'):\n    return [failure.code, word]\n")
    session.cell("other = fetch.options(name='other')\n")

    module, _, name = session.action("other")["call"].partition(":")
    found = getattr(pinned_modules.load(module, session.action("other")["source"], ""), name)

    arguments = convert_arguments(found, {"failure": {"code": "TIMEOUT"}})
    assert found(**arguments) == ["TIMEOUT", "a"]


def test_functions_that_use_each_other_and_themselves(session: Session) -> None:
    session.cell("def even(n):\n    return n == 0 or odd(n - 1)\n\ndef odd(n):\n    return n != 0 and even(n - 1)\n")
    session.cell("def fetch(n):\n    return even(n) if n < 100 else fetch(n - 100)\n")

    assert session.result(104) is True


def test_other_decorators_stay(session: Session) -> None:
    session.cell(
        "import functools\n"
        "def twice(function):\n"
        "    @functools.wraps(function)\n"
        "    def inner(x):\n"
        "        return 2 * function(x)\n"
        "    return inner\n"
    )
    session.cell("@step\n@twice\n@functools.lru_cache(maxsize=None)\ndef fetch(x):\n    return x\n")

    assert session.result(3) == 6


def test_locals_that_are_called_like_something_of_the_session_are_not_it(session: Session) -> None:
    session.cell("import threading\nlock = threading.Lock()\nrow = threading.Lock()\n")
    session.cell("def fetch(lock):\n    return [row.lock for row in [lock]] if False else lock\n")

    assert session.result(1) == 1


def test_annotations_count_only_if_they_are_evaluated(session: Session) -> None:
    session.cell("Later = object()\n")
    session.cell("from __future__ import annotations\ndef fetch(x: Later) -> Later:\n    return x\n")

    assert session.result(1) == 1


def test_async_functions_and_closures_over_values(session: Session) -> None:
    session.cell(
        "def make(word):\n    async def fetch(x):\n        return word + x\n    return fetch\n\nfetch = make('a')\n"
    )

    coroutine = session.result("b")

    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value == "ab"


def test_what_cannot_be_written_down_is_refused_with_its_name(session: Session) -> None:
    hint = "create it inside the function, let a step return it, or put both into a module"
    session.main.__dict__["lock"] = threading.Lock()
    session.cell("def helper():\n    return lock\ndef fetch():\n    return helper()\n")

    assert session.refusal() == ("'helper' uses 'lock', a _thread.lock, which cannot be written as source", hint)

    session.cell("import threading\nLOCKS = {'a': [threading.Lock()]}\ndef fetch():\n    return LOCKS\n")

    message = "'fetch' uses 'LOCKS', a dict with a _thread.lock inside, which cannot be written as source"
    assert session.refusal() == (message, hint)

    session.cell("import sqlite3\ndb = sqlite3.connect(':memory:')\ndef fetch():\n    return db\n")

    assert session.refusal()[0] == "'fetch' uses 'db', a sqlite3.Connection, which cannot be written as source"
    session.main.__dict__["db"].close()


def test_a_refusal_points_below_the_decorators(session: Session) -> None:
    session.main.__dict__["lock"] = threading.Lock()
    session.cell("@step(\n    timeout='1m',\n)\ndef fetch():\n    return lock\n")

    with pytest.raises(LanguageError) as refused:
        session.action()

    assert (refused.value.problems[0].line, refused.value.problems[0].source_line) == (4, "def fetch():")


def test_large_constants_are_refused(session: Session) -> None:
    session.cell("ROWS = list(range(100_000))\ndef fetch():\n    return ROWS\n")

    assert session.refusal()[0] == "'fetch' uses 'ROWS', a list, which cannot be written as source"


def test_functions_without_source_are_refused(session: Session) -> None:
    exec("def fetch(): return 1", session.main.__dict__)

    assert session.refusal() == (
        "the source of 'fetch' is not available",
        "define it in a file or in a notebook cell, not by 'exec'",
    )


def test_one_name_for_two_things_is_refused(session: Session) -> None:
    session.cell("def make(n):\n    def inner():\n        return n\n    return inner\n\none, two = make(1), make(2)\n")
    session.cell("def fetch():\n    return one() + two()\n")

    assert session.refusal()[0] == "'inner' stands for two different things in what 'fetch' uses"


def test_a_name_that_is_not_defined_yet_is_the_functions_own_failure(session: Session) -> None:
    session.cell("def fetch():\n    return later\n")

    with pytest.raises(NameError):
        session.result()
