"""Parameters: what a text such as `1:10` or `[a,b]` stands for, how values are combined, and how they go into texts."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeAlias

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.formats.torc.records import PARAMETER_VALUE
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, describe, plain, refuse_not_json, shorten
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import did_you_mean

COMBINATIONS_MAX = 100_000
# Beyond these a float counts no longer in ones, and a range has no end that anybody means.
_NUMBER_MAX = 1e15
_STEP_MIN = 1e-9
# What is longer is a text that happens to have digits alone.
_DIGITS_MAX = 40

# One value of each parameter.
Values: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[[Values], str]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_WHOLE = lazy_regex(r"[+-]?\d+")
_ANY_NUMBER = lazy_regex(_NUMBER)
_RANGE = lazy_regex(rf"({_NUMBER})\s*:\s*({_NUMBER})(?:\s*:\s*({_NUMBER}))?")
# How one begins, or a list.
_LIKE_SEVERAL = lazy_regex(rf"\[|{_NUMBER}\s*:")
# An item of a list: in quotes, in which a comma is a comma, or up to the next comma.
_ITEM = lazy_regex(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")
_HOLE = lazy_regex(r"(\$?)\{([^\s{}:$]+)(?::([^{}]*))?\}")
_PADDED = lazy_regex(r"0(\d{1,2})d")
_ROUNDED = lazy_regex(r"\.(\d{1,2})f")


def combinations(form: Fields, shared: Mapping | None, translation: Translation) -> list[Values]:
    """The values of each job (or file) that this one stands for; one without any where it has no parameters."""
    named = _chosen(form, shared, translation.source)
    if not named:
        return [{}]
    lists = {name: _values(name, node, translation.source) for name, node in named.items()}
    is_zip = form.get("parameter_mode") == "zip"
    return _zipped(lists, named, translation.source) if is_zip else _product(lists, form, translation.source)


def _chosen(form: Fields, shared: Mapping | None, source: Source) -> dict[str, Node]:
    """Its own parameters, else those of the workflow that it asks for."""
    own: dict[str, Node] | None = form.get("parameters")
    if own:
        return own
    there = shared.entries if shared else {}
    chosen: dict[str, Node] = {}
    for name in scalars(form, "use_parameters"):
        if name.text in there:
            chosen[name.text] = there[name.text][1]
        else:
            hint = did_you_mean(name.text, there) or "declare it under 'parameters' of the workflow"
            source.note(source.refuse("parameter", f"the workflow has no parameter '{name.text}'", name, hint=hint))
    return chosen


def scalars(form: Fields, key: str) -> list[Scalar]:
    """The texts of a list, each where it stands; those that are none were refused."""
    node = form.at(key) if form.get(key) is not None else None
    items = node.items if isinstance(node, Sequence) else []
    return [item for item in items if isinstance(item, Scalar) and item.is_text]


# -- what a parameter stands for -----------------------------------------------------------------------------------


def _values(name: str, node: Node, source: Source) -> list[Any]:
    PARAMETER_VALUE.read(node, f"parameter '{name}'", source)
    refuse_not_json(node, source)
    found = _listed(node, name, source) if isinstance(node, Sequence) else _written(name, node, source)
    if not found:
        raise source.refuse("parameter", f"parameter '{name}' has no values", node)
    return found


def _listed(node: Sequence, name: str, source: Source) -> list[Any]:
    for item in node.items:
        if not isinstance(item, Scalar) or item.value is None:
            message = f"a value of parameter '{name}' is {describe(item)}, a text or a number is expected"
            raise source.refuse("type", message, item)
    return [_as_said(plain(item)) for item in node.items]


def _as_said(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _written(name: str, node: Node, source: Source) -> list[Any]:
    """A number of the file, or a text: a range, a list in brackets, or one value. Braces around it say nothing."""
    value = plain(node)
    if not isinstance(value, str):
        return [_as_said(value)]
    text = value.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text.startswith("[") and text.endswith("]"):
        return [_one(item) for item in _items(text[1:-1])]
    found = _RANGE.fullmatch(text)
    if found is None and _LIKE_SEVERAL.match(text):
        message = f"parameter '{name}' has one value, '{shorten(text)}', which is no range and no list"
        source.warn("parameter", message, node, hint="a range is '1:10' or '1:10:2', a list is '[a,b]'")
    return _range(found, name, node, source) if found else [_one(text)] if text else []


def _items(text: str) -> Iterable[str]:
    """The items of a list; nothing stands after a last comma."""
    position = 0
    while position < len(text):
        found = _ITEM.match(text, position)
        if found is None or not found.end() > position:
            break
        yield found.group(1)
        position = found.end()


def _one(text: str) -> Any:
    """A whole number, else a number, else a text without its quotes."""
    if _WHOLE.fullmatch(text) and len(text) <= _DIGITS_MAX:
        return int(text)
    if _ANY_NUMBER.fullmatch(text) and len(text) <= _DIGITS_MAX and math.isfinite(float(text)):
        return float(text)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _range(found: re.Match[str], name: str, node: Node, source: Source) -> list[Any]:
    """Both ends belong to it. Of floats where one of the ends (or the step) is one."""
    start, stop, step = (_one(each or "1") for each in found.groups())
    # What is beyond all numbers was left a text.
    is_countable = all(not isinstance(each, str) and abs(each) <= _NUMBER_MAX for each in (start, stop, step))
    if not is_countable or abs(step) < _STEP_MIN:
        raise source.refuse("parameter", f"the range of parameter '{name}' counts in no steps", node)
    if (stop - start) * step < 0:
        hint = f"write '{found.group(1)}:{found.group(2)}:{'-1' if stop < start else '1'}', or the other end first"
        message = f"the range of parameter '{name}' has no values: its step leads away from its end"
        raise source.refuse("parameter", message, node, hint=hint)
    # What is missing to the last value by the dust of binary fractions is not missing.
    count = math.floor((stop - start) / step + 1e-9) + 1
    _refuse_too_many(count, f"parameter '{name}' has {{}} values", node, source)
    return [_tidy(start + index * step) for index in range(count)]


def _tidy(value: Any) -> Any:
    """Without the dust of binary fractions: 0.1 * 3 is 0.3."""
    return round(value, 10) if isinstance(value, float) else value


# -- how values are combined ---------------------------------------------------------------------------------------


def _product(lists: dict[str, list[Any]], form: Fields, source: Source) -> list[Values]:
    count = math.prod(map(len, lists.values()))
    _refuse_too_many(count, "the parameters have {} combinations", form.node, source)
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _zipped(lists: dict[str, list[Any]], named: dict[str, Node], source: Source) -> list[Values]:
    first, *others = lists
    for other in others:
        if len(lists[other]) != len(lists[first]):
            message = (
                "with 'zip' all parameters have the same number of values: "
                f"'{first}' has {len(lists[first])}, '{other}' has {len(lists[other])}"
            )
            raise source.refuse("parameter", message, named[other])
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _refuse_too_many(count: int, what: str, node: Node, source: Source) -> None:
    if count > COMBINATIONS_MAX:
        message = f"{what.format(f'{count:,}')}, and {COMBINATIONS_MAX:,} are the most"
        raise source.refuse("parameter", message, node)


# -- how values go into texts --------------------------------------------------------------------------------------


class Texts:
    """Texts with the values of one job's parameters in them. Each is taken apart once, however many jobs there are."""

    def __init__(self, names: Iterable[str], translation: Translation) -> None:
        self.names = frozenset(names)
        self._translation = translation
        self._known: dict[str, Render | None] = {}

    def filled(self, node: Scalar, values: Values) -> str:
        """The text of `node` with these values. `{p}`, `{p:03d}` and `{p:.2f}` are filled in, all else stays."""
        if not self.names or "{" not in node.text:
            return node.text
        if node.text not in self._known:
            self._known[node.text] = self._render(node)
        render = self._known[node.text]
        return render(values) if render else node.text

    def used(self, text: str) -> list[str]:
        """The parameters that a text depends on, in its order."""
        found = (name for mark, name, _ in _HOLE.findall(text) if not mark and name in self.names)
        return list(dict.fromkeys(found))

    def _render(self, node: Scalar) -> Render | None:
        parts: list[str | tuple[str, str, str]] = []
        position = 0
        for hole in _HOLE.finditer(node.text):
            _, name, spec = hole.groups()
            if name not in self.names or not self._is_ours(hole, node):
                continue
            parts += [node.text[position : hole.start()], (name, spec or "", hole.group())]
            position = hole.end()
        if not position:
            return None
        parts.append(node.text[position:])
        return lambda values: "".join(
            part if isinstance(part, str) else self._formatted(part, values, node) for part in parts
        )

    def _is_ours(self, hole: re.Match[str], node: Scalar) -> bool:
        """Not the shell's `${p}`, and in a format that Torc has. Both are said: the other may be meant."""
        mark, name, spec = hole.groups()
        start, length = hole.start(), len(hole.group())
        if mark:
            message = f"'{hole.group()}' is a variable of the shell's, and not the parameter '{name}'"
            hint = f"for the parameter write '{{{name}}}'"
            self._translation.source.warn_in("parameter", message, node, start, length, hint=hint)
        elif spec is not None and not (_PADDED.fullmatch(spec) or _ROUNDED.fullmatch(spec)):
            message = f"'{hole.group()}' stays as it is: '{spec}' is no format of Torc's"
            hint = f"write '{{{name}:03d}}', '{{{name}:.2f}}' or '{{{name}}}'"
            self._translation.source.warn_in("parameter", message, node, start, length, hint=hint)
            return False
        return not mark

    def _formatted(self, part: tuple[str, str, str], values: Values, node: Scalar) -> str:
        name, spec, written = part
        value = values[name]
        if not spec:
            return as_text(value)
        if isinstance(value, str) or (spec.endswith("d") and value != int(value)):
            kind = "a whole number" if spec.endswith("d") else "a number"
            message = f"'{written}' stays as it is where '{name}' is '{as_text(value)}', which is not {kind}"
            self._translation.source.warn("parameter", message, node)
            return written
        return format(int(value) if spec.endswith("d") else float(value), spec)


def as_text(value: Any) -> str:
    """A value as Torc writes it: floats with all their digits, and without a fraction that is none."""
    if not isinstance(value, float):
        return str(value)
    written = f"{Decimal(repr(value)):f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
