"""The modules of a project that a Python file imports, found by reading it: also those that only a function imports."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

# Installed wherever there is a worker.
OWN_PACKAGE = "mulligan"
# How many modules of a project are followed.
MODULES_MAX = 5_000


def module_files(root: Path, folders: Sequence[Path], name: str) -> list[Path]:
    """The file of a module in the first of these folders that has it, after those of its packages; [] if none has."""
    if name.partition(".")[0] == OWN_PACKAGE:
        return []
    for folder in folders:
        path, found = folder, []
        for part in name.split("."):
            path = path / part
            if (path / "__init__.py").is_file():
                found.append(path / "__init__.py")
            elif path.with_suffix(".py").is_file():
                found.append(path.with_suffix(".py"))
                break
            elif not path.is_dir():
                break
        if found and path.resolve().is_relative_to(root):
            return found
    return []


def imported_files(root: Path, starts: dict[Path, str], folders: Sequence[Path]) -> dict[Path, str]:
    """The files of the project that these need, each with why: themselves, and what they import, transitively.

    `folders`: where modules are looked for. What is found nowhere there is installed, or missing: its worker says so.
    """
    found: dict[Path, str] = {}
    todo = list(starts.items())
    while todo and len(found) < MODULES_MAX:
        path, why = todo.pop()
        if path in found:
            continue
        found[path] = why
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        try:
            text = path.read_text("utf-8-sig", "replace")
        except OSError:
            continue
        for name in imported_names(text, _package(path, folders)):
            for one in module_files(root, [*folders, path.parent], name):
                todo.append((one, f"imported by {shown}"))
    return found


def imported_names(text: str, package: str = "") -> Iterator[str]:
    """The modules that a text may import, at any level: `a.b` also for `from a import b`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node.module or "", node.level, package)
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names if alias.name != "*")


def _absolute(module: str, level: int, package: str) -> str:
    if not level:
        return module
    parts = package.split(".") if package else []
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, *([module] if module else [])])


def _package(path: Path, folders: Sequence[Path]) -> str:
    """The package in which a file is a module, by the first folder that it is below."""
    folder = next((one for one in folders if path.is_relative_to(one)), path.parent)
    return ".".join(path.parent.relative_to(folder).parts)
