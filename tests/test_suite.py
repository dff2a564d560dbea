"""The suite itself: where tests and their helpers are, what is left to the night, tests that fail only sometimes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider
from tests.support import forked_tests, memory, rows, unsteady
from tests.support.nightly import IS_NIGHTLY, leave_to_the_night
from tests.support.times import GENERATED, HERE, PROCESSES, Cost, Times, tables
from tests.support.unsteady import Repeat, RepeatFailed, Repeats, Round, describe, main, repeat_failed

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
# Without plugins that are not asked here: to load one takes longer than to run a test.
BARE = [
    word for name in ("xdist", "cacheprovider", "schemathesis", "anyio", "mulligan") for word in ("-p", f"no:{name}")
]
FOLDERS = sorted(folder for folder in TESTS.iterdir() if folder.is_dir() and folder.name != "__pycache__")
# Imports of what another folder tests: the same tests run again on another executor, and fixtures of one kind of test.
ALLOWED = {
    ("tests/dask_executor/test_contract.py", "tests.worker"),
    ("tests/dask_executor/test_contract.py", "tests.worker.conftest"),
    ("tests/formats/conftest.py", "tests.live.conftest"),
    ("tests/formats/prodigy/conftest.py", "tests.live.conftest"),
}


# -- where things are ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_folder_says_what_belongs_there_and_what_does_not(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")

    assert len(page.splitlines()) >= 2


def test_the_page_of_the_helpers_has_a_row_for_each_of_them() -> None:
    rows = re.findall(r"^\| \[(\w+\.py)\]\((\w+\.py)\) \| \S", (TESTS / "support/README.md").read_text(), re.MULTILINE)

    assert [name for name, link in rows if name != link] == []
    assert sorted(name for name, _ in rows) == sorted(path.name for path in (TESTS / "support").glob("*.py"))


def test_what_several_folders_use_is_in_the_package_of_helpers() -> None:
    found = {(str(file.relative_to(TESTS.parent)), module) for file in TESTS.rglob("*.py") for module in foreign(file)}

    assert found == ALLOWED


def foreign(file: Path) -> Iterator[str]:
    """The modules that a file imports from another folder of the tests."""
    place = file.relative_to(TESTS.parent).with_suffix("").parts
    text = file.read_text(encoding="utf-8")
    if not re.search(r"^\s*from (tests\.(?!support\b)|\.\.)", text, re.MULTILINE):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            above = place[: len(place) - node.level] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            parts = module.split(".")
            if parts[0] == "tests" and parts[1:2] not in ([], [place[1]], ["support"]):
                yield module


# -- day and night ---------------------------------------------------------------------------------------------------

MARKED = """
import pytest

@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.on_postgres)])
def store(request):
    return request.param

@pytest.mark.nightly
def test_long(): pass

def test_short(): pass

def test_of_a_store(store): pass

@pytest.mark.postgres
def test_of_rivals(store): pass

@pytest.mark.parametrize("rows", [1, pytest.param(9, marks=pytest.mark.nightly)])
def test_of_rows(rows): pass
"""


class Chosen:
    """Notes which tests are left."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        leave_to_the_night(config, items)
        self.names = [item.name for item in items]


def chosen(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    pytester.makeini(
        "[pytest]\nmarkers =\n  nightly\n  on_postgres\n  postgres\n",
    )
    pytester.makepyfile(test_it=MARKED)
    plugin = Chosen()
    pytester.inline_run("--collect-only", *BARE, *arguments, plugins=[plugin])
    return plugin.names


@pytest.mark.skipif(IS_NIGHTLY, reason="nothing is left out at night")
def test_by_day_what_is_marked_is_left_out_and_postgres_runs_where_it_matters(pytester: pytest.Pytester) -> None:
    assert chosen(pytester) == [
        "test_short",
        "test_of_a_store[memory]",
        "test_of_rivals[memory]",
        "test_of_rivals[postgres]",
        "test_of_rows[1]",
    ]


def test_a_test_of_the_night_that_is_named_runs_by_day(pytester: pytest.Pytester) -> None:
    assert chosen(pytester, "test_it.py::test_long") == ["test_long"]


# -- processes of the tests ------------------------------------------------------------------------------------------

FORKING = """
from tests.support.forked_tests import ForkTests

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ForkTests())
"""
ENDING = """
import os, signal, sys
import pytest
from tests.support import forked_tests

def say(to=sys.stderr):
    print("to whom it was when this was imported", file=to)

@pytest.mark.parametrize("number", range(6))
def test_of_a_number(number, capfd, tmp_path):
    say()
    assert forked_tests.was_forked()
    os.write(1, b"of a number")
    assert capfd.readouterr().out == "of a number"
    assert os.environ["PYTEST_XDIST_WORKER"] in str(tmp_path)
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        os._exit(3)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or "PYTEST_XDIST_WORKER" not in os.environ, reason="it has collected itself"
)
def test_the_processes_of_the_tests_are_forked_once_they_are_collected() -> None:
    assert forked_tests.was_forked()


@pytest.mark.nightly
def test_a_forked_process_that_dies_is_replaced_and_what_was_not_collected_is_told(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FORKING)
    pytester.makepyfile(test_ending=ENDING, test_wrong="import what_nobody_has")

    words = [sys.executable, "-m", "pytest", "-n2", "-pno:schemathesis", "-pno:anyio", "-pno:mulligan"]
    ran = pytester.run(*words)

    ran.assert_outcomes(passed=4, failed=2, errors=1)
    ran.stdout.fnmatch_lines(["*No module named 'what_nobody_has'", "*crashed while running*number?2?*"])


# -- tables of rows --------------------------------------------------------------------------------------------------

TABLES = """
import pytest

@pytest.fixture
def number(): return 2

@pytest.mark.parametrize("n", [1, 2, pytest.param(3, id="three"), 4])
def test_of_rows(n): assert n % 2 == 0, f"{n} is odd"

@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize(("b", "c"), [("x", "y"), ("z", "y")])
def test_of_two_tables(a, b, c): assert (a, b) != (2, "z"), f"{a}{b}{c}"

@pytest.mark.parametrize("n", [1, 2])
def test_of_a_row_that_is_skipped(n): n == 1 and pytest.skip("one"); assert n == 3, "a row behind it"

@pytest.mark.parametrize("n", [1, 2])
def test_of_rows_that_are_skipped(n): pytest.skip("all")

@pytest.mark.parametrize("n", [2])
def test_with_a_fixture(n, number): assert n == number

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.skip)])
def test_with_a_mark(n): pass
"""


class Folding:
    """Has the rows of each table in one item."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Module, name: str, obj: object) -> pytest.Item | None:
        return rows.folded(collector, name, obj)


def test_the_rows_of_a_table_are_one_item_and_all_that_fail_are_named(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(test_it=TABLES)

    result = pytester.inline_run(*BARE, "-v", plugins=[Folding()])

    printed = capsys.readouterr().out
    notes = [line.removeprefix("E").strip() for line in printed.splitlines() if line.startswith("E")]
    assert result.countoutcomes() == [2, 2, 3]
    assert notes[notes.index("2 of 4 rows failed:") :][1:3] == ["[1]", "[three]"]
    assert notes[notes.index("1 of 4 rows failed:") :][1:2] == ["['z', 'y'-2]"]
    assert all(text in printed for text in ("1 is odd", "2zy", "a row behind it"))
    assert {"test_it.py::test_with_a_fixture[2]", "test_it.py::test_with_a_mark[1]"} <= set(printed.split())


@pytest.mark.parametrize("more", ["-k rows", "test_it.py::test_of_rows"])
def test_rows_are_items_for_whoever_asks_for_some(pytester: pytest.Pytester, more: str) -> None:
    """And in the only process of the tests."""
    pytester.makepyfile(test_it=TABLES)

    assert not rows.is_folding(pytester.parseconfig(*BARE, *more.split()))


@pytest.mark.parametrize("is_one_of_several", [True, False])
def test_rows_are_folded_in_one_of_several_processes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, is_one_of_several: bool
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    if is_one_of_several:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")

    assert rows.is_folding(pytester.parseconfig(*BARE)) == (is_one_of_several and not IS_NIGHTLY)


# -- temporary folders and examples ----------------------------------------------------------------------------------


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """The tables of a kernel: a file system in memory at the folder of the test, and memory for it."""
    (tmp_path / "mounts").write_text(f"/dev/sda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw,nosuid 0 0\n")
    (tmp_path / "meminfo").write_text("MemTotal: 99000 kB\nMemAvailable: 9000 kB\n")
    return tmp_path


def test_memory_has_room_for_temporary_folders(proc: Path) -> None:
    assert memory.has_room(proc, proc, 1 << 20)


@pytest.mark.parametrize(
    ("table", "there", "then"),
    [("mounts", " tmpfs ", " ext4 "), ("meminfo", "Available: 9000", "Available: 900")],
)
def test_a_disk_or_little_memory_has_none(proc: Path, table: str, there: str, then: str) -> None:
    text = (proc / table).read_text()

    (proc / table).write_text(text.replace(there, then))

    assert not memory.has_room(proc, proc, 1 << 20)


def test_a_system_without_such_tables_has_none(tmp_path: Path) -> None:
    assert not memory.has_room(tmp_path, tmp_path / "proc", 1 << 20)


def test_a_process_that_outlives_its_test_is_found(tmp_path: Path) -> None:
    """By its folder, or by a word of its command line; one of another folder is not."""
    here, there = tmp_path / "here", tmp_path / "here too"
    here.mkdir(), there.mkdir()
    waiting = [sys.executable, "-S", "-c", "input()"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE))
            for words, folder in ((waiting, here), ([*waiting, f"{here}/x"], tmp_path), (waiting, there))
        ]

        assert memory.processes_in(here).keys() == {process.pid for process in started[:2]}


@pytest.mark.skipif(IS_NIGHTLY, reason="at night Hypothesis draws from all that is loaded")
def test_no_example_is_drawn_from_what_happens_to_be_loaded() -> None:
    assert list(HypothesisProvider(None)._local_constants) == []


# -- tests that fail only sometimes ----------------------------------------------------------------------------------

UNSTEADY = """
def test_sometimes(): assert False
def test_never(): pass
"""


def answers(*outcomes: bool) -> Callable[[str], Repeat]:
    """Runs of a test that pass and fail in turn."""
    turns = iter(outcomes)

    def run(nodeid: str) -> Repeat:
        is_passed = next(turns)
        return Repeat(is_passed, f"{nodeid} {'passed' if is_passed else 'failed'} alone")

    return run


def test_a_failed_test_that_passes_alone_is_unsteady_and_the_run_has_failed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=UNSTEADY)

    result = pytester.inline_run(*BARE, plugins=[RepeatFailed(answers(True, False, True, True, True), load=1)])

    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_of_an_unsteady_test_both_outputs_are_shown() -> None:
    (found,) = repeat_failed({"a.py::b": "first"}, answers(True, False, True, True, True), load=1)

    assert list(describe(found)) == [
        "unsteady: a.py::b",
        "  failed in this run; alone on a busy machine it passed 4 of 5 times",
        "  when it failed:",
        "    a.py::b failed alone",
        "  when it passed:",
        "    a.py::b passed alone",
    ]


def test_one_that_passes_each_time_alone_is_shown_as_it_failed_among_the_others() -> None:
    found = Repeats("a.py::b", "assert 1 == 2", [Repeat(True, "1 passed")] * 5)

    assert list(describe(found))[3:] == ["    assert 1 == 2", "  when it passed:", "    1 passed"]


def test_one_that_fails_each_time_is_not_unsteady() -> None:
    (found,) = repeat_failed({"a.py::b": "first"}, answers(False, False), load=1)

    assert list(describe(found)) == ["fails always: a.py::b, alone 2 of 2 times"]


def test_many_failures_are_not_repeated(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_it(n): assert False")

    result = pytester.inline_run(*BARE, plugins=[RepeatFailed(answers(), load=1)])

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "11 tests failed, too many for chance: none is repeated\n" in capsys.readouterr().out


def test_a_test_runs_alone_in_a_process_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=UNSTEADY)

    failed, passed = unsteady.run_alone("test_it.py::test_sometimes"), unsteady.run_alone("test_it.py::test_never")

    assert (failed.is_passed, passed.is_passed) == (False, True)
    assert "assert False" in failed.output


@pytest.mark.parametrize(("codes", "code"), [((0, 0, 0), 0), ((0, 1, 0), 1)])
def test_a_steady_suite_passes_each_of_its_rounds(
    codes: tuple[int, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = iter(codes)

    assert main([], lambda arguments, load: Round(next(turns), 60.0, float(load))) == code

    assert capsys.readouterr().out.count(" of 3: ") == 3


# -- what tests cost -------------------------------------------------------------------------------------------------


def test_each_test_is_counted_with_its_kind(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import subprocess, sys\n"
        "from hypothesis import given, strategies\n"
        "def test_a(): pass\n"
        "def test_b(): subprocess.run([sys.executable, '-S', '-c', ''], check=True)\n"
        "@given(strategies.integers())\n"
        "def test_c(n): pass\n"
    )
    plugin = Times(adds_up=True)

    pytester.inline_run(*BARE, plugins=[plugin])

    assert [cost.kind for cost in plugin.costs] == [HERE, PROCESSES, GENERATED]


def test_the_tables_have_the_dearest_first() -> None:
    costs = [Cost("tests/a/test_x.py::y", HERE, 1.0, 2.0), Cost("tests/b/test_x.py::y[a::b]", PROCESSES, 3.0, 3.0)]

    lines = [line.split("  ")[0] for line in tables(costs)]

    assert lines == ["kind", PROCESSES, HERE, "", "folder", "tests/b", "tests/a", ""]
