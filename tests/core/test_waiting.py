"""What tasks ask for that wait for another machine, if their file does not say."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects.tasks import demand, make_task
from mulligan.core.model.actions import default_cpus, waits
from mulligan.core.model.workflow import Action, Resources
from mulligan.testing.history import History, step, workflow


@pytest.mark.parametrize(
    ("kind", "params", "cpus"),
    [
        ("http", {"url": "http://here"}, 0.1),
        ("agent", {"prompt": "go"}, 0.25),
        ("sql", {"connection": "postgresql://db/x"}, 0.1),
        # not known before the secret is
        ("sql", {"connection": {"${}": "connection"}}, 0.1),
        # these compute here
        ("sql", {"connection": "sqlite:///a.db"}, 1.0),
        ("sql", {"connection": " DuckDB:///a.db"}, 1.0),
        ("shell", {"text": "curl x"}, 1.0),
        ("python", {"code": ""}, 1.0),
        ("slack", {"call": "a:b", "args": {}}, 1.0),
        ("slack", {"call": "a:b", "args": {"waits": True}}, 1.0),
        ("slack", {"call": "a:b", "args": {}, "waits": True}, 0.1),
    ],
)
def test_each_kind_of_action_has_its_default(kind: str, params: dict[str, Any], cpus: float) -> None:
    assert default_cpus(kind, params) == cpus
    assert waits(kind, params) == (cpus < 1)


@pytest.mark.parametrize(
    ("resources", "cpus", "is_waiting"),
    [
        (None, 0.1, True),
        (Resources(memory=5), 0.1, True),
        (Resources(cpus=0.1), 0.1, False),
        (Resources(cpus=2.0), 2.0, False),
    ],
)
def test_what_the_file_asks_for_wins(resources: Resources | None, cpus: float, is_waiting: bool) -> None:
    request = step("a", action=Action("http", {"url": "http://here"}), resources=resources)
    state = History(workflow(request)).start().state

    task = make_task(state, "a")

    assert (task.cpus, task.waits) == (cpus, is_waiting)
    assert demand(state, state.places["a"]).cpus == cpus
