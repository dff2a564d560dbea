"""Values of the command line without pydantic, whose import costs more time than most of our commands take.

Typer converts every value through it, even a path or a flag that was not given. What needs no conversion is taken
as it is here; everything else is left to Typer. Where Typer works differently, this changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"'{value}' is not a whole number") from None


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    str: str,
    int: _whole,
    Path: Path,
    list[str]: list,
    list[int]: lambda values: [_whole(value) for value in values],
    list[Path]: lambda values: [Path(value) for value in values],
}


class Plain:
    """Stands where Typer keeps the converter of one parameter, and calls for that one only if it must."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        convert = _PLAIN.get(param.type_descriptor.annotation)
        if convert:
            return convert(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def taken_plainly(params: list[Any]) -> list[Any]:
    """The parameters of a command, whose plain values are now taken as they are."""
    for param in params:
        param._runtime_param = Plain()
    return params
