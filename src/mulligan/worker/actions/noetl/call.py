"""What a tool is called with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .credentials import Credentials
from .templates import Names, filled


@dataclass(frozen=True)
class Call:
    """`names` is what its templates read, `given` the input of its step, rendered."""

    step: str
    names: Names
    credentials: Credentials
    given: dict[str, Any] = field(default_factory=dict)

    def arguments(self, tool: dict[str, Any]) -> dict[str, Any]:
        """The values for the tool, by name: its step's, its `args`, its `input`; the later win."""
        found = dict(self.given)
        for key in ("args", "input"):
            said = filled(tool.get(key) or {}, self.names)
            found.update(said if isinstance(said, dict) else {"input": said})
        return found
