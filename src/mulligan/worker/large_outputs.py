"""A large output, made ready to be kept: read, checked, without secrets, on the disk.

`make_ready` is called in a child (see `jobs`): so the loop of the worker never reads an output that is large.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec

from mulligan.core.model.formatting import error_reason
from mulligan.core.model.reports import TaskEnded
from mulligan.worker import outputs
from mulligan.worker.children import Answer
from mulligan.worker.ended import with_problem
from mulligan.worker.outputs import Large
from mulligan.worker.redactor import TOO_DEEP, Redactor
from mulligan.worker.results import InFile, NotKeepable, beside_the_log, invalid_output, pack, refused_output

MAKE_READY = "mulligan.worker.large_outputs:make_ready"
_LABELS = {"result": "the result", "written": "$MULLIGAN_OUTPUT"}


def value_of(path: str, capture: str) -> Any:
    """What is in the file. `capture` is that of a shell step, or says whose JSON it is; NotUsable, NoOutput."""
    if capture in _LABELS:
        return outputs.written_json(path, _LABELS[capture])
    return outputs.printed(path, capture)


def make_ready(source: str, capture: str, target: str, secrets: list[str]) -> dict[str, Any]:
    """Put what is to be kept of an output into the file `target`; or say what is wrong with it, or that it is small."""
    try:
        value = value_of(source, capture)
        if secrets:
            value = Redactor(secrets).output(value)
        found = beside_the_log(value, pack(value))
    except outputs.NoOutput as reason:
        return {"none": str(reason)}
    except outputs.NotUsable as problem:
        return {"invalid": str(problem)}
    except NotKeepable as problem:
        return {"invalid": invalid_output(str(problem))}
    except RecursionError:
        return {"invalid": TOO_DEEP}
    if found is None:
        return {"value": value}
    data, format = found
    try:
        _write(target, data)
    except OSError as error:
        return {"refused": error_reason(error)}
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "format": format}


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def with_value(ended: TaskEnded, large: Large) -> TaskEnded:
    """The report with the output itself, read here and now: where nobody else can read it, or nobody keeps it."""
    try:
        return msgspec.structs.replace(ended, output=value_of(large.path, large.capture))
    except outputs.NoOutput as reason:
        return _without_output(ended, str(reason))
    except outputs.NotUsable as problem:
        return _with_problem(ended, str(problem))
    finally:
        if large.capture == "result":
            outputs.remove(large.path)


def order_arguments(large: Large, target: str, secrets: list[str]) -> dict[str, Any]:
    """What `make_ready` is called with."""
    return {"source": large.path, "capture": large.capture, "target": target, "secrets": secrets}


def read_answer(ended: TaskEnded, target: str, answer: Answer | None) -> TaskEnded:
    """The report with what `make_ready` has made of its output; None: its process has ended."""
    if answer is None:
        return refused_output(ended, "the process that was to keep it has ended")
    if answer.exception:
        return refused_output(ended, answer.exception)
    said = answer.output
    if "refused" in said:
        return refused_output(ended, said["refused"])
    if "invalid" in said:
        return _with_problem(ended, said["invalid"])
    if "none" in said:
        return _without_output(ended, said["none"])
    output = said["value"] if "value" in said else InFile(target, said["size"], said["sha256"], said["format"])
    return msgspec.structs.replace(ended, output=output)


def _with_problem(ended: TaskEnded, problem: str) -> TaskEnded:
    return msgspec.structs.replace(ended, outcome=with_problem(ended.outcome, problem), output=None)


def _without_output(ended: TaskEnded, reason: str) -> TaskEnded:
    outcome = msgspec.structs.replace(ended.outcome, output_warning=reason)
    return msgspec.structs.replace(ended, outcome=outcome, output=None)
