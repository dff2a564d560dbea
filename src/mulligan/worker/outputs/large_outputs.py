"""Prepare a large output for storage: read it, check it, redact it, write it to the disk.

`store_output` runs in a child (see `background_jobs`), so that the worker's loop never reads a large output.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.text.formatting import error_reason
from mulligan.worker.child.warm_child import CallResult
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.output_storage import (
    NotStorable,
    OutputFile,
    artifact_data,
    pack,
    report_storage_failure,
    storage_error,
)
from mulligan.worker.outputs.outputs import (
    LargeOutput,
)
from mulligan.worker.secrets.redactor import TOO_DEEP, Redactor
from mulligan.worker.task_reports import report_output_error, without_output

STORE_OUTPUT = "mulligan.worker.outputs.large_outputs:store_output"
_LABELS = {"result": "the result", "written": "$MULLIGAN_OUTPUT"}


def read_large_output(path: str, capture: str) -> Any:
    """Read the file. `capture` is that of a shell step, or says what JSON it is; raises what `read_printed` does."""
    if capture in _LABELS:
        return outputs.read_json_file(path, _LABELS[capture])
    return outputs.read_printed(path, capture)


def store_output(source: str, capture: str, target: str, secrets: list[str]) -> dict[str, Any]:
    """Write what has to be stored to `target`; or return what is wrong with the output, or its value if it is small."""
    try:
        value = read_large_output(source, capture)
        if secrets:
            value = Redactor(secrets).redact_output(value)
        found = artifact_data(value, pack(value))
    except outputs.OutputNotKept as reason:
        return {"none": str(reason), "size": reason.size}
    except outputs.OutputInvalid as problem:
        return {"invalid": str(problem)}
    except NotStorable as problem:
        return {"invalid": storage_error(str(problem))}
    except RecursionError:
        return {"invalid": TOO_DEEP}
    if found is None:
        return {"value": value}
    data, format = found
    try:
        _write(target, data)
    except OSError as error:
        return {"refused": error_reason(error), "errno": error.errno}
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "format": format}


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def with_value(report: TaskEnded, large: LargeOutput) -> TaskEnded:
    """Return the report with the output itself, read here: if no child can read it, or there are no artifacts."""
    try:
        return msgspec.structs.replace(report, output=read_large_output(large.path, large.capture))
    except outputs.OutputNotKept as reason:
        return _without_output(report, reason)
    except outputs.OutputInvalid as problem:
        return report_output_error(report, str(problem))
    finally:
        if large.capture == "result":
            outputs.remove_file(large.path)


def call_arguments(large: LargeOutput, target: str, secrets: list[str]) -> dict[str, Any]:
    """Return the arguments of `store_output`."""
    return {"source": large.path, "capture": large.capture, "target": target, "secrets": secrets}


def report_stored(report: TaskEnded, target: str, result: CallResult | None) -> TaskEnded:
    """Return the report with the result of `store_output`, which is None if its process died."""
    if result is None:
        return report_storage_failure(report, "the process that stores it died")
    if result.exception:
        return report_storage_failure(report, result.exception)
    stored = result.output
    if "refused" in stored:
        return report_storage_failure(report, stored["refused"], stored["errno"])
    if "invalid" in stored:
        return report_output_error(report, stored["invalid"])
    if "none" in stored:
        return _without_output(report, outputs.OutputNotKept(stored["none"], stored["size"]))
    output = (
        stored["value"] if "value" in stored else OutputFile(target, stored["size"], stored["sha256"], stored["format"])
    )
    return msgspec.structs.replace(report, output=output)


def _without_output(report: TaskEnded, reason: outputs.OutputNotKept) -> TaskEnded:
    return msgspec.structs.replace(report, outcome=without_output(report.outcome, reason), output=None)
