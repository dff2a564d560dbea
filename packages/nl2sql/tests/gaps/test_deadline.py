"""At its deadline a question stops, also inside a query that never ends. No process is left, and it can go on."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan_nl2sql.asking import questions

from ..shop import make_shop
from ..test_processes import ENDLESS, WAIT_MILLISECONDS, children, has_open
from .asked_questions import asking

QUESTION = ("ask", "how many?", "--db", "sqlite:///shop.db", "--planner", "scripted", "--policy", "policy.toml")


def processes_below(pid: int) -> set[int]:
    found = set(children(pid))
    return found.union(*map(processes_below, found)) if found else set()


class DeadlineInQuery(threading.Thread):
    """Stands for the timer of the deadline: it passes when the query runs, which has a file for its rows."""

    database = ""
    # A handle of the process of the query.
    found: int | None = None

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        self._is_cancelled.set()

    def run(self) -> None:
        while not self._is_cancelled.wait(0.02):
            for pid in processes_below(os.getpid()):
                if has_open(pid, self.database) and writes_rows(pid):
                    DeadlineInQuery.found = os.pidfd_open(pid)
                    self._function()
                    return


def writes_rows(pid: int) -> bool:
    try:
        return any(os.readlink(link).endswith(".partial") for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.nightly
def test_a_question_stops_inside_of_a_query_that_never_ends_and_is_answered_later(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("script.toml").write_text(f'[[answers]]\nsql = "{ENDLESS}"\n')
    Path("policy.toml").write_text("[databases.shop.limits]\nseconds = 60\ncost = 1e300\n")
    monkeypatch.setenv("NL2SQL_SCRIPT", str(tmp_path / "script.toml"))
    monkeypatch.setattr(DeadlineInQuery, "database", str(shop))
    ask = asking(capsys)

    with monkeypatch.context() as patch:
        patch.setattr(questions.threading, "Timer", DeadlineInQuery)
        code, answer = ask(*QUESTION, "--deadline", "1h")

    assert (code, answer["status"], answer["results"], answer["failure"]) == (124, "unfinished", [], None)
    assert answer["receipt"]["scans"][0]["attempts"] == {"plan": 1, "check": 1, "explain": 1, "execute": 1}
    assert DeadlineInQuery.found is not None
    waiter = select.poll()
    waiter.register(DeadlineInQuery.found, select.POLLIN)
    assert waiter.poll(WAIT_MILLISECONDS)
    os.close(DeadlineInQuery.found)

    # With one order the same statement ends at once.
    shop.unlink()
    make_shop(shop, orders=1)
    code, answer = ask("resume", str(answer["run"]))

    assert (code, answer["status"], list(answer["results"][0]["rows"][0].values())) == (0, "answered", [1])
    assert answer["receipt"]["scans"][0]["attempts"] == {"plan": 1, "check": 1, "explain": 1, "execute": 2}
