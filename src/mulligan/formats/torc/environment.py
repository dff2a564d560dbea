"""Torc's environment variables, and its names for logs.

What is the same for all jobs stands in `defaults`; a step has what is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mulligan.formats.translation import literal, made

if TYPE_CHECKING:
    from mulligan.formats.torc.jobs import Job
    from mulligan.formats.torc.workflow import Torc

# The input that says what Torc's `--output-dir` says.
OUTPUT_DIR = "output_dir"
_OUTPUT_DIR = f"${{inputs.{OUTPUT_DIR}}}"
_INPUT = {"type": "string", "default": "output", "description": "where the logs are found under Torc's names"}
_ENV = {
    "TORC_WORKFLOW_ID": "${run.id}",
    "TORC_RUN_ID": "${run.round}",
    "TORC_ATTEMPT_ID": "${attempt}",
    "TORC_OUTPUT_DIR": _OUTPUT_DIR,
    # There is no server to ask.
    "TORC_API_URL": "",
}
# What recovery scripts find beside what their job finds. To Torc, who leaves out a file has exited with 1.
RECOVERY_ENV: dict[str, Any] = {"TORC_RETURN_CODE": "${error.code == 'OUTPUT_MISSING' ? 1 : error.exit_code}"}


def add(torc: Torc) -> None:
    """Give every step of the workflow what Torc gives a job."""
    torc.inputs[OUTPUT_DIR] = _INPUT
    torc.defaults["env"] = _ENV
    for job in torc.jobs.things.values():
        job.entries["env"] = _env(job)
        job.entries["logs"] = _logs(job)


def _env(job: Job) -> Any:
    return made({"TORC_JOB_ID": job.number, "TORC_JOB_NAME": literal(job.name)}, job.name_node)


def _logs(job: Job) -> Any:
    stem = f"{_OUTPUT_DIR}/job_stdio/job_wf${{run.id}}_j{job.number}_r${{run.round}}_a${{attempt}}"
    return made({"stdout": f"{stem}.o", "stderr": f"{stem}.e"}, job.name_node)
