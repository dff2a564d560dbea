"""The data of a run, for the step that runs and for people: what was set, and by which attempt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.place_keys import step_name
from mulligan.core.model.run_data import name_problem, value_problem
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid, MulliganError
from mulligan.worker.outputs.outputs import OutputInvalid, read_json_file
from mulligan.worker.run_data import SET_VARIABLE, VARIABLE, read_values


class DataMissing(MulliganError):
    """The run has no data under this name."""

    code = "data.missing"
    http_status = 404


class DataEntry(msgspec.Struct, frozen=True):
    """A value of the data of a run. The step is "" if it is from the workflow file."""

    name: str
    value: Any
    version: int
    step: str = ""
    attempt: int = 0


def data_entries(state: State) -> list[DataEntry]:
    """The data of a run whose state is known, by name."""
    found = sorted(state.run.data.items())
    return [
        DataEntry(name, one.value, one.version, step_name(one.place) if one.place else "", one.attempt)
        for name, one in found
    ]


def choose(values: Mapping[str, Any], name: str) -> Any:
    """The value of a name. Raises `DataMissing`."""
    if name not in values:
        there = ", ".join(sorted(values)[:10])
        raise DataMissing(f"the run has no data '{name[:80]}'", hint=f"it has {there}" if there else "it has none yet")
    return values[name]


# -- inside a step ---------------------------------------------------------------------------------------------------


def is_in_step(environ: Mapping[str, str]) -> bool:
    """Whether this process belongs to a step."""
    return bool(environ.get(SET_VARIABLE))


def step_data(environ: Mapping[str, str]) -> dict[str, Any]:
    """The data of the run as the attempt knows it: when it was scheduled, and what it has set itself since then."""
    path = environ.get(VARIABLE, "")
    try:
        before = read_json_file(path, f"${VARIABLE}") if os.path.exists(path) else {}
        return {**before, **read_values(environ[SET_VARIABLE])}
    except OutputInvalid as problem:
        raise InputInvalid(str(problem)) from None


def set_step_data(environ: Mapping[str, str], name: str, value: Any) -> None:
    """Set a value in the name of the attempt. It counts when the result of the attempt is accepted.

    One write to the end of a file: processes of the step may do this at the same time.
    """
    if problem := name_problem(name):
        raise InputInvalid(f"'{name[:80]}' is not a name of data: {problem}")
    try:
        problem = value_problem(value)
    except RecursionError:
        problem = "it is nested too deep"
    if problem:
        raise InputInvalid(f"the value of '{name}' is not valid: {problem}")
    line = msgspec.json.encode({name: value}) + b"\n"
    fd = os.open(environ[SET_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
