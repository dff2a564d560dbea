"""What a step of Prodigy's leaves in variables: which of its streams, in which form, under which names."""

from __future__ import annotations

from typing import Any

from mulligan.formats.expressions import step_path
from mulligan.formats.prodigy.places import Place, Spot
from mulligan.language.shapes import Fields

# Both streams as one, and the one in the place of the other.
_BOTH = "exec 2>&1\n"
_ERRORS = "exec 3>&1 1>&2 2>&3 3>&-\n"
_FORMATS = {"json": "json", "number": "json", "lines": "lines"}


def redirection(form: Fields) -> str:
    """What stands before the script, so that the output is the stream that is asked for."""
    streams = form.get("capture_streams")
    if isinstance(streams, Fields):
        has_output, has_errors = streams.get("stdout", True), streams.get("stderr", False)
        streams = "both" if has_output and has_errors else "stderr" if has_errors else "stdout"
    return {"both": _BOTH, "stderr": _ERRORS}.get(streams or "", "")


def captured_format(form: Fields, kind: str) -> dict[str, Any]:
    """Our `capture`: what is made of the output. An agent's answer is an object in any case."""
    found = _FORMATS.get(form.get("capture_format", "string"))
    return {"capture": found} if found and kind != "claude" else {}


def answers_json(form: Fields) -> bool:
    """Whether an agent has to answer with JSON."""
    return form.get("capture_format") in ("json", "number")


def said_by_agent(output: str, field: str = "content") -> str:
    """What an agent said. Where a handler stands in for it the output is that of the handler."""
    return f"(type({output}) == map && has({output}.{field}) ? {output}.{field} : {output})"


def after(form: Fields | None, kind: str, spot: Spot, place: Place, *, is_certain: bool) -> Place:
    """The place once the step has run: what it gave is in Prodigy's variables.

    `is_certain`: nobody reads it unless the step's own command has done its work.
    """
    if not spot.output:
        return place
    value = _value(form, kind, spot.output, is_certain=is_certain)
    said = {"last.output": value}
    if kind in ("shell", "claude"):
        said[f"{kind}.output"] = value
    for name in captured_names(form):
        said |= {name: value, f"{name}.stdout": value}
        said |= _ending(name, spot, is_certain=is_certain)
        if form is not None and redirection(form):
            said[f"{name}.stderr"] = value
    return place.knowing(said)


def captured_names(form: Fields | None) -> list[str]:
    """The variables that have the output of a step."""
    if form is None:
        return []
    named = [form.get("capture"), form.get("capture_output")]
    return [name for name in named if isinstance(name, str)]


def _value(form: Fields | None, kind: str, output: str, *, is_certain: bool) -> str:
    wanted = "string" if form is None else form.get("capture_format", "string")
    said = output
    if kind == "claude":
        field = "json" if form is not None and answers_json(form) else "content"
        said = f"{output}.{field}" if is_certain else said_by_agent(output, field)
    if wanted == "boolean":
        is_there = "" if is_certain else f"{output} != null && "
        return f"({is_there}{said}.trim().lowerAscii() in ['true', 'yes', '1', 'on'])"
    if wanted == "lines" and kind == "claude":
        return f"{said}.split('\\n')"
    return said


def _ending(name: str, spot: Spot, *, is_certain: bool) -> dict[str, str]:
    """How the step ended: of an item's command it is only known whether it gave something."""
    if is_certain:
        return {f"{name}.success": "true", f"{name}.exit_code": "0"}
    if not spot.name:
        said = {"success": f"({spot.output} != null)", "exit_code": f"({spot.output} != null ? 0 : 1)"}
        return {f"{name}.{field}": expression for field, expression in said.items()}
    step = step_path(spot.name)
    failed = f"{step}.failure != null ? {step}.failure.exit_code : null"
    return {
        f"{name}.success": f"({step}.status == 'completed')",
        f"{name}.exit_code": f"({step}.status == 'completed' ? 0 : {failed})",
    }
