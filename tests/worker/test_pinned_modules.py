"""Functions whose source is pinned with the run: scripts and notebook cells, as modules of a warm child."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")


def pinned(work: Work, source: str, args: dict[str, Any] | None = None, **params: Any) -> TaskEnded:
    return work.run(work.lease("python", {"call": "nightly:fetch", "source": source, "args": args or {}, **params}))


def test_a_function_of_the_source_is_called_as_if_it_was_imported(work: Work) -> None:
    report = pinned(work, "def fetch(url): return [url, __name__]", {"url": "a"})

    assert (report.outcome, report.output) == (Outcome(), ["a", "nightly"])


def test_the_main_block_of_a_script_does_not_run(work: Work) -> None:
    source = "def fetch(): return 1\nif __name__ == '__main__':\n    raise SystemExit(3)\n"

    assert pinned(work, source).output == 1


def test_the_source_is_executed_once_for_the_steps_of_a_child(work: Work) -> None:
    source = "CALLS = []\ndef fetch():\n    CALLS.append(1)\n    return len(CALLS)\n"

    assert [pinned(work, source).output for _ in range(3)] == [1, 2, 3]


def test_two_texts_of_one_name_are_kept_apart(work: Work) -> None:
    first, second = "import sys\nWORD = 'a'", "import sys\nWORD = 'b'"
    body = "\ndef fetch(): return [WORD, sys.modules[__name__].WORD]\n"

    found = [pinned(work, text + body, call="__main__:fetch").output for text in (first, second, first)]

    assert found == [["a", "a"], ["b", "b"], ["a", "a"]]


def test_dataclasses_annotations_and_pickles_find_their_module(work: Work) -> None:
    source = """
from __future__ import annotations
import pickle, typing
from dataclasses import dataclass

@dataclass
class Row:
    name: str
    size: Size

class Size(int): pass

def fetch():
    row = pickle.loads(pickle.dumps(Row("a", Size(3))))
    return [row.name, row.size, typing.get_type_hints(Row)["size"].__name__]
"""

    assert pinned(work, source).output == ["a", 3, "Size"]


def test_modules_beside_the_script_can_be_imported_also_later(work: Work) -> None:
    (work.folder / "flows").mkdir()
    (work.folder / "flows" / "early.py").write_text("A = 1")
    (work.folder / "flows" / "late.py").write_text("B = 2")
    source = "import early\nfrom pathlib import Path\ndef fetch(late):\n    if late:\n        import late\n"
    source += "        return [early.A, late.B, Path(__file__).name]\n"

    pinned(work, source, {"late": False}, file="flows/nightly.py")
    work.run_python("def main(): pass")

    assert pinned(work, source, {"late": True}, file="flows/nightly.py").output == [1, 2, "nightly.py"]


def test_a_traceback_shows_the_pinned_lines_although_the_file_has_changed(work: Work) -> None:
    (work.folder / "nightly.py").write_text("# now different\n" * 5)

    outcome = pinned(work, "def fetch():\n    raise ValueError('no')\n", file="nightly.py").outcome

    assert outcome.message == "ValueError: no"
    assert f'File "{work.folder}/nightly.py", line 2, in fetch\n    raise ValueError' in outcome.trace


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        (
            "import sys\nsys.exit(2)",
            "RuntimeError: 'nightly.py' exits when it is loaded: put that under 'if __name__ == \"__main__\":'",
        ),
    ],
)
def test_source_that_fails_while_it_is_loaded_fails_the_step_each_time(work: Work, source: str, message: str) -> None:
    outcomes = [pinned(work, source, file="nightly.py").outcome for _ in range(2)]

    assert [(each.code, each.message) for each in outcomes] == [("EXCEPTION", message)] * 2
