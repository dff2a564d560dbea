"""The worked example in the docstring of `core.deciding`, played by the core."""

from __future__ import annotations

import inspect
import textwrap

import mulligan.core.deciding
from mulligan.core.model import events as e
from mulligan.language import load_text
from mulligan.testing.history import History

DOCS = inspect.getdoc(mulligan.core.deciding) or ""


def counted(run: History) -> tuple[int, int]:
    """The open needs of `merge`, and how many shards the barrier waits for."""
    ((unsettled, _),) = run.state.barriers.values()
    return run["merge"].open_needs, unsettled


def entered(run: History) -> list[str]:
    return [fact.step for fact in run.facts(e.StepEntered)]


def test_the_worked_example_happens_as_the_docstring_says() -> None:
    text = textwrap.dedent(DOCS[DOCS.index("    steps:\n") : DOCS.index("    fetch ───")])
    run = History(load_text(f"name: example\n{text}"))

    counts = [counted(run.start())]
    for place, is_good in (("shard_1", True), ("fetch", False), ("shard_2", True), ("repair", True), ("fetch", True)):
        counts.append(counted(run.ok(place) if is_good else run.fail(place)))

    assert counts == [(2, 2), (2, 1), (2, 1), (1, 0), (1, 0), (0, 0)]
    assert entered(run.ok("merge")) == ["fetch", "shard_1", "shard_2", "repair", "fetch", "merge", "end"]
    assert run.status == "completed"
