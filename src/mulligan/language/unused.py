"""What a file declares and nothing in it uses: lawful, and most likely a slip or a leftover."""

from __future__ import annotations

from mulligan.language.nodes import Mapping
from mulligan.language.scope import Draft
from mulligan.language.shapes import Fields

# For each section what an entry of it is called, and what nobody does with it.
_SECTIONS = {
    "inputs": ("input", "read"),
    "secrets": ("secret", "read"),
    "files": ("file", "read or written"),
    "retry_policies": ("retry policy", "used"),
    "handlers": ("handler", "used"),
}


def warn_unused(fields: Fields, draft: Draft) -> None:
    """Warn about every entry of these sections that no step, no default and no output uses."""
    for section, (what, done) in _SECTIONS.items():
        node = fields.at(section) if section in fields else None
        if not isinstance(node, Mapping) or (section, "*") in draft.used:
            continue
        for name, (key, _) in node.entries.items():
            if (section, name) not in draft.used:
                message = f"the {what} '{name}' is declared and never {done}"
                draft.source.warn(f"unused_{what.rpartition(' ')[2]}", message, key, hint="remove it, or use it")
