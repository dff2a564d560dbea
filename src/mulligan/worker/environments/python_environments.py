"""The environments of python steps that have requirements: which are ready, and the process that builds another.

The loop neither resolves nor builds: the first task of a worker that needs an environment starts `environment_builder`
as the first part of its attempt, which finds it or builds it. After that the environment is known here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from mulligan.cache_folder import cache_folder
from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.worker.environments.environment_cache import (
    Busy,
    is_ready,
    lock_folder,
    note_use,
    python_in,
    read_json,
)
from mulligan.worker.folders import ScratchFiles
from mulligan.worker.supervisor.supervisor_client import PACKAGE_PARENT

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from mulligan.worker.environments.environment_builder import main; main(*sys.argv[1:])"
)

# How often one attempt looks for its environment: it may be removed before it is used, but not again and again.
SEARCHES_MAX = 3

# The interpreter that the workflow names, and the requirements.
Request = tuple[str, tuple[str, ...]]


def requirements_of(task: Task) -> tuple[str, ...]:
    """Return the requirements of a python task; none for any other."""
    return tuple(task.params.get("requirements", ())) if traits(task.kind, task.params).runs_python else ()


class PythonEnvironments:
    """The environments that the tasks of one worker use."""

    def __init__(self, environment: Mapping[str, str], home: str) -> None:
        self._cache = cache_folder(environment, home)
        self._path = environment.get("PATH", os.defpath)
        # The folder of each, and the descriptor that keeps `mulligan gc` from removing it.
        self._ready: dict[Request, tuple[str, int]] = {}

    def find(self, request: Request) -> str | None:
        """Return the interpreter of an environment that is ready; None if it has to be found or built."""
        if request not in self._ready:
            return None
        folder, _ = self._ready[request]
        if is_ready(folder):
            note_use(folder)
            return python_in(folder)
        self._forget(request)
        return None

    def build_command(
        self, request: Request, token: int, scratch: ScratchFiles, seconds: float | None
    ) -> tuple[Any, ...]:
        """Return what the supervisor has to start, for `seconds` at most."""
        base, requirements = request
        asked = json.dumps({"base": base, "requirements": requirements, "cache": self._cache})
        argv = [sys.executable, "-I", "-c", _PROGRAM, PACKAGE_PARENT, asked, scratch.output, scratch.error]
        # Neither the variables of the task nor its secrets: a package that is being built is not the step.
        environment = {"MULLIGAN_FENCE": str(token)}
        return (sys.executable, argv, environment, "/", os.devnull, scratch.out, scratch.err, seconds, None)

    def adopt(self, request: Request, scratch: ScratchFiles) -> None:
        """Use what the builder has found or built. If it was removed since, `find` still returns None."""
        folder = (read_json(scratch.output) or {}).get("folder", "")
        if not folder:
            return
        try:
            fd = lock_folder(folder, is_shared=True, is_waiting=False)
        except (Busy, OSError):
            return  # it is being removed
        self._forget(request)
        self._ready[request] = (folder, fd)

    def variables(self, interpreter: str) -> dict[str, str]:
        """Return what activates the environment for the programs that a step starts."""
        venv = os.path.dirname(os.path.dirname(interpreter))
        return {"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:{self._path}"}

    def close(self) -> None:
        for request in list(self._ready):
            self._forget(request)

    def _forget(self, request: Request) -> None:
        if request in self._ready:
            os.close(self._ready.pop(request)[1])
