"""Mutation, for a moment: the changes that it makes, and a small project in which each kind of end is met."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from proof.mutation.children import Say, fork
from proof.mutation.judged import Judgement, faults, read
from proof.mutation.ledger import Ledger
from proof.mutation.line_coverage import Killer, LineCoverage
from proof.mutation.mutant_runs import Result
from proof.mutation.mutants import Mutant, Source
from proof.mutation.parts import PARTS, project_of
from proof.mutation.project import Project
from proof.mutation.trial import first_to_fail

ROOT = Path(__file__).parents[2]

# -- what is changed -------------------------------------------------------------------------------------------------


def changes(folder: Path, text: str) -> list[str]:
    path = folder / "changed.py"
    path.write_text(dedent(text))
    return [mutant.name for mutant in Source(path, "changed").mutants()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", ["return None", "return a <= b"]),
        ("return a is b", ["return None", "return a is not b"]),
        ("return not a", ["return None", "return a"]),
        ("return a and b", ["return None", "return a or b", "return b", "return a"]),
        ("return a + 1", ["return None", "return a - 1", "return a + 2"]),
        ("return a[1:]", ["return None", "return a[:]", "return a[2:]"]),
        ("return min(a, key=b)", ["return None", "return max(a, key=b)", "return min(a)"]),
        ("return sorted(a)", ["return None", "return list(a)"]),
        ("return [x for x in a if x]", ["return None", "return [x for x in a]"]),
        ("return a if b else 0.5", ["return None", "return a if not b else 0.5", "return a if b else 1.5"]),
        ("return True", ["return False"]),
        ("return 'no'", ["return 'XXno'"]),
        ("return f'{a}: no'", ["return None", "return f'XX{a}: no'"]),
        # What is as good as nothing already, and what only the type checker hears.
        ("return None", []),
        ("assert a is not None", []),
        ("b: int = a", []),
        # Statements are taken out; without an assignment to a name the rest would not run at all.
        ("a.append(b)", ["pass"]),
        ("a.x = b", ["pass"]),
        ("a += b", ["a -= b", "pass"]),
        ("raise a", ["pass"]),
        # A generator without its yield would be none any more.
        ("yield a", ["yield from ()"]),
        ("yield from a", ["yield from ()"]),
    ],
)
def test_a_line_is_changed_in_every_way_that_somebody_should_notice(tmp_path: Path, line: str, expected: list[str]):
    found = changes(tmp_path, f"def f(a, b):\n    {line}\n")

    assert found == [f"f: {line} -> {after}" for after in expected]


def test_conditions_are_turned_round_and_errors_are_let_through(tmp_path: Path):
    text = '''
        def f(a):
            """Docstrings stay."""
            if a:
                return
            while a.b():
                continue
            try:
                a()
            except ValueError:
                a.c()
    '''

    assert changes(tmp_path, text) == [
        "f: if a -> if not a",
        "f: return -> pass",
        "f: while a.b() -> while not a.b()",
        "f: continue -> pass",
        "f: a() -> pass",
        "f: except ValueError: a.c() -> except ValueError: raise",
        "f: except ValueError: a.c() -> except ValueError: pass",
    ]


def test_tables_lose_their_rows_and_defaults_change(tmp_path: Path):
    text = """
        TABLE = {"a": f, "b": g}

        class Row(Struct, frozen=True, tag="row"):
            size: int = 1

            def grow(self, by=2):
                return self
    """

    assert changes(tmp_path, text) == [
        "TABLE: TABLE = {'a': f, 'b': g} -> TABLE = {'b': g}",
        "TABLE: TABLE = {'a': f, 'b': g} -> TABLE = {'a': f}",
        "TABLE: TABLE = {'a': f, 'b': g} -> TABLE = {'XXa': f, 'b': g}",
        "TABLE: TABLE = {'a': f, 'b': g} -> TABLE = {'a': f, 'XXb': g}",
        "Row: tag='row' -> tag='XXrow'",
        "Row: size: int = 1 -> size: int = 2",
        "Row.grow: return self -> return None",
        "Row.grow (defaults): self, by=2 -> self, by=3",
    ]


def test_changes_that_read_the_same_are_numbered(tmp_path: Path):
    found = changes(tmp_path, "def f(a):\n    a()\n    a()\n")

    assert found == ["f: a() -> pass", "f: a() -> pass #2"]


# -- a run ------------------------------------------------------------------------------------------------------------

CODE = """
RATES = {"day": 10, "night": 20}


def price(hours, rate="day"):
    if hours < 0:
        return 0
    return hours * RATES[rate]


def spent(hours):
    while hours > 0:
        hours -= 1
    return hours
"""
TESTS = """
from toy.core.bill import price, spent


def test_a_day_costs_ten_an_hour():
    assert price(2) == 20


def test_nothing_is_owed_for_time_that_went_back():
    assert price(-1) == 0


def test_all_is_spent_in_the_end():
    assert spent(3) == 0
"""
HUNT = """
import sys
from pathlib import Path
from proof.mutation import trial
from proof.mutation.__main__ import main
from proof.mutation.project import Project

here = Path.cwd()
# These tests import nothing late, and two mutants take all the time that they have.
trial._SECONDS_AT_LEAST = 0.8
sys.exit(main(sys.argv[1:], Project(here, ("toy.core",), ("tests",), here / "judged.toml")))
"""
MEASURE = """
from pathlib import Path
from proof.mutation.project import Project
from proof.mutation.line_coverage import measure

here = Path.cwd()
measure(Project(here, ("toy.core",), ("tests",), here / "judged.toml"), False, print)
"""
# What no test says: what a night costs, and that less than an hour is owed for as well.
SURVIVORS = """\
# bill.py:2
[[bill]]
function = 'RATES'
change = "RATES = {'day': 10, 'night': 20} -> RATES = {'day': 10}"
kind = ""
why = ""

# bill.py:2
[[bill]]
function = 'RATES'
change = "RATES = {'day': 10, 'night': 20} -> RATES = {'day': 10, 'XXnight': 20}"
kind = ""
why = ""

# bill.py:2
[[bill]]
function = 'RATES'
change = "RATES = {'day': 10, 'night': 20} -> RATES = {'day': 10, 'night': 21}"
kind = ""
why = ""

# bill.py:6
[[bill]]
function = 'price'
change = 'hours < 0 -> hours <= 0'
kind = ""
why = ""

# bill.py:6
[[bill]]
function = 'price'
change = 'hours < 0 -> hours < 1'
kind = ""
why = ""
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for folder in ("src/toy/core", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/toy/core/bill.py").write_text(CODE)
    (tmp_path / "tests/test_bill.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["src"]\n')
    # As our own conftest.py: what is collected is not searched for garbage.
    (tmp_path / "conftest.py").write_text("import gc\n\ndef pytest_collection_finish(): gc.freeze()\n")
    return tmp_path


# Every mutant that is imported anew starts pytest: the plugins that happen to be installed are of no use to the toy.
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(toy: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HUNT, *options]
    return subprocess.run(command, cwd=toy, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_what_no_test_notices_is_found_and_judged_and_only_what_changed_is_tried_again(toy: Path):
    first = run(toy)

    assert first.stdout.splitlines()[:2] == [
        "module          mutants  killed  timed out  survived  judged   share",
        "bill                 20      13          2         5       0   75.0%",
    ]
    assert (toy / ".mutants/survivors/bill.toml").read_text() == SURVIVORS
    assert first.returncode == 1

    judged = SURVIVORS.replace('kind = ""\nwhy = ""', "kind = 'equivalent'\nwhy = 'nobody works at night'")
    (toy / "judged.toml").write_text(judged)
    again = run(toy)

    assert again.stdout.splitlines()[1] == "bill                 20      13          2         5       5   75.0%"
    assert "\n0 tried" in again.stdout
    assert again.returncode == 0


class Touching:
    """A project of one test that runs every line, and what it is known to run."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.digests = {"tests/test_bill.py": "as it is"}

    def test_digest(self, test: str) -> str:
        return self.digests[test.partition("::")[0]]

    def of(self, mutant: Mutant) -> list[Killer]:
        return [Killer("tests/test_bill.py::test_all_is_spent_in_the_end", 0.01, -1, 1)]


@pytest.mark.parametrize(
    ("status", "patience", "is_hunted"), [("survived", 5.0, False), ("survived", 9.0, True), ("killed", 9.0, False)]
)
def test_whoever_survived_since_time_was_short_is_hunted_by_those_who_have_more(
    tmp_path: Path, status: str, patience: float, is_hunted: bool
):
    path = tmp_path / "bill.py"
    path.write_text(CODE)
    mutant, touching = Source(path, "bill").mutants()[0], Touching(tmp_path)
    ledger = Ledger(touching, "bill", False)  # type: ignore[arg-type]
    first = ledger.task(mutant, touching, 5.0)  # type: ignore[arg-type]
    assert first is not None

    ledger.note(first, Result(0, status, "tests/test_bill.py::test_all_is_spent_in_the_end"))

    assert (ledger.task(mutant, touching, patience) is not None) == is_hunted  # type: ignore[arg-type]


def test_a_kill_is_known_while_the_killer_and_its_helpers_stay_the_same(toy: Path):
    def digest() -> str:
        project = Project(toy, ("toy.core",), ("tests",), toy / "judged.toml")
        return project.test_digest("tests/test_bill.py::test_a_day_costs_ten_an_hour[x]")

    tests = toy / "tests/test_bill.py"
    digests = [digest()]
    for change in (
        lambda text: text + "\n\ndef test_more():\n    pass\n",
        lambda text: text + "\n\ndef help():\n    pass\n",
        lambda text: text.replace("price(2) == 20", "price(3) == 30"),
    ):
        tests.write_text(change(tests.read_text()))
        digests.append(digest())

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.nightly
def test_whoever_survived_for_want_of_patience_is_hunted_again_with_more(toy: Path):
    (toy / "src/toy/core/bill.py").write_text("def price(hours):\n    return hours * 10\n")
    (toy / "tests/test_bill.py").write_text(TESTS.partition("def test_nothing")[0].replace(", spent", ""))

    impatient = run(toy, "--patience=-1")
    patient = run(toy)

    assert impatient.stdout.splitlines()[1] == "bill                  3       0          0         3       0    0.0%"
    assert patient.stdout.splitlines()[1] == "bill                  3       3          0         0       0  100.0%"


def test_a_test_that_looks_at_a_table_itself_is_asked_about_it(toy: Path):
    """It runs nothing of the package: what it looks at was made when it was imported."""
    (toy / "tests/test_rates.py").write_text(
        "from toy.core.bill import RATES\n\n\ndef test_night():\n    assert RATES\n"
    )
    project = Project(toy, ("toy.core",), ("tests",), toy / "judged.toml")
    mutant = next(mutant for mutant in project.sources["bill"].mutants() if mutant.unit.name == "RATES")

    measured(toy)

    assert "tests/test_rates.py::test_night" in {killer.test for killer in LineCoverage(project).of(mutant)}


def measured(toy: Path) -> None:
    """In a process of its own: the tests of a project are imported to be measured."""
    command = [sys.executable, "-c", MEASURE]
    subprocess.run(command, cwd=toy, env=ENVIRONMENT, capture_output=True, check=True)


class _Passing:
    """A test that passes, as pytest would hand it over."""

    nodeid = "test_it"

    def __init__(self) -> None:
        self.ihook = self
        self.limits: list[float] = []

    def pytest_runtest_protocol(self, item: object, nextitem: object) -> None:
        self.limits.append(signal.getitimer(signal.ITIMER_PROF)[0])


class _Session:
    """As much of a session as a trial asks for."""

    def __init__(self) -> None:
        self.config = self.pluginmanager = self

    def register(self, plugin: object) -> None:
        pass


def test_a_forked_process_dies_with_the_one_that_forked_it():
    def middle(say: Say) -> None:
        with fork(lambda _: signal.pause()) as inner:
            say(str(inner.pid))
            signal.pause()

    with fork(middle) as outer:
        inner = int(outer.hears.readline())
        gone = os.pidfd_open(inner)

    assert select.select([gone], [], [], 60)[0] == [gone]
    os.close(gone)


def test_a_limit_is_for_a_test_and_not_for_what_is_collected_after_it():
    test = _Passing()

    found = first_to_fail(_Session(), [(test, 9.0)], 60.0)  # type: ignore[arg-type, list-item]

    assert (found, len(test.limits)) == ("", 1)
    assert test.limits[0] > 9.0
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


# -- what was judged -------------------------------------------------------------------------------------------------


def test_what_is_judged_exists_has_a_kind_and_a_reason_and_is_judged_once():
    good = Judgement("bill", "price", "a -> b", "equivalent", "it is the same")
    names = {"bill": {good.name}}

    assert list(faults([good], names)) == []
    assert list(faults([good, good], names)) == ["bill: price: a -> b: judged twice"]
    assert list(faults([good._replace(change="b -> a")], names)) == ["bill: price: b -> a: there is no such change"]
    assert list(faults([good._replace(why="")], names)) == [
        "bill: price: a -> b: needs a kind (equivalent, wording, cost, unreachable) and a reason"
    ]


@pytest.mark.nightly
def test_every_change_that_was_judged_still_exists():
    judgements = read(project_of("core").judged)
    judged = {one.module for one in judgements}

    sources = [source for part in PARTS for source in project_of(part).sources.values() if source.module in judged]
    names = {source.module: {mutant.name for mutant in source.mutants()} for source in sources}

    assert list(faults(judgements, names)) == []


def test_a_module_has_one_name_in_all_parts():
    found = {(source.module, source.path) for part in PARTS for source in project_of(part).sources.values()}

    assert len(found) == len({module for module, _ in found})
