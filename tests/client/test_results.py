"""`run.result`: outputs as what they were in the step, or as what the program asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

import mulligan
from mulligan import Workflow
from mulligan.client.results import ResultUnreadable, read_result
from mulligan.values.files import KEY

SRC = Path(__file__).parent.parent.parent / "src"
SHOP = """
import dataclasses
from datetime import datetime


@dataclasses.dataclass
class Order:
    number: int
    at: datetime


def find_order() -> Order:
    return Order(7, datetime(2026, 11, 16, 12, 0))


def double(n: int) -> Order:
    return Order(n * 2, datetime(2026, 11, 16))


def keep() -> dict:
    import mulligan
    open("report.txt", "w").write("fine")
    return {"file": mulligan.artifact("report.txt")}


def table():
    import pandas
    return pandas.DataFrame({"n": [1, 2, 3]})
"""


@pytest.fixture
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose functions are steps, imported by the program."""
    Path("shop_of_results.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "shop_of_results", raising=False)
    return __import__("shop_of_results")


def orders() -> Workflow:
    flow = Workflow("orders").step("find", python={"call": "shop_of_results:find_order"})
    double = {"python": {"call": "shop_of_results:double"}, "args": {"n": "${item}"}}
    flow.step("each", map={"over": [1, 2]}, do=[double])
    return flow.outputs(order="${steps.find.output}")


def test_an_output_is_what_the_function_of_its_step_returns(shop: ModuleType):
    run = mulligan.run(orders())

    at = datetime(2026, 11, 16)
    assert run.result("find") == shop.Order(7, datetime(2026, 11, 16, 12, 0))
    assert run.result("each") == [shop.Order(2, at), shop.Order(4, at)]
    # What expressions see stays plain.
    assert run.steps["find"].output == {"number": 7, "at": "2026-11-16T12:00:00"}
    assert run.outputs == {"order": {"number": 7, "at": "2026-11-16T12:00:00"}} == run.result()


def test_an_output_is_plain_if_its_function_was_not_imported(shop: ModuleType, monkeypatch: pytest.MonkeyPatch):
    run = mulligan.run(orders())
    monkeypatch.delitem(sys.modules, "shop_of_results")

    assert run.result("find") == {"number": 7, "at": "2026-11-16T12:00:00"}
    assert run.result("find", type=shop.Order) == shop.Order(7, datetime(2026, 11, 16, 12, 0))


def test_a_table_is_read_as_what_it_was(shop: ModuleType):
    pandas = pytest.importorskip("pandas")
    flow = Workflow("w").step("table", python={"call": "shop_of_results:table"}).outputs(all="${steps.table.output}")

    run = mulligan.run(flow)

    for table in (run.result("table"), run.result("table", type=pandas.DataFrame), run.result()["all"]):
        assert isinstance(table, pandas.DataFrame)
        assert list(table["n"]) == [1, 2, 3]


@pytest.mark.parametrize("is_imported", [True, False])
def test_a_kept_file_is_its_bytes_or_its_path_whatever_was_imported(
    shop: ModuleType, is_imported: bool, monkeypatch: pytest.MonkeyPatch
):
    run = mulligan.run(Workflow("w").step("keep", python={"call": "shop_of_results:keep"}))
    if not is_imported:
        monkeypatch.delitem(sys.modules, "shop_of_results")

    (kept,) = run.steps["keep"].attempts[0].artifacts

    assert run.result("keep") == run.result("keep", type=dict[str, bytes]) == {"file": b"fine"}
    assert run.result("keep", type=dict[str, Path]) == {"file": Path(kept.path)}
    assert Path(kept.path).read_text() == "fine"


def test_the_path_of_a_file_that_is_kept_elsewhere_lasts_as_long_as_the_program():
    store = StoreWithoutFiles()

    path = read_result(store, "the output", {KEY: store.description}, Path)  # type: ignore[arg-type]

    assert (path.name, path.read_text()) == ("report.txt", "fine")


class StoreWithoutFiles:
    description: ClassVar = {"name": "1/keep/1/report.txt", "size": 4, "format": "file"}

    @property
    def runs(self) -> StoreWithoutFiles:
        return self

    def read_artifact(self, description: object) -> bytes:
        assert description == self.description
        return b"fine"

    def artifact_path(self, description: object) -> str:
        return ""


def test_an_output_that_does_not_fit_is_refused_with_its_field():
    run = mulligan.run(Workflow("w").step("s", shell="""echo '{"at": "soon"}'""", capture="json"))

    with pytest.raises(ResultUnreadable, match="the output of step 's' cannot be read: ") as refused:
        run.result("s", type=dict[str, datetime])

    assert "at" in refused.value.message
    assert refused.value.__notes__ == ["without a type, its plain value is: run.steps[…].output"]


def test_a_step_without_output_has_no_result():
    run = mulligan.run(Workflow("w").step("s", shell="exit 1"))

    assert run.result("s") is None
    with pytest.raises(KeyError, match="run 1 has no step 't'"):
        run.result("t")


def test_an_attempt_has_what_it_reported_and_the_files_that_it_kept():
    code = """
def main():
    import mulligan
    mulligan.progress(3, 4, "nearly")
    open("report.txt", "w").write("fine")
    mulligan.artifact("report.txt")
"""
    flow = Workflow("w").step("s", python=code).step("each", map={"over": [1]}, do=[{"python": code}])
    run = mulligan.run(flow)

    for attempt in (*run.steps["s"].attempts, *run.steps["each"].items[0].attempts):
        assert attempt.progress is not None
        assert (attempt.progress.done, attempt.progress.total, attempt.progress.text) == (3, 4, "nearly")
        assert [(kept.file, Path(kept.path).read_text()) for kept in attempt.artifacts] == [("report.txt", "fine")]


@pytest.mark.nightly
def test_a_script_gets_the_results_of_its_own_functions(folder: Path):
    Path("script.py").write_text(
        """
from datetime import date

from mulligan import flow, step


@step
def today() -> date:
    return date(2026, 11, 16)


@flow
def daily():
    return {"day": today()}


if __name__ == "__main__":
    print(repr(daily.run().result("today")))
"""
    )

    said = subprocess.run(
        [sys.executable, "script.py"], env={**os.environ, "PYTHONPATH": str(SRC)}, capture_output=True, text=True
    )

    assert (said.stdout, said.stderr) == ("datetime.date(2026, 11, 16)\n", "")
