"""Files that a step of Prodigy's writes, in a worker: whole or not at all."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from mulligan import StepError
from mulligan.core.model import paths
from mulligan.core.model.paths import folder_of, path_problem


def write(
    path: str,
    content: Any,
    format: str = "text",
    mode: str = "0644",
    create_dirs: bool = False,
    below: str | None = None,
) -> str:
    """Write `content` to `path` and say where. What is no JSON or YAML where that is asked for is an error.

    `below`: see `refuse_outside`.
    """
    if below is not None:
        refuse_outside(path, below)
    target = Path(path)
    if ".." in target.parts:
        raise StepError("INPUT_INVALID", f"'{path}' leads out with '..'", retryable=False)
    body = _formatted(content, format, path)
    if create_dirs:
        target.parent.mkdir(parents=True, exist_ok=True)
    elif not target.parent.is_dir():
        message = f"'{target.parent}' is no folder: write 'create_dirs: true' to have it made"
        raise StepError("INPUT_INVALID", message, retryable=False)
    _replace(target, body, int(mode, 8))
    return path


def refuse_outside(path: str, below: str) -> None:
    """StepError where a path leads out of the folder in `below`, which is what stands before its first value.

    Where there is no folder in it, the path stays in that in which the step runs.
    """
    folder = folder_of(below)
    fault = path_problem(paths.TemplatedPath(path, folder))
    root = os.path.realpath(folder or ".")
    if not fault and os.path.commonpath([os.path.realpath(path), root]) != root:
        fault = f"it leads out of '{folder or root}'"
    if fault:
        raise StepError("INPUT_INVALID", f"'{path[:200]}': {fault}", retryable=False)


def _formatted(content: Any, format: str, path: str) -> str:
    """A text as it is; JSON and YAML read, so that it is some, and written neatly."""
    try:
        if format == "json":
            value = json.loads(content) if isinstance(content, str) else content
            return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        if format == "yaml":
            return _as_yaml(content)
    except ValueError as error:
        message = f"what is to be written to '{path}' is no {format.upper()}: {error}"
        raise StepError("INPUT_INVALID", message, retryable=False) from None
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _as_yaml(content: Any) -> str:
    """ValueError where it is none. Loaded only here: most files are something else."""
    yaml: Any = import_module("yaml")
    try:
        value = yaml.safe_load(content) if isinstance(content, str) else content
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return text


def _replace(target: Path, body: str, mode: int) -> None:
    """A reader sees the old file or the new one, and after a crash there is one of the two."""
    with NamedTemporaryFile("w", encoding="utf-8", newline="", dir=target.parent, delete=False) as new:
        try:
            new.write(body)
            new.flush()
            os.fsync(new.fileno())
            os.chmod(new.name, mode)
            os.replace(new.name, target)
        except BaseException:
            os.unlink(new.name)
            raise
