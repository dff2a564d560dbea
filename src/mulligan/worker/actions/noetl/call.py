"""What a tool is called with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import Undefined

from .credentials import Credentials
from .templates import Names, filled


@dataclass(frozen=True)
class Call:
    """`names` is what its templates read, `given` what it is handed by name: both are its own."""

    step: str
    names: Names
    credentials: Credentials
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, Any]:
        """The names that there is something under, for code: it knows nothing of what is not there."""
        return {name: value for name, value in self.names.items() if not isinstance(value, Undefined)}

    def of(self, tool: dict[str, Any]) -> Call:
        """The call of this tool: what its step was given, its `args`, its `input`; the later win."""
        given = dict(self.given)
        for key in ("args", "input"):
            said = filled(tool.get(key) or {}, self.names)
            given = over(given, said if isinstance(said, dict) else {"input": said})
        return replace(self, given=given, names={**self.names, **given, "input": given, "args": given})


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, of which the second wins. A null in it leaves room for what is handed over."""
    return {**below, **{name: value for name, value in above.items() if value is not None or name not in below}}
