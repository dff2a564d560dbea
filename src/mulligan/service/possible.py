"""What is refused before a run exists: what this version cannot do, and input files that are not there."""

from __future__ import annotations

from pathlib import Path

from ..core.workflow import Command, Workflow, commands
from ..errors import InputInvalid, Refused


def refuse_the_impossible(workflow: Workflow, cwd: Path) -> None:
    """Raise before anything has started, rather than in the middle of the night."""
    for step in (*workflow.steps, workflow.end):
        for command in commands((step,)):
            _refuse_command(step.name, command)
    _refuse_missing_files(workflow, cwd)
    for child in workflow.children.values():
        refuse_the_impossible(child, cwd)


def _refuse_command(step: str, command: Command) -> None:
    action = command.action
    templates = (*(action.bindings.values() if action else ()), *command.env.values())
    if any(name.startswith("secrets") for template in templates for name in template.reads):
        raise Refused(
            f"this version looks up no secrets yet, and step '{step}' reads one",
            hint="hand it over as an environment variable: ${env.NAME}",
        )


def _refuse_missing_files(workflow: Workflow, cwd: Path) -> None:
    """A declared input that no step writes must be there."""
    every = [command for step in workflow.steps for command in commands((step,))]
    written = {name for command in every for name in command.writes}
    for command in every:
        for name in command.reads:
            path = workflow.files.get(name, name)
            if name not in written and not (cwd / path).exists():
                raise InputInvalid(
                    f"'{path}' is read and no step writes it, and it is not there", hint=f"looked in {cwd}"
                )
