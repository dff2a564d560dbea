"""What a task knows of the data of its run, and what it sets: two files beside the attempt.

`$MULLIGAN_DATA` is a JSON object with the values of the moment in which the task was scheduled; there is no such file
if there are none. The task appends JSON objects to `$MULLIGAN_DATA_SET`, one per line: the last value of a name counts.
They are read once, when the task has ended, so that no process of a task can set anything later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.run_data import BYTES_MAX, name_problem, value_problem
from mulligan.worker.outputs import outputs
from mulligan.worker.outputs.outputs import (
    OutputInvalid,
)
from mulligan.worker.task_reports import report_output_error

VARIABLE = "MULLIGAN_DATA"
SET_VARIABLE = "MULLIGAN_DATA_SET"
# A name may be set many times.
SET_BYTES_MAX = 16 * BYTES_MAX


def with_data(report: TaskEnded, path: str) -> TaskEnded:
    """The report with the data that the task has set; a failure if that cannot be read. A failed task sets nothing."""
    outcome = report.outcome
    if outcome.exit_code or outcome.signal or outcome.code or report.reused_run_id:
        return report
    try:
        values = read_values(path)
    except OutputInvalid as problem:
        return report_output_error(report, str(problem))
    return msgspec.structs.replace(report, data=values) if values else report


def read_values(path: str) -> dict[str, Any]:
    """The values in a file of JSON lines; none if there is no file. Raises OutputInvalid."""
    data = outputs.read_if_there(path, SET_BYTES_MAX, f"${SET_VARIABLE}")
    values: dict[str, Any] = {}
    for number, line in enumerate((data or b"").splitlines(), start=1):
        if line.strip():
            label = f"line {number} of ${SET_VARIABLE}"
            found = outputs.decode_json(line, label)
            if not isinstance(found, dict):
                raise OutputInvalid(f"{label} is not a JSON object of names and values")
            values |= found
    for name, value in values.items():
        if problem := name_problem(name) or value_problem(value):
            raise OutputInvalid(f"it sets the data '{name[:40]}', which is not valid: {problem}")
    return values
