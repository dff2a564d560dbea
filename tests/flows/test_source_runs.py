"""Runs of flows in scripts, notebook cells and files: what is pinned runs, whoever goes on with the run."""

from __future__ import annotations

import linecache
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.commands import SRC, mulligan
from tests.support.pipes import Pipe

from mulligan import flow, step
from mulligan.errors import LanguageError

pytestmark = pytest.mark.usefixtures("forked_children")

# The second step waits for a reader of `pipe` the first time, and is quick the second.
NIGHTLY = """\
from __future__ import annotations

import os
import time
from dataclasses import dataclass

import helpers
from mulligan import flow, step

FOLDER = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Row:
    name: str


@step
def fetch(url: str) -> list[str]:
    with open("fetched", "a") as file:
        print("x", file=file)
    return [Row(url).name, helpers.word(), os.path.basename(FOLDER)]


@step
def load(rows: list[str], table: str) -> str:
    if os.path.exists("pipe"):
        with open("pipe", "w") as pipe:
            pipe.write("on")
        time.sleep(60)
    return " ".join([*rows, table, __name__])


@flow
def nightly(url: str, table: str = "facts"):
    return {"loaded": load(fetch(url), table)}


if __name__ == "__main__":
    run = nightly.run(url="here")
    print(run.status, run.outputs["loaded"])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MULLIGAN_HOME", "MULLIGAN_STORE", "MULLIGAN_DEBUG", "MULLIGAN_BY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, text: str) -> Path:
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def python(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def test_the_run_of_a_killed_script_goes_on_in_another_process_with_the_source_that_it_had() -> None:
    written("flows/helpers.py", "def word():\n    return 'helped'\n")
    script = written("flows/nightly.py", NIGHTLY)
    pipe = Pipe()
    child = python(str(script))
    pipe.hear()
    pipe.remove()
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    script.write_text(NIGHTLY.replace('" ".join', '"-".join'))

    said = mulligan("resume", "--json")

    assert (child.returncode, said.code, said.json["status"]) == (-signal.SIGKILL, 0, "completed")
    assert said.json["outputs"] == {"loaded": "here helped flows facts nightly"}
    assert Path("fetched").read_text() == "x\n"


def test_a_file_with_a_flow_runs_with_inputs_and_its_functions_are_imported_by_name() -> None:
    written("flows/helpers.py", "def word():\n    return 'helped'\n")
    written("flows/nightly.py", NIGHTLY)

    said = mulligan("run", "flows/nightly.py", "-i", "url=here", "-i", "table=sales", "--json")

    assert (said.code, said.json["outputs"]) == (0, {"loaded": "here helped flows sales flows.nightly"})


SEVERAL = """\
from mulligan import flow, step

@step
def say(word: str) -> str:
    return word

@flow
def daily(word: str = "day"):
    return say(word)

@flow
def weekly():
    return daily("week")
"""


def test_the_flow_that_calls_the_others_is_meant_unless_another_one_is_named() -> None:
    written("jobs.py", SEVERAL)

    assert '"name": "weekly"' in mulligan("validate", "jobs.py", "--json").out
    assert mulligan("run", "jobs.py:daily", "--json").json["outputs"] == {"result": "day"}
    assert mulligan("graph", "jobs.py:daily").code == 0


@pytest.mark.parametrize(
    ("ending", "refusal"),
    [
        (
            "daily.run()\n",
            "error[language.script]: jobs.py:14:1: the file starts a run while it is loaded\n"
            "  14 | daily.run()\n"
            "     | ^^^^^^^^^^^ put it under 'if __name__ == \"__main__\":'\n",
        ),
        (
            "@flow\ndef hourly():\n    return say(nope)\n\nworkflow = hourly\n",
            "error[language.python]: jobs.py:16:5: NameError: name 'nope' is not defined\n"
            "  16 |     return say(nope)\n"
            "     |     ^^^^^^^^^^^^^^^^\n",
        ),
    ],
)
def test_a_file_that_runs_or_fails_while_it_is_loaded_is_refused(ending: str, refusal: str) -> None:
    written("jobs.py", SEVERAL + ending)

    said = mulligan("run", "jobs.py")

    assert (said.code, said.err) == (2, refusal)


@pytest.mark.parametrize("words", [["jobs.py"], ["-m", "jobs"]])
def test_a_script_that_runs_at_its_top_level_is_refused_before_its_run_exists(words: list[str]) -> None:
    written("jobs.py", SEVERAL + "daily.run()\n")
    child = python(*words)

    _, said = child.communicate(timeout=60)

    assert child.returncode == 1
    assert "the script starts a run at its top level, which workers execute to get its functions" in said
    assert mulligan("list", "--json").json == []


# -- cells -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    vars(module).update(flow=flow, step=step)
    return module


def cell(main: ModuleType, text: str) -> None:
    name = f"<cell {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec", dont_inherit=True), vars(main))


def test_cells_run_as_they_were_when_the_run_began(main: ModuleType) -> None:
    cell(main, "import os\nfrom dataclasses import dataclass\nGREETING = 'hello'\n")
    cell(
        main,
        "@dataclass\nclass Person:\n    name: str\n\n    def greeted(self):\n        return [GREETING, self.name]\n",
    )
    cell(
        main,
        "@step\ndef greet(name: str) -> str:\n    if not os.path.exists('ready'):\n"
        "        raise ValueError('not ready')\n    return ' '.join(Person(name).greeted())\n",
    )
    cell(main, "@flow\ndef greetings(name: str):\n    return {'said': greet(name)}\n")
    run = main.greetings.run(name="you")
    before = run.status
    cell(main, "GREETING = 'goodbye'\n@step\ndef greet(name: str) -> str:\n    return 'nothing'\n")
    Path("ready").touch()

    said = mulligan("retry", run.id, "--follow", "--json")

    assert (before, said.json["status"], said.json["outputs"]) == ("failed", "completed", {"said": "hello you"})


def test_a_handler_of_a_cell_receives_a_failure(main: ModuleType) -> None:
    cell(main, "from mulligan import Failure\n\n@step\ndef greet() -> str:\n    raise ValueError('no')\n")
    cell(main, "@greet.handler\ndef repair(failure: Failure) -> str:\n    return failure.code\n")
    cell(main, "@flow\ndef greetings():\n    return {'said': greet()}\n")

    assert main.greetings.run().outputs == {"said": "EXCEPTION"}


def test_each_run_of_a_session_takes_what_the_session_has_then(main: ModuleType) -> None:
    cell(main, "WORD = 'first'\n\n@step\ndef say() -> str:\n    return WORD\n")
    cell(main, "@flow\ndef saying():\n    return [say(), say()]\n")
    first = main.saying.workflow().check()
    cell(main, "WORD = 'second'\n")
    second = main.saying.workflow().check()

    assert [step.action.params["source"].split()[2] for flow in (first, second) for step in flow.steps] == (
        ["'first'", "'first'", "'second'", "'second'"]
    )


def test_what_a_cell_cannot_take_along_is_refused_before_the_run_exists(main: ModuleType) -> None:
    cell(main, "import threading\nlock = threading.Lock()\n\n@step\ndef greet():\n    return lock\n")
    cell(main, "@flow\ndef greetings():\n    greet()\n")

    with pytest.raises(LanguageError, match=r"'greet' uses 'lock', a _thread\.lock"):
        main.greetings.run()

    assert mulligan("list", "--json").json == []


def test_a_rule_for_a_class_of_a_cell_matches_what_a_worker_raises(main: ModuleType) -> None:
    cell(main, "class Closed(Exception):\n    pass\n\nclass Shut(Closed):\n    pass\n")
    code = "import os\nfrom mulligan import Retry\n\n@step(retry=Retry(exceptions=Closed, max_retries=1))\n"
    code += (
        "def greet() -> str:\n    if os.environ['MULLIGAN_ATTEMPT'] == '1':\n        raise Shut\n    return 'hello'\n"
    )
    cell(main, code)
    cell(main, "@flow\ndef greetings():\n    return {'said': greet()}\n")

    assert main.greetings.run().outputs == {"said": "hello"}


CLASSES = """\
import os

import problems
from mulligan import Retry, flow, step


class Closed(Exception):
    pass


class Shut(Closed):
    pass


@step(retry=Retry(rules=[Retry(exceptions=[Closed, problems.Late], max_retries=2)]))
def fetch():
    if os.environ["MULLIGAN_ATTEMPT"] == "1":
        raise Shut
    if os.environ["MULLIGAN_ATTEMPT"] == "2":
        raise problems.TooLate


@flow
def nightly():
    fetch()


if __name__ == "__main__":
    print(nightly.run().status)
"""


@pytest.mark.parametrize("words", [["nightly.py"], ["-m", "nightly"], ["-m", "mulligan", "run", "nightly.py"]])
def test_a_rule_for_classes_of_a_script_matches_however_it_is_started(words: list[str]) -> None:
    written("nightly.py", CLASSES)
    written("problems.py", "class Late(Exception): pass\nclass TooLate(Late): pass\n")

    out, err = python(*words).communicate(timeout=60)

    assert "completed" in out + err
