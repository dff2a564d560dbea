"""Fields for the typed inputs of a workflow: those of a run, and those of a schedule. `input_fields.js` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mulligan.service.rendering.page.markup import Html, element, join_html


def input_fields(
    inputs: Mapping[str, Any], given: Mapping[str, Any] | None = None, *, allows_placeholders: bool = False
) -> Html:
    """A field for each input, with the value that is `given`. In a schedule a value may be `${schedule.date}`."""
    if not inputs:
        return element("p", "It has no inputs.", class_="muted")
    return join_html(_field(name, one, given or {}, allows_placeholders) for name, one in inputs.items())


def _field(name: str, one: Any, given: Mapping[str, Any], allows_placeholders: bool) -> Html:
    """A field for a typed input. Its values are JSON, except for texts."""
    identifier = f"input-{name}"
    is_needed = not one.has_default
    about = f"{one.type}, {'needed' if is_needed else f'default {_json(one.default)}'}"
    common = {"id": identifier, "data_input": name, "data_type": one.type, "required": is_needed}
    common["data_placeholders"] = allows_placeholders
    text = ""
    is_template = allows_placeholders and isinstance(given.get(name), str) and "${" in given[name]
    if name in given:
        is_text = isinstance(given[name], str) and (one.type == "string" or is_template)
        text = given[name] if is_text else _json(given[name])
    if one.enum or one.type == "boolean":
        values = (*(one.enum or (True, False)), *((given[name],) if is_template else ()))
        first = element("option", "choose" if is_needed else f"default: {_shown(one.default)}", value="")
        chosen = _json(given[name]) if name in given else ""
        options = (
            element("option", _shown(value), value=_json(value), selected=_json(value) == chosen) for value in values
        )
        control = element("select", first, *options, **common)
    elif one.type in ("array", "object", "any") or (isinstance(one.default, str) and "\n" in one.default):
        holder = "JSON" if one.type != "string" and is_needed else _shown(one.default) if one.has_default else ""
        control = element("textarea", text, rows=4, placeholder=holder, class_="mono", spellcheck="false", **common)
    else:
        kind = {"integer": "numeric", "number": "decimal"}.get(one.type) if not allows_placeholders else None
        holder = _shown(one.default) if one.has_default else ""
        more = {"inputmode": kind, "placeholder": holder or None, "value": text or None}
        control = element("input", type="text", autocomplete="off", **more, **common)
    return element(
        "div",
        element("label", name, for_=identifier),
        control,
        element("small", f"{one.description} · {about}" if one.description else about),
        element("p", class_="problem", role="alert", data_problem=name),
        class_="field",
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)
