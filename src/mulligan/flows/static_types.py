"""`Generic` and `overload` for type checkers alone: a step that imports its module should not wait for `typing`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic as Generic
    from typing import overload as overload
else:

    class Generic:
        """Any class, with brackets behind it that say nothing at run time."""

        __slots__ = ()

        def __class_getitem__(cls, _):
            return cls

    def overload(function):
        """The function: the last of the same name is the one that runs."""
        return function
