"""The tables of docs/reference/python.md, made from the code: every public name, its signature, its first sentence.

To write them anew: `PYTHONPATH=src python tests/client/signatures.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import mulligan

PAGE = Path(__file__).parent.parent.parent / "docs/reference/python.md"
_TABLE = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Members of classes that other modules of ours use, and programs do not.
INTERNAL = frozenset({"routes", "record_for_route", "bind", "parameters"})
# Functions of the package, by name.
_NAMES = re.compile(r"(<!-- names: ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: str) -> str:
    """The page with every table as it should be."""
    page = _TABLE.sub(lambda found: f"{found[1]}{table(found[2], found[3])}\n{found[4]}", page)
    return _NAMES.sub(lambda found: f"{found[1]}{names(found[2].split())}\n{found[3]}", page)


def names(wanted: list[str]) -> str:
    """These functions of the package, each with its first sentence."""
    rows = [row(f"mulligan.{name}", getattr(mulligan, name)) for name in wanted]
    return "\n".join(["| name | meaning |", "|---|---|", *rows])


def table(target: str, prefix: str) -> str:
    """The members of a class (`mulligan.client.run:Run`) or a function, each with its first sentence."""
    module, _, name = target.partition(":")
    found = getattr(import_module(module), name)
    rows = [*members(found, prefix)] if inspect.isclass(found) else [row(prefix, found)]
    return "\n".join(["| name | meaning |", "|---|---|", *rows])


def members(kind: type, prefix: str) -> Iterator[str]:
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if name in INTERNAL:
                continue
            is_member = callable(value) or hasattr(value, "fget") or hasattr(value, "func")
            if base.__module__.startswith("mulligan") and not name.startswith("_") and is_member:
                yield row(f"{prefix}.{name}", value)


def row(called: str, value: Any) -> str:
    return f"| `{called}{signature(value)}` | {first_sentence(value)} |"


def signature(value: Any) -> str:
    """The parameters of a function without their types; the type of a property."""
    getter: Callable[..., Any] | None = getattr(value, "fget", None) or getattr(value, "func", None)
    if getter is not None:
        return f": {inspect.signature(getter).return_annotation}".replace("|", "\\|")
    found = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    shown = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values() if one.name != "self"]
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    return f"{text} -> {found.return_annotation}".replace("|", "\\|")


def first_sentence(value: Any) -> str:
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    assert text, f"{value} has no docstring"
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
