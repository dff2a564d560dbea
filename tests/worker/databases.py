"""Databases for the tests of `sql`: a new one each, and a query at them as a step would make it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.work import PATIENCE_SECONDS

from mulligan import StepError
from mulligan.worker.actions.sql import run
from mulligan.worker.child.json_encoding import encode_plain

LOOK_SECONDS = 0.005


def asked(connection: Any, query: Any, params: Any = None, **keys: Any) -> Any:
    """The output of a step."""
    return json.loads(encode_plain(run(connection, query, params, **keys)) or "")


def refused(connection: Any, query: Any, params: Any = None, **keys: Any) -> dict[str, Any]:
    """What a step that fails reports."""
    with pytest.raises(StepError) as error:
        run(connection, query, params, **keys)
    report: dict[str, Any] = error.value.report()
    return report


def invalid(message: str) -> dict[str, Any]:
    return {"code": "INPUT_INVALID", "message": message, "retryable": False}


def wait_for(fact: Callable[[], Any]) -> None:
    """Until it is true."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < until, "it never came true"
        time.sleep(LOOK_SECONDS)
