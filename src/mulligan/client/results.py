"""Outputs of steps as what they were: tables and arrays from files, dataclasses and dates by their annotations.

A file that a step kept with `mulligan.artifact` is its bytes; where a `Path` is wanted, the path of a file that lasts.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.errors import MulliganError
from mulligan.values.annotations import ArgumentRefused, TableUnreadable
from mulligan.values.decoding import convert_value
from mulligan.values.files import KEY, VALUE_FORMATS, StoredFile, load_output

if TYPE_CHECKING:
    from mulligan.core.state.state import State
    from mulligan.service.runs.views.run_snapshot import RunSnapshot
    from mulligan.service.service import Service

# What an attribute of a decorated function is called that has the function itself.
_FUNCTION = "__mulligan_function__"
# Such a function yields progress: its annotation says nothing about its output.
_GENERATORS = ("Generator", "Iterator", "Iterable", "AsyncGenerator", "AsyncIterator", "AsyncIterable")


class _KeptFile(StoredFile):
    """A file that a value refers to. `path` is a copy that does not last."""

    def __init__(self, service: Service, path: Path, reference: dict[str, Any]) -> None:
        super().__init__(str(path), reference)
        self._service = service

    def load(self, wanted: str = "") -> Any:
        return super().load(wanted) if wanted or self.reference[KEY].get("type") else self.read_bytes()

    def as_path(self) -> Path:
        return Path(self._service.runs.artifact_path(self.reference[KEY]) or self._copied())

    def _copied(self) -> str:
        """A copy that lasts as long as this program, under the name that the step gave."""
        folder = tempfile.mkdtemp(prefix="mulligan-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        name = str(self.reference[KEY]["name"]).rpartition("/")[2]
        return shutil.copyfile(self.path, os.path.join(folder, name))


class ResultUnreadable(MulliganError):
    """An output that this program cannot read as what is wanted."""

    code = "result.unreadable"
    http_status = 422


def read_result(service: Service, what: str, value: Any, wanted: Any) -> Any:
    """A value with the content of its files, as the type that is wanted; None stands for what it was."""
    try:
        if wanted is None:
            return load_output(value, service.runs.read_artifact)
        with tempfile.TemporaryDirectory(prefix="mulligan-") as folder:
            return convert_value(_with_files(service, value, Path(folder)), wanted)
    except (ArgumentRefused, TableUnreadable) as problem:
        hint = "without a type, its plain value is: run.steps[…].output"
        raise ResultUnreadable(f"{what} cannot be read: {problem}", hint=hint) from None


def read_step_result(service: Service, run: RunSnapshot, step: str, wanted: Any = None) -> Any:
    """The output of a step as the type that is wanted, or as its function is annotated.

    A map step gives a list with the result of each item; None for one that has none.
    """
    what, output = f"the output of step '{step}'", run.place(step).output
    hint = _return_type(run.state, step) if wanted is None else wanted
    if wanted is not None or not run.state.places or run.state.step(step).map is None:
        return read_result(service, what, output, hint)
    results = output["results"] if isinstance(output, dict) else []
    return [None if one is None else read_result(service, what, one, hint) for one in results]


def _return_type(state: State, name: str) -> Any:
    """What the function of a step returns, if this program has imported it and it is annotated; otherwise None.

    Of a map step, the function that it calls for each item.
    """
    step = state.step(name)
    action = step.do[0].action if len(step.do) == 1 else step.action
    call = action.params.get("call") if action is not None else None
    if not isinstance(call, str) or action is None or not state.places:
        return None
    module, _, name = call.partition(":")
    # The functions of a script and of the cells of a notebook are in the main module of the program, and their source
    # is kept with the run.
    found: Any = sys.modules.get(module) or (sys.modules["__main__"] if "source" in action.params else None)
    for part in name.split("."):
        found = getattr(found, part, None)
    function = getattr(found, _FUNCTION, found)
    try:
        hint = typing.get_type_hints(function, include_extras=True).get("return") if callable(function) else None
    except Exception:
        # It names something that is not there at run time.
        return None
    return None if getattr(typing.get_origin(hint) or hint, "__name__", "") in _GENERATORS else hint


def _with_files(service: Service, value: Any, folder: Path) -> Any:
    """The value with a file for each reference to one, and the content of every other."""
    if isinstance(value, list):
        return [_with_files(service, one, folder) for one in value]
    if not isinstance(value, Mapping):
        return value
    description = value.get(KEY)
    if len(value) != 1 or not isinstance(description, dict):
        return {key: _with_files(service, one, folder) for key, one in value.items()}
    if description.get("format", "json") in VALUE_FORMATS:
        return load_output(value, service.runs.read_artifact)
    file = folder / f"{len(list(folder.iterdir()))}"
    file.write_bytes(service.runs.read_artifact(description))
    return _KeptFile(service, file, dict(value))
