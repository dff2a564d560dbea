"""Reads `matrix`: one step per combination of values, named after them."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.expressions import as_text
from mulligan.language.keys.value_schemas import NAME, Fields
from mulligan.language.keys.workflow_keys import MATRIX_LISTS, MATRIX_PRODUCT, MATRIX_ZIP, RANGE_MAX, RANGE_STEP_MIN
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, describe, plain, refuse_not_json
from mulligan.language.text.suggestions import did_you_mean

COMBINATIONS_MAX = 100_000

Values = dict[str, Any]

_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_RANGE = lazy_regex(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})(?:\s+step\s+({_NUMBER}))?")
_PARAMETER = lazy_regex(r"\{([^{}:]*)(?::([^{}]*))?\}")
_FORMAT = lazy_regex(r"[<>=^+\-, #0_]{0,4}\d{0,3}(?:\.\d{1,3})?[a-zA-Z%]?")
# The notation of other systems.
_COLONS = lazy_regex(rf"\{{?({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?\}}?")
_COMBINERS = {"zip": MATRIX_ZIP, "product": MATRIX_PRODUCT}
_NOT_ALLOWED = lazy_regex(r"[^A-Za-z0-9_-]+")


def read_matrix(node: Node, scope: Scope) -> list[Values]:
    """The combinations of values: all with all (product), or the first with the first and so on (zip)."""
    form = _form(node)
    lists_node = _COMBINERS[form].read(node, "'matrix'", scope.source)[form] if form else node
    lists = _lists(lists_node, scope)
    if not lists:
        raise scope.source.refuse("matrix", "'matrix' names no values", node, hint="write it as {alpha: [1, 2, 3]}")
    if form == "zip":
        combinations = _zip(lists, lists_node, scope)
    else:
        if (count := math.prod(map(len, lists.values()))) > COMBINATIONS_MAX:
            raise _too_many(count, lists_node, scope)
        combinations = list(itertools.product(*lists.values()))
    return [dict(zip(lists, values, strict=True)) for values in combinations]


def written_names(node: Node) -> tuple[str, ...]:
    """The names of a refused matrix, so that expressions that read them are not refused as well."""
    form = _form(node)
    named = node.get(form) if form and isinstance(node, Mapping) else node
    return tuple(named.entries) if isinstance(named, Mapping) else ()


def _form(node: Node) -> str:
    """`zip` or `product`, if the matrix says so; empty otherwise. A list or range may itself be called 'zip'."""
    names = list(node.entries) if isinstance(node, Mapping) else []
    inner = node.get(names[0]) if isinstance(node, Mapping) and len(names) == 1 else None
    is_form = isinstance(inner, Mapping) and names[0] in _COMBINERS and not {"from", "to"} <= inner.entries.keys()
    return names[0] if is_form else ""


def _lists(node: Node, scope: Scope) -> dict[str, list[Any]]:
    forms = MATRIX_LISTS.read(node, "'matrix'", scope.source)
    nodes = node.entries if isinstance(node, Mapping) else {}
    return {name: _values(form, nodes[name][1], name, scope) for name, form in forms.items()}


def _values(form: Any, node: Node, name: str, scope: Scope) -> list[Any]:
    refuse_not_json(node, scope.source)
    if isinstance(form, Sequence):
        if not form.items:
            raise scope.source.refuse("matrix", f"the list '{name}' is empty", node)
        return [plain(item) for item in form.items]
    if isinstance(form, Fields):
        numbers = (form.get("from"), form.get("to"), form.get("step", 1.0))
        start, stop, step = (None if each is None else _round_number(each) for each in numbers)
    else:
        found = _RANGE.fullmatch(form)
        if not found:
            message = f"'{name}' is {describe(node)}, a list or a range such as 1..10 is expected"
            raise scope.source.refuse("matrix", message, node, hint=_suggest_range(form))
        written = [float(number or 1) for number in found.groups()]
        if max(map(abs, written)) > RANGE_MAX:
            raise scope.source.refuse("matrix", f"a range must lie between {-RANGE_MAX:g} and {RANGE_MAX:g}", node)
        start, stop, step = map(_round_number, written)
    return _range(start, stop, step, node, scope)


def _suggest_range(text: str) -> str:
    """The hint for a text that is no range: how ours is written, the same one if it has colons."""
    if "${" in text:
        return "the values of a matrix are known before a run; for a list from an expression, use 'map: {over: …}'"
    found = _COLONS.fullmatch(text.strip())
    if not found:
        return "write it as 1..10 or '0..1 step 0.25'"
    start, stop, step = found.groups()
    return f"write it as '{start}..{stop} step {step}'" if step else f"write it as {start}..{stop}"


def _round_number(number: float) -> int | float:
    """The number without rounding errors of binary fractions, as an integer if it is whole."""
    number = round(number, 12)
    return int(number) if number == int(number) else number


def _range(start: Any, stop: Any, step: Any, node: Node, scope: Scope) -> list[Any]:
    if start is None or stop is None or step is None:
        return [0]  # already refused; this value is never used
    if abs(step) < RANGE_STEP_MIN:
        raise scope.source.refuse("matrix", f"the step of a range must be at least {RANGE_STEP_MIN:g}", node)
    if (stop - start) * step < 0:
        ways = ("from high to low", "-1") if stop < start else ("from low to high", "1")
        hint = f"write it as '{start:g}..{stop:g} step {ways[1]}', or the other number first"
        raise scope.source.refuse("matrix", f"the range goes {ways[0]}, but its step does not", node, hint=hint)
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > COMBINATIONS_MAX:
        raise _too_many(count, node, scope)
    is_whole = isinstance(start, int) and isinstance(step, int)
    return [start + index * step if is_whole else round(float(start + index * step), 12) for index in range(count)]


def _zip(lists: dict[str, list[Any]], node: Node, scope: Scope) -> list[tuple[Any, ...]]:
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"'{name}' has {length}" for name, length in lengths.items())
        raise scope.source.refuse("matrix", f"the lists of a zip must have the same length: {shown}", node)
    return list(zip(*lists.values(), strict=True))


def _too_many(count: int, node: Node, scope: Scope) -> Exception:
    message = f"the matrix has {count:,} steps, and the maximum is {COMBINATIONS_MAX:,}"
    return scope.source.refuse("matrix", message, node)


def base_name(name: str) -> str:
    """The name of the whole matrix, without parameters."""
    return re.sub(r"[_-]*\{[^{}]*\}", "", name).strip("_-")


def step_names(node: Scalar, combinations: list[Values], scope: Scope) -> list[str]:
    """A name per combination. Values are appended if the written name has no parameters."""
    written = node.text
    if "{" not in written:
        written += "".join(f"_{{{name}}}" for name in combinations[0])
    _refuse_bad_pattern(written, node, combinations[0], scope)
    numbers = _positions(combinations)
    names = [_format_step_name(written, values, numbers, node, scope) for values in combinations]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        hint = "name every value in it, such as 'sim_{alpha}_{i:03d}', with enough digits"
        raise scope.source.refuse("matrix", f"two steps of the matrix are called '{twice}'", node, hint=hint)
    return names


def format_name(written: str, values: Values, node: Node, scope: Scope) -> str:
    """The name of another step with parameters, such as `prep_{i}`, with values filled in."""
    _refuse_bad_pattern(written, node, values, scope)
    return _format_step_name(written, values, {}, node, scope)


def format_path(written: str, values: Values, node: Node, scope: Scope) -> str:
    """A path with parameters, such as `out/part_{i:03d}.csv`, with values filled in."""
    _refuse_bad_parameter(written, node, values, scope)
    return _fill_in(written, values, {}, node, scope)


def _refuse_bad_pattern(written: str, node: Node, values: Values, scope: Scope) -> None:
    _refuse_bad_parameter(written, node, values, scope)
    rest = _PARAMETER.sub("", written)
    if rest and not NAME.fullmatch(rest):
        raise scope.source.refuse("name", f"'{written}' is not a name of letters, digits, '_' and '-'", node)


def _refuse_bad_parameter(written: str, node: Node, values: Values, scope: Scope) -> None:
    for name, spec in _PARAMETER.findall(written):
        if name not in values:
            hint = did_you_mean(name, values)
            raise scope.source.refuse("matrix", f"the matrix has no value '{name}'", node, hint=hint)
        if not _FORMAT.fullmatch(spec):
            raise scope.source.refuse("matrix", f"'{spec}' is not a number format", node, hint="write it as {i:03d}")


def _positions(combinations: list[Values]) -> dict[str, dict[str, int]]:
    """Numbers for values that cannot be part of a name, such as mappings."""
    positions: dict[str, dict[str, int]] = {}
    for values in combinations:
        for name, value in values.items():
            if isinstance(value, dict | list):
                known = positions.setdefault(name, {})
                known.setdefault(repr(value), len(known) + 1)
    return positions


def _format_step_name(
    written: str, values: Values, numbers: dict[str, dict[str, int]], node: Node, scope: Scope
) -> str:
    return _NOT_ALLOWED.sub("_", _fill_in(written, values, numbers, node, scope))


def _fill_in(written: str, values: Values, numbers: dict[str, dict[str, int]], node: Node, scope: Scope) -> str:
    def one(found: re.Match[str]) -> str:
        name, spec = found.group(1), found.group(2) or ""
        value = values[name]
        if isinstance(value, dict | list):
            value = numbers.get(name, {}).get(repr(value), 0)
        try:
            return format(value, spec) if spec else value if isinstance(value, str) else as_text(value) or "null"
        except (ValueError, TypeError):
            raise scope.source.refuse("matrix", f"the value {value!r} cannot be formatted as '{spec}'", node) from None

    return _PARAMETER.sub(one, written)
