"""Runs in a notebook: a real kernel executes cells, and the display that follows a run is drawn into a fake cell."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbclient
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

import mulligan
from mulligan import Workflow
from mulligan.client import notebook
from mulligan.client.notebook import CellOutput, NotebookDisplay
from mulligan.errors import StoreUnavailable
from mulligan.service.driving.outcome import Outcome
from mulligan.service.driving.run_progress import RunProgress
from mulligan.testing.history import History, step, workflow

# -- a real kernel ---------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/how-to/notebooks.md"
NAMES = ("define", "run", "values", "result", "story", "list", "waiting", "approved")
MORE = {
    "run as result": "nightly.run()",
    "escaped": 'mulligan.Workflow("<b>").step("say", shell="echo \'<script>alert(1)</script>\' >&2; false")',
    "escaped run": "mulligan.run(_)",
    "interrupted": 'mulligan.run(mulligan.Workflow("endless").step("hang", shell="exec sleep 600"))',
    "after": "home.get('latest').cancel(now=True).status",
}


def cells() -> dict[str, str]:
    """The blocks of the page, and a few more."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return {**dict(zip(NAMES, found, strict=True)), **MORE}


class Notebook(nbclient.NotebookClient):
    """Executes a notebook, and interrupts its kernel when the endless cell shows that its step runs."""

    interrupting: asyncio.Future[Any] | None = None

    def process_message(self, msg: Any, cell: NotebookNode, cell_index: int) -> Any:
        html = msg["content"].get("data", {}).get("text/html", "")
        if "hang" in html and 'mulligan-now">running</span></td>' in html and self.interrupting is None:
            assert self.km is not None
            self.interrupting = asyncio.ensure_future(self.km.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


def executed(folder: Path) -> dict[str, list[NotebookNode]]:
    """The outputs of each cell."""
    given = cells()
    notebook = new_notebook(cells=[new_code_cell(text) for text in given.values()])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MULLIGAN_", "PYTEST_"))}
    environ = {**kept, "IPYTHONDIR": str(folder / "ipython"), "JUPYTER_RUNTIME_DIR": str(folder / "jupyter")}
    client = Notebook(notebook, timeout=30, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environ)
    return dict(zip(given, (cell.outputs for cell in notebook.cells), strict=True))


def html_of(output: NotebookNode) -> str:
    return str(output.data["text/html"])


@pytest.mark.nightly
def test_the_page_on_notebooks_is_executed_and_shows_what_it_says(tmp_path: Path) -> None:
    outputs = executed(tmp_path)

    (graph,) = outputs["define"]
    assert "<svg" in html_of(graph) and graph.data["text/plain"] == "<flow nightly>"

    # What stays in place of the progress is the last state.
    (shown,) = outputs["run"]
    assert shown.output_type == "display_data"
    assert shown.data["text/plain"] == "run 1 of 'nightly': completed"
    assert 'mulligan-good">completed' in html_of(shown)
    assert "CONNECTION: connection reset" in html_of(shown) and "retried, then completed" in html_of(shown)
    assert "<svg" in html_of(shown) and "is-completed" in html_of(shown)
    (values,) = outputs["values"]
    assert values.data["text/plain"] == "({'total': 49}, 'CONNECTION')"
    (result,) = outputs["result"]
    assert (result.output_type, html_of(result)) == ("execute_result", html_of(shown))
    assert result.data["text/plain"].startswith("<Run 1 of 'nightly': completed in ")
    (story,) = outputs["story"]
    assert "retry 1 of 2" in html_of(story) and "retry 1 of 2" in story.data["text/plain"]
    (runs,) = outputs["list"]
    assert html_of(runs).count("nightly") == 1

    (waiting,) = outputs["waiting"]
    assert "run.approve(&#x27;gate&#x27;, reason=&#x27;…&#x27;)" in html_of(waiting)
    assert "waits for a person" in html_of(waiting)

    # A cell that ends with the run that it drove shows it once.
    for name in ("approved", "run as result", "escaped run"):
        followed, result = outputs[name]
        assert html_of(followed) == "" and "<svg" in html_of(result)
    assert 'mulligan-good">completed' in html_of(outputs["approved"][1])
    (built,), (_, broken) = outputs["escaped"], outputs["escaped run"]
    assert "&lt;b&gt;" in html_of(built) and "<b>" not in html_of(built)
    assert "&lt;script&gt;alert(1)" in html_of(broken) and "<script" not in html_of(broken)

    shown, error = outputs["interrupted"]
    assert shown.data["text/plain"] == "run 5 of 'endless': interrupted"
    assert "interrupted; to continue it: mulligan.open().get(5).resume()" in html_of(shown)
    assert error.output_type == "error" and error.ename == "KeyboardInterrupt"
    assert outputs["after"][-1].data["text/plain"] == "'cancelled'"


@pytest.mark.nightly
def test_a_program_outside_of_a_notebook_loads_nothing_for_notebooks(tmp_path: Path) -> None:
    program = """
import sys, mulligan
run = mulligan.run(mulligan.Workflow("plain").step("greet", shell="echo hello"))
assert run.status == "completed"
assert not {"IPython", "mulligan.client.notebook_html", "mulligan.service.rendering.page"} & set(sys.modules)
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


# -- the display -----------------------------------------------------------------------------------------------------


class Cell:
    """The parts of IPython that an output needs, a clock, and a store to read a run from."""

    def __init__(self) -> None:
        self.execution_count = 1
        self.shown: list[str] = []
        self.clock = 0.0
        # How long a reading takes.
        self.seconds = 0.0
        self.is_store_away = False
        self.display = NotebookDisplay(
            CellOutput(self, self.make),
            self.read,
            RunProgress(),
            folder="/home",
            home="mulligan.open()",
            clock=lambda: self.clock,
        )
        self.display.begin(1, "big")

    def make(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert not self.shown, "an output is made once, and updated then"
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        self.shown.append(data["text/html"])

    def read(self, run_id: int, note: str) -> str:
        if self.is_store_away:
            raise StoreUnavailable("the store is away")
        self.clock += self.seconds
        return f"run {run_id} {note}".rstrip()

    def ticks_for(self, seconds: float) -> int:
        """Let time pass, with ten ticks a second. How often the output changed."""
        before, until = len(self.shown), self.clock + seconds
        while self.clock < until:
            self.display.tick()
            self.clock += 0.1
        return len(self.shown) - before


def started(*names: str) -> History:
    return History(workflow(*map(step, names))).start()


def test_the_output_of_a_cell_changes_a_few_times_a_second_at_most() -> None:
    cell, run = Cell(), started("fetch", "load")
    changes = 0

    for _ in range(50):
        cell.display.committed(run.state, run.last)
        changes += cell.ticks_for(0.1)

    assert 10 <= changes <= 5.0 / notebook.FRAME_SECONDS + 1
    assert set(cell.shown) == {"run 1"}


def test_without_news_only_the_clock_moves_and_that_seldom() -> None:
    cell, run = Cell(), started("fetch")
    cell.display.committed(run.state, run.last)
    cell.display.tick()

    assert cell.ticks_for(10.0) <= 10.0 / notebook.IDLE_SECONDS


def test_an_engine_spends_little_of_its_time_on_drawing() -> None:
    cell, run = Cell(), started("fetch")
    cell.seconds = 0.1
    changes = 0

    for _ in range(200):
        cell.display.committed(run.state, run.last)
        changes += cell.ticks_for(0.1)

    assert changes * cell.seconds <= 20.0 / notebook.DRAWING_SHARE + 2 * cell.seconds


def test_a_run_that_is_slow_to_read_is_shown_from_memory_until_it_ends() -> None:
    cell, run = Cell(), started("fetch", "load")
    cell.seconds = 2 * notebook.LIVE_SECONDS_MAX
    cell.display.committed(run.state, run.last)
    cell.ticks_for(2.0)
    cell.display.committed(run.started("fetch").state, run.last)

    cell.ticks_for(30.0)
    assert cell.shown[0] == "run 1"
    assert "fetch" in cell.shown[-1] and "2 steps" in cell.shown[-1]

    cell.display.end(outcome("completed"))
    assert cell.shown[-1] == "run 1"


def test_a_run_of_many_steps_is_not_read_while_it_is_driven() -> None:
    cell, run = Cell(), started(*(f"s{n}" for n in range(notebook.LIVE_STEPS_MAX + 1)))
    cell.display.committed(run.state, run.log)

    cell.display.tick()

    assert "201 steps" in cell.shown[-1]


def test_trouble_with_the_store_is_shown_and_breaks_nothing() -> None:
    cell, run = Cell(), started("fetch")
    cell.display.committed(run.state, run.last)
    cell.display.trouble("the server is away; trying again")
    cell.is_store_away = True
    cell.display.tick()
    assert cell.shown == []

    cell.is_store_away = False
    cell.ticks_for(3.0)
    assert cell.shown[-1] == "run 1 the server is away; trying again"


def test_a_run_that_waits_or_was_interrupted_says_how_to_continue() -> None:
    waiting, interrupted = Cell(), Cell()

    waiting.display.end(outcome("running", "waiting"))
    interrupted.display.end(outcome("running", "interrupted"))

    assert waiting.shown == ["run 1"]
    assert interrupted.shown == ["run 1 interrupted; to continue it: mulligan.open().get(1).resume()"]


def outcome(status: str, ending: Any = "ended") -> Outcome:
    return Outcome(1, ending, status, "", "", 0.0, {}, [], [], {})


def test_a_terminal_with_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notebook.find_cell_output() is None

    shell = SimpleNamespace(execution_count=1)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=print))
    assert notebook.find_cell_output() is None

    shell.kernel = object()
    assert notebook.find_cell_output() is not None


# -- outside of a kernel ---------------------------------------------------------------------------------------------


def test_a_run_that_is_gone_is_shown_as_text(tmp_path: Path) -> None:
    flow = Workflow("nightly").step("greet", shell="echo hello")
    run = mulligan.run(flow, home=tmp_path / "home", show=False)
    assert "greet" in (run._repr_html_() or "")

    shutil.rmtree(tmp_path / "home")

    assert run._repr_html_() is None
    assert repr(run).startswith("<Run 1: ")


def test_a_workflow_shows_its_graph_and_an_empty_list_says_so(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("steps: [{step: fetch, shell: 'true'}, {step: load, needs: [fetch], shell: 'true'}]")

    assert "<svg" in mulligan.load(file)._repr_html_()
    assert "<svg" in (Workflow("nightly").step("greet", shell="echo hello")._repr_html_() or "")
    assert Workflow("nightly").step("greet", shel="echo hello")._repr_html_() is None
    assert "no runs" in mulligan.open(tmp_path / "home").runs()._repr_html_()
