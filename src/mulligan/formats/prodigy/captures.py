"""What a step of Prodigy's leaves in variables: which of its streams, in which form, under which names."""

from __future__ import annotations

from typing import Any

from mulligan.formats.prodigy.places import Place, Spot, step_path
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


def captured_format(form: Fields) -> dict[str, Any]:
    """Our `capture`: what is made of the output."""
    found = _FORMATS.get(form.get("capture_format", "string"))
    return {"capture": found} if found else {}


def after(form: Fields | None, kind: str, spot: Spot, place: Place) -> Place:
    """The place once the step has run: what it gave is in Prodigy's variables."""
    if not spot.output:
        return place
    value = _value(form, spot)
    said = {"last.output": value}
    if kind in ("shell", "claude"):
        said[f"{kind}.output"] = value
    for name in _names(form):
        said |= _captured(name, value, spot, form)
    return place.knowing(said)


def _names(form: Fields | None) -> list[str]:
    if form is None:
        return []
    named = [form.get("capture"), form.get("capture_output")]
    return [name for name in named if isinstance(name, str)]


def _value(form: Fields | None, spot: Spot) -> str:
    if form is not None and form.get("capture_format") == "boolean":
        words = "['true', 'yes', '1', 'on']"
        return f"({spot.output} != null && {spot.output}.trim().lowerAscii() in {words})"
    return spot.output


def _captured(name: str, value: str, spot: Spot, form: Fields | None) -> dict[str, str]:
    """A variable, and what is known about how it came about."""
    step = step_path(spot.name)
    said = {name: value, f"{name}.stdout": value}
    if spot.name:
        said[f"{name}.success"] = f"({step}.status == 'completed')"
        failed = f"{step}.failure != null && {step}.failure.exit_code != null ? {step}.failure.exit_code : 1"
        said[f"{name}.exit_code"] = f"({step}.status == 'completed' ? 0 : {failed})"
    else:
        said[f"{name}.success"] = f"({spot.output} != null)"
        said[f"{name}.exit_code"] = f"({spot.output} != null ? 0 : 1)"
    if form is not None and redirection(form):
        said[f"{name}.stderr"] = value
    return said
