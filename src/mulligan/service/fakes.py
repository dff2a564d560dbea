"""A workflow with some of its steps faked, as a face hands the fakes over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mulligan.core.deciding.fakes import End, with_fakes
from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid
from mulligan.language.fakes import load_fakes, parse_fakes, read_fakes

Fakes = dict[str, tuple[End, ...]]


def fakes_of(workflow: Workflow, words: Sequence[str] = (), file: Path | None = None) -> Fakes:
    """How the faked steps end: as the words say, else as the file does. Refused where anything makes no sense."""
    in_file = {} if file is None else load_fakes(file)
    return read_fakes(workflow, {**in_file, **parse_fakes(workflow, words)})


def faked(workflow: Workflow, fakes: Fakes) -> Workflow:
    """The workflow with these steps faked."""
    return with_fakes(workflow, fakes)


def results_of(fakes: Fakes) -> dict[str, Any]:
    """What the faked steps give, for a step that is tried alone; refused where one of them fails."""
    for name, ends in fakes.items():
        if (found := ends[-1].failure) is not None:
            message = f"step '{name}' is faked to fail with {found.code}, and the step that is tried reads its result"
            raise InputInvalid(message, hint="to see what follows from a failure: mulligan rehearse FILE --fake …")
    return {name: ends[-1].output for name, ends in fakes.items()}
