"""A stage for real processes: a home, a store, a journal that their steps write; and what must hold in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import mulligan
from mulligan.service.home import Home
from mulligan.service.service import Service
from mulligan.worker.supervisor.processes import environment_of, snapshot
from proof.invariants.run_invariants import check

Found = TypeVar("Found")

ACT = Path(__file__).with_name("act.sh")
# Where `mulligan` and `proof` are found by the processes that are started here.
ROOTS = (Path(mulligan.__file__).parents[1], Path(__file__).parents[1])
# For what takes milliseconds: a busy machine may take long, and a wait that is met costs nothing.
DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.005
PIPE = subprocess.PIPE


class Line(NamedTuple):
    """A line of the journal: a command of a step began or ended."""

    verb: str
    name: str
    run_id: int
    step: str
    item: str
    visit: int
    attempt: int
    fence: int
    pid: int
    # The same for every attempt of one visit; "" where a journal does not say.
    key: str = ""

    @property
    def place(self) -> str:
        """The step, item, script or command that it is, as the log names it."""
        return self.key.split(":")[1]

    @property
    def who(self) -> tuple[int, str, str, str]:
        """What must never run twice at the same time."""
        return self.run_id, self.step, self.item, self.name


class Stage:
    """Everything that the processes of one test share, in one folder."""

    def __init__(self, folder: Path, store_url: str = "", home: Path | None = None) -> None:
        self.folder = folder
        self.home = Home(home or folder / "home", store_url)
        self.journal = folder / "journal"
        self.journal.touch()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")},
            "PYTHONPATH": os.pathsep.join(map(str, ROOTS)),
            "MULLIGAN_HOME": str(self.home.folder),
            **({"MULLIGAN_STORE": store_url} if store_url else {}),
            "JOURNAL": str(self.journal),
            "ACT": str(ACT),
            # Everything that is started here can be found by it.
            "STAGE": str(folder),
        }

    def workflow(self, text: str, name: str = "flow.yaml") -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """A command line, as another terminal would have it."""
        return self.start_program("-m", "mulligan", *words, **options)

    def start_program(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        environment = {**self.environment, **options.pop("environment", {})}
        # A program that runs the one that is started, in its place.
        within = options.pop("within", ())
        pipes = {"stdin": subprocess.DEVNULL, "stdout": PIPE, "stderr": PIPE, "text": True, **options}
        line = [*within, sys.executable, *map(str, words)]
        return subprocess.Popen(line, cwd=self.folder, env=environment, **pipes)

    def leftovers(self) -> list[str]:
        """What still runs of all that was started here."""
        mark = os.fsencode(self.folder)
        found = [pid for pid in snapshot() if environment_of(pid).get(b"STAGE") == mark]
        return [f"{pid}: {_command_line(pid)}" for pid in found]

    def expect_nothing_left(self) -> None:
        """A supervisor may need a moment to end what it ran."""
        wait_until(lambda: not self.leftovers(), lambda: f"still running: {self.leftovers()}")

    # -- what was done -----------------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        """The journal, without a line that is being written."""
        whole = self.journal.read_text().rpartition("\n")[0].splitlines()
        return [_line(words.split()) for words in whole]

    def has_begun(self, name: str) -> bool:
        return any(line.verb == "start" and line.name == name for line in self.lines())

    def expect_no_overlap(self) -> None:
        """Of two attempts at one thing the second began when the first was over."""
        last: dict[tuple[int, str, str, str], Line] = {}
        for line in self.lines():
            assert line.verb != "overlap", f"another attempt still ran: {line}"
            if line.verb == "start":
                last[line.who] = line
            else:
                assert last[line.who].fence == line.fence, f"{line} came after {last[line.who]}"

    @contextmanager
    def service(self) -> Iterator[Service]:
        service = Service(self.home)
        try:
            yield service
        finally:
            service.close()

    def expect_promises(self, service: Service, run_id: int) -> None:
        """The log keeps every promise, and the tables say what it says."""
        state = service.reader.state(run_id)
        check(service.reader.events(run_id), state)
        assert service.runs.replay(run_id).differing == ()


def outcome(shown: dict[str, Any]) -> dict[str, Any]:
    """What a crash may not change: all that `--json` shows, but for how often things were tried, and when."""
    return {
        "status": shown["status"],
        "degraded": shown["degraded"],
        "round": shown["round"],
        "steps": {name: _steady(step) for name, step in {**shown["steps"], "end": shown["end"]}.items()},
        "failures": [(found["step"], found["visit"], found["code"], found["handled"]) for found in shown["failures"]],
        "outputs": shown["outputs"],
    }


def _steady(step: dict[str, Any]) -> dict[str, Any]:
    kept = {key: step[key] for key in ("status", "visits", "recovered", "handled")}
    failure, route = step["failure"], step["failure_route"]
    return {
        **kept,
        "output": _without_moments(step["output"]),
        "code": failure and failure["code"],
        "route": route and (route["status"], route["to"]),
    }


def _without_moments(value: Any) -> Any:
    """An output may hold failures (of items): when they were, and at which attempt, is left out."""
    if isinstance(value, dict):
        return {name: _without_moments(found) for name, found in value.items() if name not in ("at", "attempt")}
    return [_without_moments(found) for found in value] if isinstance(value, list) else value


def wait_until(
    is_true: Callable[[], Found], otherwise: str | Callable[[], str], seconds: float = DEADLINE_SECONDS
) -> Found:
    """Look again and again until it is so; what it was that came true."""
    until = time.monotonic() + seconds
    began = time.thread_time()
    while not (found := is_true()):
        if time.monotonic() > until:
            raise AssertionError(otherwise if isinstance(otherwise, str) else otherwise())
        # Whoever is waited for needs the processor more: looking takes a fifth of it at most.
        time.sleep(LOOK_SECONDS + 4 * (time.thread_time() - began))
        began = time.thread_time()
    return found


def answered(process: subprocess.Popen[str]) -> tuple[int, Any, str]:
    """How a command line ended: its exit code, the JSON on stdout (None if there is none), what it said."""
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    return process.returncode, json.loads(out) if out.strip() else None, err


def heard(process: subprocess.Popen[str], words: str) -> str:
    """What it says up to these words."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it never said '{words}':\n{said}")


def _line(words: list[str]) -> Line:
    verb, name, run_id, step, item, *others = words
    visit, attempt, fence, pid = map(int, others[:4])
    return Line(verb, name, int(run_id), step, item, visit, attempt, fence, pid, *others[4:])


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
