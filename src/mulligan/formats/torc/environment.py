"""Torc's environment variables, and its names for logs.

All of it stands in `defaults`: a step adds its name where that is not the job's.
"""

from __future__ import annotations

from typing import Any

from mulligan.formats.torc.reading import Torc
from mulligan.formats.translation import literal, made

# The input that says what Torc's `--output-dir` says.
OUTPUT_DIR = "output_dir"
_OUTPUT_DIR = f"${{inputs.{OUTPUT_DIR}}}"
_INPUT = {"type": "string", "default": "output", "description": "where the logs are found under Torc's names"}
_ENV = {
    "TORC_WORKFLOW_ID": "${run.id}",
    "TORC_RUN_ID": "${run.round}",
    # Torc's numbers are those of its database: all that counts is that no two jobs have the same.
    "TORC_JOB_ID": "${step.number}",
    "TORC_JOB_NAME": "${step.name}",
    "TORC_ATTEMPT_ID": "${attempt}",
    "TORC_OUTPUT_DIR": _OUTPUT_DIR,
    # There is no server to ask.
    "TORC_API_URL": "",
}
# Torc's `--output-dir` may name any folder.
_STEM = (
    f"${{any_path(inputs.{OUTPUT_DIR})}}/job_stdio/job_wf${{run.id}}_j${{step.number}}_r${{run.round}}_a${{attempt}}"
)
# What recovery scripts find beside what their job finds. To Torc, who leaves out a file has exited with 1.
RECOVERY_ENV: dict[str, Any] = {"TORC_RETURN_CODE": "${error.code == 'OUTPUT_MISSING' ? 1 : error.exit_code}"}


def add(torc: Torc) -> None:
    """Give every step of the workflow what Torc gives a job: also its shell, which goes on after a failed command."""
    torc.inputs[OUTPUT_DIR] = _INPUT
    torc.defaults |= {"strict": False, "env": _ENV, "logs": {"stdout": f"{_STEM}.o", "stderr": f"{_STEM}.e"}}
    for job in torc.jobs.things.values():
        if job.name != job.step:
            job.entries["env"] = made({"TORC_JOB_NAME": literal(job.name)}, job.name_node)
