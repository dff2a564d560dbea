"""Parameters: the values of `1:10` or `[a,b]`, how they are combined, and the jobs and files they expand to."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeAlias, TypeVar

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.torc.records import PARAMETER_VALUE, entries_of
from mulligan.formats.translation import Translation
from mulligan.language.keys.value_schemas import Fields, Record
from mulligan.language.text.nodes import (
    Mapping,
    Node,
    Refusal,
    Scalar,
    Sequence,
    Source,
    describe,
    plain,
    refuse_not_json,
    shorten,
)
from mulligan.language.text.suggestions import did_you_mean

# -- combinations ----------------------------------------------------------------------------------------------------


COMBINATIONS_MAX = 100_000
# Beyond these, floats are too coarse to count in steps of one, and a range is a mistake.
_NUMBER_MAX = 1e15
_STEP_MIN = 1e-9
# A longer sequence of digits is treated as text.
_DIGITS_MAX = 40

# One value of each parameter.
Values: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[[Values], str]

_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_WHOLE = lazy_regex(r"[+-]?\d+")
_ANY_NUMBER = lazy_regex(_NUMBER)
_RANGE = lazy_regex(rf"({_NUMBER})\s*:\s*({_NUMBER})(?:\s*:\s*({_NUMBER}))?")
# The beginning of a range or of a list.
_LIKE_RANGE_OR_LIST = lazy_regex(rf"\[|{_NUMBER}\s*:")
# An item of a list: quoted, possibly with commas, or up to the next comma.
_ITEM = lazy_regex(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")
PLACEHOLDER = lazy_regex(r"(\$?)\{([^\s{}:$]+)(?::([^{}]*))?\}")
_PADDED = lazy_regex(r"0(\d{1,2})d")
_ROUNDED = lazy_regex(r"\.(\d{1,2})f")


def combinations(form: Fields, shared: Mapping | None, source: Source) -> list[Values]:
    """The parameter values of each job or file that an entry expands to; one empty set without parameters."""
    named = _chosen_parameters(form, shared, source)
    if not named:
        return [{}]
    lists = {name: _parameter_values(name, node, source) for name, node in named.items()}
    if form.get("parameter_mode") == "zip":
        return _zipped(lists, named, source)
    _refuse_too_many(math.prod(map(len, lists.values())), "the parameters have {} combinations", form.node, source)
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def _chosen_parameters(form: Fields, shared: Mapping | None, source: Source) -> dict[str, Node]:
    """The entry's own parameters, or those of the workflow that it names in `use_parameters`."""
    own: dict[str, Node] | None = form.get("parameters")
    if own:
        return own
    there = shared.entries if shared else {}
    chosen: dict[str, Node] = {}
    for name in scalar_items(form, "use_parameters"):
        if name.text in there:
            chosen[name.text] = there[name.text][1]
        else:
            hint = did_you_mean(name.text, there) or "declare it under 'parameters' of the workflow"
            source.note(source.refuse("parameter", f"the workflow has no parameter '{name.text}'", name, hint=hint))
    return chosen


def scalar_items(form: Fields, key: str) -> list[Scalar]:
    """The text nodes of a list; other nodes were refused already."""
    node = form.at(key) if form.get(key) is not None else None
    items = node.items if isinstance(node, Sequence) else []
    return [item for item in items if isinstance(item, Scalar) and item.is_text]


# -- values of a parameter -------------------------------------------------------------------------------------------


def _parameter_values(name: str, node: Node, source: Source) -> list[Any]:
    PARAMETER_VALUE.read(node, f"parameter '{name}'", source)
    refuse_not_json(node, source)
    for item in node.items if isinstance(node, Sequence) else ():
        if not isinstance(item, Scalar) or item.value is None:
            message = f"a value of parameter '{name}' is {describe(item)}, a text or a number is expected"
            raise source.refuse("type", message, item)
    found = [*map(_plain_value, plain(node))] if isinstance(node, Sequence) else _text_values(name, node, source)
    if not found:
        raise source.refuse("parameter", f"parameter '{name}' has no values", node)
    return found


def _plain_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _text_values(name: str, node: Node, source: Source) -> list[Any]:
    """The values of a scalar: a number, a range, a list in brackets, or one text. Surrounding braces are ignored."""
    value = plain(node)
    if not isinstance(value, str):
        return [_plain_value(value)]
    text = value.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text.startswith("[") and text.endswith("]"):
        # A trailing comma adds no item.
        return [_parse_value(item[1]) for item in _ITEM.finditer(text[1:-1]) if item[0]]
    found = _RANGE.fullmatch(text)
    if found is None and _LIKE_RANGE_OR_LIST.match(text):
        message = f"parameter '{name}' has one value, '{shorten(text)}', which is neither a range nor a list"
        source.warn("parameter", message, node, hint="a range is '1:10' or '1:10:2', a list is '[a,b]'")
    return _range_values(found, name, node, source) if found else [_parse_value(text)] if text else []


def _parse_value(text: str) -> Any:
    """Parse an integer, a float, or otherwise a text without its quotes."""
    if _WHOLE.fullmatch(text) and len(text) <= _DIGITS_MAX:
        return int(text)
    if _ANY_NUMBER.fullmatch(text) and len(text) <= _DIGITS_MAX and math.isfinite(float(text)):
        return float(text)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _range_values(found: re.Match[str], name: str, node: Node, source: Source) -> list[Any]:
    """The values of a range, including both ends. They are floats if an end or the step is a float."""
    start, stop, step = (_parse_value(each or "1") for each in found.groups())
    # Values that were too long for a number are texts.
    is_countable = all(not isinstance(each, str) and abs(each) <= _NUMBER_MAX for each in (start, stop, step))
    if not is_countable or abs(step) < _STEP_MIN:
        raise source.refuse(
            "parameter", f"the range of parameter '{name}' has a step or an end that is too small or too large", node
        )
    if (stop - start) * step < 0:
        hint = f"write '{found.group(1)}:{found.group(2)}:{'-1' if stop < start else '1'}', or swap the ends"
        message = f"the range of parameter '{name}' has no values: its step points away from its end"
        raise source.refuse("parameter", message, node, hint=hint)
    # Tolerate rounding errors of floats at the last value.
    count = math.floor((stop - start) / step + 1e-9) + 1
    _refuse_too_many(count, f"parameter '{name}' has {{}} values", node, source)
    # Without the rounding errors of floats: 0.1 * 3 is 0.3.
    return [round(start + index * step, 10) for index in range(count)]


# -- combining values ------------------------------------------------------------------------------------------------


def _zipped(lists: dict[str, list[Any]], named: dict[str, Node], source: Source) -> list[Values]:
    first, *others = lists
    for other in others:
        if len(lists[other]) != len(lists[first]):
            message = (
                "with 'zip' all parameters must have the same number of values: "
                f"'{first}' has {len(lists[first])}, '{other}' has {len(lists[other])}"
            )
            raise source.refuse("parameter", message, named[other])
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _refuse_too_many(count: int, what: str, node: Node, source: Source) -> None:
    if count > COMBINATIONS_MAX:
        message = f"{what.format(f'{count:,}')}, but at most {COMBINATIONS_MAX:,} are allowed"
        raise source.refuse("parameter", message, node)


# -- filling values into texts ---------------------------------------------------------------------------------------


class ParameterTexts:
    """Fills parameter values into texts. Each text is parsed once, however many jobs there are."""

    def __init__(self, names: Iterable[str], source: Source) -> None:
        self.names = frozenset(names)
        self._source = source
        self._known: dict[str, Render | None] = {}

    def fill_in(self, node: Scalar, values: Values) -> str:
        """The text of `node` with `{p}`, `{p:03d}` and `{p:.2f}` replaced by values."""
        if not self.names or "{" not in node.text:
            return node.text
        if node.text not in self._known:
            self._known[node.text] = self._render(node)
        render = self._known[node.text]
        return render(values) if render else node.text

    def used_parameters(self, text: str) -> list[str]:
        """The parameters in a text, in order."""
        found = (name for mark, name, _ in PLACEHOLDER.findall(text) if not mark and name in self.names)
        return list(dict.fromkeys(found))

    def _render(self, node: Scalar) -> Render | None:
        parts: list[str | tuple[str, str, str]] = []
        position = 0
        for hole in PLACEHOLDER.finditer(node.text):
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
        """Whether a placeholder is filled in. Warn about `${p}` and unknown formats, which may be mistakes."""
        mark, name, spec = hole.groups()
        start, length = hole.start(), len(hole.group())
        if mark:
            message = f"'{hole.group()}' is a shell variable, not the parameter '{name}'"
            hint = f"for the parameter write '{{{name}}}'"
            self._source.warn_in("parameter", message, node, start, length, hint=hint)
        elif spec is not None and not (_PADDED.fullmatch(spec) or _ROUNDED.fullmatch(spec)):
            message = f"'{hole.group()}' is left as written: '{spec}' is not a format that Torc knows"
            hint = f"write '{{{name}:03d}}', '{{{name}:.2f}}' or '{{{name}}}'"
            self._source.warn_in("parameter", message, node, start, length, hint=hint)
            return False
        return not mark

    def _formatted(self, part: tuple[str, str, str], values: Values, node: Scalar) -> str:
        name, spec, written = part
        found = formatted(values[name], spec)
        if found is not None:
            return found
        kind, shown = "a whole number" if spec.endswith("d") else "a number", format_value(values[name])
        message = f"'{written}' is left as written where '{name}' is '{shown}', which is not {kind}"
        self._source.warn("parameter", message, node)
        return written


def formatted(value: Any, spec: str) -> str | None:
    """A value in a format of Torc's, such as `03d`; None where it is no number for that."""
    if not spec:
        return format_value(value)
    if isinstance(value, str) or (spec.endswith("d") and value != int(value)):
        return None
    return format(int(value) if spec.endswith("d") else float(value), spec)


def format_value(value: Any) -> str:
    """A value as Torc writes it: floats with all digits, but without a zero fraction."""
    if not isinstance(value, float):
        return str(value)
    written = f"{Decimal(repr(value)):f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


# -- jobs and files of parameters ------------------------------------------------------------------------------------


# A few lines can expand to more jobs than anyone can run.
ENTRIES_MAX = 200_000

_PLURALS = {"job": "jobs", "file": "files", "user data": "user data"}


@dataclass(slots=True, eq=False)
class ExpandedEntry:
    """One job or file: its name, and its texts with parameter values filled in."""

    name: str
    name_node: Scalar
    form: Fields
    texts: dict[str, str] = field(default_factory=dict)
    # Names, each with its node.
    lists: dict[str, list[tuple[str, Scalar]]] = field(default_factory=dict)
    # The values of its parameters; empty if it has none, or stands for several values.
    values: Values = field(default_factory=dict)


OneEntry = TypeVar("OneEntry", bound=ExpandedEntry)


class Expansion:
    """Reads the lists of a file and expands their parameters. Duplicate names are noted."""

    def __init__(self, shared: Mapping | None, translation: Translation) -> None:
        self.translation = translation
        self._source = translation.source
        self._shared = shared
        self._first: dict[tuple[str, str], Node] = {}
        self._count = 0
        # Kinds with an entry whose name could not be read: an unknown name may be meant for it.
        self.unnamed: set[str] = set()

    def read_entries(self, form: Fields, key: str, record: Record, what: str) -> Iterator[Fields]:
        """The entries of a list that can be read and have a name, if they must."""
        for item in entries_of(form, key):
            fields: Fields | None = None
            with self._source.noting:
                fields = record.read(item, _label(item, what), self._source)
            if fields is not None and ("name" in fields or not record.keys["name"].is_required):
                yield fields
            else:
                self.unnamed.add(what)

    def read_expanded(
        self,
        form: Fields,
        key: str,
        record: Record,
        what: str,
        kind: type[OneEntry],
        keys: tuple[str, ...],
        lists: tuple[str, ...] = (),
    ) -> dict[str, OneEntry]:
        """All jobs or files of a list by their names."""
        found: dict[str, OneEntry] = {}
        for entry in self.read_entries(form, key, record, what):
            with self._source.noting:
                found.update({each.name: each for each in self._expand(entry, what, kind, keys, lists)})
        return found

    def _expand(
        self, form: Fields, what: str, kind: type[OneEntry], keys: tuple[str, ...], lists: tuple[str, ...]
    ) -> list[OneEntry]:
        """Expand an entry to one job or file for each distinct name.

        If the name lacks a parameter, one job stands for all its values: each of `keys` must have the same text for all
        of them, and its `lists` have the names of all of them.
        """
        name_node = form.node.get("name")
        assert isinstance(name_node, Scalar)
        all_values = combinations(form, self._shared, self._source)
        self._count += len(all_values)
        if self._count > ENTRIES_MAX:
            message = f"the parameters of this file expand to more than {ENTRIES_MAX:,} jobs and files"
            raise self._source.refuse("parameter", message, form.node)
        texts = ParameterTexts(all_values[0], self._source)
        named: dict[str, list[Values]] = {}
        for values in all_values:
            named.setdefault(texts.fill_in(name_node, values), []).append(values)
        nodes = [(key, node) for key in keys if isinstance(node := form.node.get(key), Scalar) and key in form]
        listed = {key: found for key in lists if (found := scalar_items(form, key))}
        made = _EntryBuilder(kind, form, name_node, texts, nodes, listed, self._source)
        return [made(name, values) for name, values in named.items() if self.is_new(what, name, name_node)]

    def is_new(self, what: str, name: str, node: Node) -> bool:
        """Whether the name is new; a duplicate is noted."""
        first = self._first.setdefault((what, name), node)
        if first is not node:
            line = self._source.number(first)
            message = f"there are two {_PLURALS[what]} '{shorten(name)}': first in line {line}"
            self._source.note(self._source.refuse("duplicate_name", message, node))
        return first is node


def _label(item: Node, what: str) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return f"{what} '{shorten(name.text)}'" if isinstance(name, Scalar) and name.value else f"a {what}"


@dataclass(eq=False)
class _EntryBuilder(Generic[OneEntry]):
    """Builds the jobs or files of one entry."""

    _kind: type[OneEntry]
    _form: Fields
    _name_node: Scalar
    _texts: ParameterTexts
    _keys: list[tuple[str, Scalar]]
    _lists: dict[str, list[Scalar]]
    _source: Source

    def __call__(self, name: str, all_values: list[Values]) -> OneEntry:
        made = self._kind(name, self._name_node, self._form)
        if len(all_values) == 1:
            made.values = all_values[0]
        for key, node in self._keys:
            if node.value is not None:
                made.texts[key] = self._text(key, node, name, all_values)
        for key, nodes in self._lists.items():
            filled = ((self._texts.fill_in(node, values), node) for values in all_values for node in nodes)
            made.lists[key] = list({text: (text, node) for text, node in filled}.values())
        return made

    def _text(self, key: str, node: Scalar, name: str, all_values: list[Values]) -> str:
        """The text at a key, which must be the same for all values."""
        texts = [self._texts.fill_in(node, values) for values in all_values]
        if any(text != texts[0] for text in texts):
            self._source.note(self._refuse_differing(key, node, name))
        return texts[0]

    def _refuse_differing(self, key: str, node: Scalar, name: str) -> Refusal:
        in_name = self._texts.used_parameters(self._name_node.text)
        used = self._texts.used_parameters(node.text)
        differing = next((each for each in used if each not in in_name), used[0])
        message = f"'{key}' depends on '{differing}', but the name '{shorten(name)}' does not"
        hint = f"add '{{{differing}}}' to the name, or remove it from '{key}'"
        return self._source.refuse("parameter", message, node, hint=hint)
