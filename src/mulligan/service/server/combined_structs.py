"""Structs made of others that have fields of the same names: a view of a record, a record of a form."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Combined = TypeVar("Combined", bound=msgspec.Struct)


def combine(kind: type[Combined], *sources: msgspec.Struct, **others: Any) -> Combined:
    """A struct of this kind with the fields that the sources have too, and `others`, which take precedence."""
    names = kind.__struct_fields__
    found = {name: getattr(one, name) for one in sources for name in one.__struct_fields__ if name in names}
    return kind(**(found | others))
