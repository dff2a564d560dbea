"""The names and the input of a tool call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import Undefined

from mulligan.formats.noetl.runtime.credentials import Credentials
from mulligan.formats.noetl.runtime.file_texts import FileText, mark_file_texts, without_marks
from mulligan.formats.noetl.runtime.parts import Parts
from mulligan.formats.noetl.runtime.template_reads import are_from_file, paths_read
from mulligan.formats.noetl.runtime.templates import Names, is_template, render_text, render_value


@dataclass(frozen=True)
class Call:
    """A call of a tool: `names` are what its templates read, `given` is its input.

    `trusts_templates`: any value may become part of a command or a query, as in NoETL.
    """

    step: str
    names: Names
    credentials: Credentials
    given: dict[str, Any] = field(default_factory=dict)
    trusts_templates: bool = False
    # Where the outcome of the call is recorded; None where it is the only part of its step.
    parts: Parts | None = None

    @property
    def known(self) -> dict[str, Any]:
        """The names that are defined, for Python code."""
        return {name: without_marks(value) for name, value in self.names.items() if not isinstance(value, Undefined)}

    def of(self, tool: dict[str, Any]) -> Call:
        """The call for this tool: the input of its step, its `args`, its `input`; the later win."""
        given = dict(self.given)
        for key in ("args", "input"):
            value = render_marked(tool.get(key) or {}, self.names)
            given = merge_inputs(given, value if isinstance(value, dict) else {"input": value})
        return replace(self, given=given, names={**self.names, **given, "input": given, "args": given})


def merge_inputs(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both mappings; the second wins, unless its value is null."""
    return {**below, **{name: value for name, value in above.items() if value is not None or name not in below}}


def render_marked(value: Any, names: Names) -> Any:
    """Render a value of the file. Texts that are made of texts of the file alone are marked as such."""
    if isinstance(value, dict):
        texts = {key: render_text(key, names) if isinstance(key, str) else key for key in value}
        return {texts[key]: render_marked(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [render_marked(inner, names) for inner in value]
    if not isinstance(value, str):
        return value
    if not is_template(value):
        return FileText(value)
    found = render_value(value, names)
    return mark_file_texts(found) if are_from_file(paths_read(value), names) else found
