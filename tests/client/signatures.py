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
# The classes that a program calls; it gets objects of the others.
_CALLED = ("Retry", "group")
_TABLE = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(page: str) -> str:
    """The page with every table as it should be."""
    return _TABLE.sub(lambda found: f"{found[1]}{table(found[2], found[3])}\n{found[4]}", page)


def table(target: str, prefix: str) -> str:
    """The members of a class (`mulligan.client.run:Run`), a function, or all public names of a module (`module:*`)."""
    module, _, name = target.partition(":")
    if name == "*":
        names = sorted(name for name, home in mulligan._LAZY.items() if home == module and not name.startswith("_"))
        rows = [row(f"{prefix}.{name}", getattr(mulligan, name)) for name in names]
        return "\n".join(["| name | meaning |", "|---|---|", *rows])
    found = getattr(import_module(module), name)
    rows = [*members(found, prefix)] if inspect.isclass(found) else [row(prefix, found)]
    return "\n".join(["| name | meaning |", "|---|---|", *rows])


def members(kind: type, prefix: str) -> Iterator[str]:
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if base.__module__.startswith("mulligan") and not name.startswith("_"):
                yield row(f"{prefix}.{name}", value)


def row(called: str, value: Any) -> str:
    return f"| `{called}{signature(value)}` | {first_sentence(value)} |"


def signature(value: Any) -> str:
    """The parameters of a function without their types; the type of a property."""
    getter: Callable[..., Any] | None = getattr(value, "fget", None) or getattr(value, "func", None)
    if getter is not None:
        return f": {inspect.signature(getter).return_annotation}".replace("|", "\\|")
    if inspect.isclass(value) and value.__name__ not in _CALLED:
        return ""
    found = inspect.signature(value)
    shown = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values() if one.name != "self"]
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    returned = "" if inspect.isclass(value) else f" -> {found.return_annotation}"
    return f"{text}{returned}".replace("|", "\\|")


def first_sentence(value: Any) -> str:
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    assert text, f"{value} has no docstring"
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
