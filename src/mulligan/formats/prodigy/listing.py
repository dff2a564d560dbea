"""The items of a map, in a worker: of a file, or printed by a command; found, filtered, sorted as Prodigy does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mulligan import StepError
from mulligan.formats.prodigy.conditions import condition, field
from mulligan.formats.prodigy.json_path import items_at
from mulligan.formats.prodigy.sorting import order


def items(
    input: str, origin: str = "", json_path: str = "", filter: str = "", sort_by: str = "", distinct: str = ""
) -> list[Any]:
    """What is mapped over. `origin` is where a file is looked for that is not in the folder itself."""
    value = _value(input, origin)
    found = items_at(json_path)(value) if json_path.strip() else value if isinstance(value, list) else [value]
    if filter:
        holds = condition(filter)
        found = [item for item in found if holds(item)]
    if sort_by:
        found = order(sort_by)(found)
    return _distinct(found, distinct) if distinct else found


def _value(input: str, origin: str) -> Any:
    for folder in ("", origin):
        path = Path(folder, os.path.expanduser(input.strip()))
        if _is_file(path):
            return _of_file(path)
    return _of_command(input)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a command may be longer than any path
        return False


def _of_file(path: Path) -> Any:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix.lower() != ".json":
        return _read(text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise StepError("INPUT_INVALID", f"'{path}' is no JSON: {error}", retryable=False) from None


def _of_command(command: str) -> Any:
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        message = f"'{command[:200]}' is no file, and as a command it ended with {done.returncode}: {said}"
        raise StepError("INPUT_FAILED", message.rstrip(": "), details={"exit_code": done.returncode})
    return _read(done.stdout.decode(errors="replace"))


def _read(text: str) -> Any:
    """JSON, else lines. A line that is `{"item": …}` to Prodigy is the line itself."""
    try:
        return json.loads(text)
    except ValueError:
        return [line for line in text.splitlines() if line.strip()]


def _distinct(found: list[Any], path: str) -> list[Any]:
    value = field(path)
    seen: dict[str, Any] = {}
    for item in found:
        seen.setdefault(json.dumps(value(item), sort_keys=True), item)
    return list(seen.values())
