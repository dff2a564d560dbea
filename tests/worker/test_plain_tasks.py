"""Which tasks pass none of the stages of a worker: asked once, of all of them together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model.workflow import Secret
from mulligan.worker.actions.plain_tasks import is_plain, is_plain_result
from mulligan.worker.child.warm_child import CallResult

TASK = Task(7, "build", 1, "python", {"code": "def main(): ..."}, "nightly", "v1", "build", 1)
ANSWER = CallResult(1, 0.1, 100, 0, 0)


@pytest.mark.parametrize(
    "fields", [{}, {"timeout": 3.0}, {"env": {"A": "b"}}, {"cwd": "below"}, {"tries": 2, "item": 3}]
)
def test_a_function_with_values_of_its_own_is_plain(fields: dict[str, Any]) -> None:
    assert is_plain(msgspec.structs.replace(TASK, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "shell", "params": {"text": "true"}},
        {"kind": "http", "params": {"url": "http://localhost"}, "waits": True},
        {"params": {"code": "", "requirements": ["rich"]}},
        {"params": {"code": "", "args": {"rows": {"$artifact": {"name": "7/a"}}}}},
        {"secrets": {"token": Secret(env="TOKEN")}},
        {"deadline": datetime(2026, 1, 1, tzinfo=UTC)},
        {"memory": 100},
        {"gpus": 1},
        {"files": {"out": "out.txt"}},
        {"logs": {"stdout": "log.txt"}},
        {"data": {"rows": 3}},
        {"context": "it failed before"},
    ],
)
def test_whatever_needs_a_stage_of_its_own_is_not(fields: dict[str, Any]) -> None:
    assert not is_plain(msgspec.structs.replace(TASK, **fields))


@pytest.mark.parametrize("fields", [{"output": [1]}, {"out": 9, "err": 9}])
def test_an_answer_with_a_result_and_logs_is_plain(fields: dict[str, Any]) -> None:
    assert is_plain_result(msgspec.structs.replace(ANSWER, **fields))


@pytest.mark.parametrize(
    "fields",
    [{"exception": "E"}, {"exit": 1}, {"forked": True}, {"dirty": True}, {"in_file": True}, {"invalid": "no JSON"}],
)
def test_an_answer_that_says_more_is_not(fields: dict[str, Any]) -> None:
    assert not is_plain_result(msgspec.structs.replace(ANSWER, **fields))
