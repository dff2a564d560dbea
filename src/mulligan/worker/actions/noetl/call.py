"""What a tool is called with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import Undefined

from mulligan.worker.actions.noetl.credentials import Credentials
from mulligan.worker.actions.noetl.file_texts import FileText, of_file, unmarked
from mulligan.worker.actions.noetl.template_reads import are_of_file, reads
from mulligan.worker.actions.noetl.templates import Names, filled, filled_text, is_template


@dataclass(frozen=True)
class Call:
    """`names` is what its templates read, `given` what it is handed by name: both are its own.

    `trusts_templates` says that any value may become part of a command or a query, as it does in NoETL.
    """

    step: str
    names: Names
    credentials: Credentials
    given: dict[str, Any] = field(default_factory=dict)
    trusts_templates: bool = False

    @property
    def known(self) -> dict[str, Any]:
        """The names that there is something under, for code: it knows nothing of what is not there."""
        return {name: unmarked(value) for name, value in self.names.items() if not isinstance(value, Undefined)}

    def of(self, tool: dict[str, Any]) -> Call:
        """The call of this tool: what its step was given, its `args`, its `input`; the later win."""
        given = dict(self.given)
        for key in ("args", "input"):
            said = filled_with_marks(tool.get(key) or {}, self.names)
            given = over(given, said if isinstance(said, dict) else {"input": said})
        return replace(self, given=given, names={**self.names, **given, "input": given, "args": given})


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, of which the second wins. A null in it leaves room for what is handed over."""
    return {**below, **{name: value for name, value in above.items() if value is not None or name not in below}}


def filled_with_marks(value: Any, names: Names) -> Any:
    """A value of the file with all templates in it filled in; what is all the file's is marked as that."""
    if isinstance(value, dict):
        texts = {key: filled_text(key, names) if isinstance(key, str) else key for key in value}
        return {texts[key]: filled_with_marks(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled_with_marks(inner, names) for inner in value]
    if not isinstance(value, str):
        return value
    if not is_template(value):
        return FileText(value)
    found = filled(value, names)
    return of_file(found) if are_of_file(reads(value), names) else found
