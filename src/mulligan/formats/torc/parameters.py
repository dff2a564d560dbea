"""Parameters: the values of `1:10` or `[a,b]`, how they are combined, and the jobs and files they expand to."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from mulligan.core.patterns import pattern
from mulligan.formats.torc.records import PARAMETER_VALUE, entries_of
from mulligan.formats.translation import Translation
from mulligan.language.nodes import (
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
from mulligan.language.shapes import Fields, Record
from mulligan.language.words import did_you_mean

# -- combinations ----------------------------------------------------------------------------------------------------


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
_WHOLE = pattern(r"[+-]?\d+")
_ANY_NUMBER = pattern(_NUMBER)
_RANGE = pattern(rf"({_NUMBER})\s*:\s*({_NUMBER})(?:\s*:\s*({_NUMBER}))?")
# How one begins, or a list.
_LIKE_RANGE_OR_LIST = pattern(rf"\[|{_NUMBER}\s*:")
# An item of a list: in quotes, in which a comma is a comma, or up to the next comma.
_ITEM = pattern(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")
_PLACEHOLDER = pattern(r"(\$?)\{([^\s{}:$]+)(?::([^{}]*))?\}")
_PADDED = pattern(r"0(\d{1,2})d")
_ROUNDED = pattern(r"\.(\d{1,2})f")


def combinations(form: Fields, shared: Mapping | None, translation: Translation) -> list[Values]:
    """The values of each job (or file) that this one stands for; one without any where it has no parameters."""
    named = _chosen_parameters(form, shared, translation.source)
    if not named:
        return [{}]
    lists = {name: _parameter_values(name, node, translation.source) for name, node in named.items()}
    is_zip = form.get("parameter_mode") == "zip"
    return _zipped(lists, named, translation.source) if is_zip else _product(lists, form, translation.source)


def _chosen_parameters(form: Fields, shared: Mapping | None, source: Source) -> dict[str, Node]:
    """Its own parameters, else those of the workflow that it asks for."""
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
    """The texts of a list, each where it stands; those that are none were refused."""
    node = form.at(key) if form.get(key) is not None else None
    items = node.items if isinstance(node, Sequence) else []
    return [item for item in items if isinstance(item, Scalar) and item.is_text]


# -- values of a parameter -------------------------------------------------------------------------------------------


def _parameter_values(name: str, node: Node, source: Source) -> list[Any]:
    PARAMETER_VALUE.read(node, f"parameter '{name}'", source)
    refuse_not_json(node, source)
    found = _list_values(node, name, source) if isinstance(node, Sequence) else _text_values(name, node, source)
    if not found:
        raise source.refuse("parameter", f"parameter '{name}' has no values", node)
    return found


def _list_values(node: Sequence, name: str, source: Source) -> list[Any]:
    for item in node.items:
        if not isinstance(item, Scalar) or item.value is None:
            message = f"a value of parameter '{name}' is {describe(item)}, a text or a number is expected"
            raise source.refuse("type", message, item)
    return [_plain_value(plain(item)) for item in node.items]


def _plain_value(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _text_values(name: str, node: Node, source: Source) -> list[Any]:
    """A number of the file, or a text: a range, a list in brackets, or one value. Braces around it say nothing."""
    value = plain(node)
    if not isinstance(value, str):
        return [_plain_value(value)]
    text = value.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text.startswith("[") and text.endswith("]"):
        return [_parse_value(item) for item in _split_items(text[1:-1])]
    found = _RANGE.fullmatch(text)
    if found is None and _LIKE_RANGE_OR_LIST.match(text):
        message = f"parameter '{name}' has one value, '{shorten(text)}', which is no range and no list"
        source.warn("parameter", message, node, hint="a range is '1:10' or '1:10:2', a list is '[a,b]'")
    return _range_values(found, name, node, source) if found else [_parse_value(text)] if text else []


def _split_items(text: str) -> Iterable[str]:
    """The items of a list; nothing stands after a last comma."""
    position = 0
    while position < len(text):
        found = _ITEM.match(text, position)
        if found is None or not found.end() > position:
            break
        yield found.group(1)
        position = found.end()


def _parse_value(text: str) -> Any:
    """A whole number, else a number, else a text without its quotes."""
    if _WHOLE.fullmatch(text) and len(text) <= _DIGITS_MAX:
        return int(text)
    if _ANY_NUMBER.fullmatch(text) and len(text) <= _DIGITS_MAX and math.isfinite(float(text)):
        return float(text)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _range_values(found: re.Match[str], name: str, node: Node, source: Source) -> list[Any]:
    """Both ends belong to it. Of floats where one of the ends (or the step) is one."""
    start, stop, step = (_parse_value(each or "1") for each in found.groups())
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
    return [_rounded(start + index * step) for index in range(count)]


def _rounded(value: Any) -> Any:
    """Without the dust of binary fractions: 0.1 * 3 is 0.3."""
    return round(value, 10) if isinstance(value, float) else value


# -- combining values ------------------------------------------------------------------------------------------------


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


# -- filling values into texts ---------------------------------------------------------------------------------------


class ParameterTexts:
    """Texts with the values of one job's parameters in them. Each is taken apart once, however many jobs there are."""

    def __init__(self, names: Iterable[str], translation: Translation) -> None:
        self.names = frozenset(names)
        self._translation = translation
        self._known: dict[str, Render | None] = {}

    def fill_in(self, node: Scalar, values: Values) -> str:
        """The text of `node` with these values. `{p}`, `{p:03d}` and `{p:.2f}` are filled in, all else stays."""
        if not self.names or "{" not in node.text:
            return node.text
        if node.text not in self._known:
            self._known[node.text] = self._render(node)
        render = self._known[node.text]
        return render(values) if render else node.text

    def used_parameters(self, text: str) -> list[str]:
        """The parameters that a text depends on, in its order."""
        found = (name for mark, name, _ in _PLACEHOLDER.findall(text) if not mark and name in self.names)
        return list(dict.fromkeys(found))

    def _render(self, node: Scalar) -> Render | None:
        parts: list[str | tuple[str, str, str]] = []
        position = 0
        for hole in _PLACEHOLDER.finditer(node.text):
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
            return format_value(value)
        if isinstance(value, str) or (spec.endswith("d") and value != int(value)):
            kind = "a whole number" if spec.endswith("d") else "a number"
            message = f"'{written}' stays as it is where '{name}' is '{format_value(value)}', which is not {kind}"
            self._translation.source.warn("parameter", message, node)
            return written
        return format(int(value) if spec.endswith("d") else float(value), spec)


def format_value(value: Any) -> str:
    """A value as Torc writes it: floats with all their digits, and without a fraction that is none."""
    if not isinstance(value, float):
        return str(value)
    written = f"{Decimal(repr(value)):f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


# -- jobs and files of parameters ------------------------------------------------------------------------------------


# More than anybody runs, and a file of a few lines can stand for them.
ENTRIES_MAX = 200_000

_PLURALS = {"job": "jobs", "file": "files", "user data": "user data"}


class ExpandedEntry:
    """One job or file: its name, and its texts with the values of the parameters in them."""

    __slots__ = ("form", "lists", "name", "name_node", "texts")

    def __init__(self, name: str, name_node: Scalar, form: Fields) -> None:
        self.name = name
        self.name_node = name_node
        self.form = form
        self.texts: dict[str, str] = {}
        # Names, each with the place where it stands.
        self.lists: dict[str, list[tuple[str, Scalar]]] = {}


class Expansion:
    """Reads the lists of a file. Names that are there twice are noted."""

    def __init__(self, shared: Mapping | None, translation: Translation) -> None:
        self.translation = translation
        self._shared = shared
        self._first: dict[tuple[str, str], Node] = {}
        self._count = 0
        # Of these some have no name that could be read: a name that is missing may be theirs.
        self.unnamed: set[str] = set()

    @property
    def _source(self) -> Source:
        return self.translation.source

    def read_entries(self, form: Fields, key: str, record: Record, what: str) -> Iterator[Fields]:
        """The entries of a list, as far as they can be read."""
        for item in entries_of(form, key):
            fields = self._read(item, record, what)
            if fields is not None:
                yield fields
            else:
                self.unnamed.add(what)

    def _read(self, item: Node, record: Record, what: str) -> Fields | None:
        """An entry; None where nobody can say what it is called."""
        with self._source.noting:
            fields: Fields = record.read(item, _label(item, what), self._source)
            is_named = "name" in fields or not record.keys["name"].is_required
            return fields if is_named else None
        return None

    def expand(
        self, form: Fields, what: str, keys: tuple[str, ...], lists: tuple[str, ...] = ()
    ) -> list[ExpandedEntry]:
        """The things that an entry stands for: one for each name that the values of its parameters make.

        Where the name lacks a parameter, one thing stands for all values of it: it has one text at each of `keys`,
        and in its `lists` what all of them name.
        """
        name_node = form.node.get("name")
        assert isinstance(name_node, Scalar)
        all_values = combinations(form, self._shared, self.translation)
        self._refuse_too_many(len(all_values), form)
        texts = ParameterTexts(all_values[0], self.translation)
        named: dict[str, list[Values]] = {}
        for values in all_values:
            named.setdefault(texts.fill_in(name_node, values), []).append(values)
        made = _EntryBuilder(form, name_node, texts, keys, lists, self._source)
        return [made(name, values) for name, values in named.items() if self.is_new(what, name, name_node)]

    def is_new(self, what: str, name: str, node: Node) -> bool:
        """Whether nothing of the kind has that name yet; else that is noted."""
        first = self._first.setdefault((what, name), node)
        if first is not node:
            line = self._source.number(first)
            message = f"there are two {_PLURALS[what]} '{shorten(name)}': first in line {line}"
            self._source.note(self._source.refuse("duplicate_name", message, node))
        return first is node

    def _refuse_too_many(self, count: int, form: Fields) -> None:
        self._count += count
        if self._count > ENTRIES_MAX:
            message = f"the parameters of this file stand for more than {ENTRIES_MAX:,} jobs and files"
            raise self._source.refuse("parameter", message, form.node)


def _label(item: Node, what: str) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return f"{what} '{shorten(name.text)}'" if isinstance(name, Scalar) and name.value else f"a {what}"


class _EntryBuilder:
    """Makes the things of one entry."""

    def __init__(
        self,
        form: Fields,
        name_node: Scalar,
        texts: ParameterTexts,
        keys: tuple[str, ...],
        lists: tuple[str, ...],
        source: Source,
    ) -> None:
        self._form = form
        self._name_node = name_node
        self._texts = texts
        self._keys = [(key, node) for key in keys if isinstance(node := form.node.get(key), Scalar) and key in form]
        self._lists = {key: found for key in lists if (found := scalar_items(form, key))}
        self._source = source

    def __call__(self, name: str, all_values: list[Values]) -> ExpandedEntry:
        made = ExpandedEntry(name, self._name_node, self._form)
        for key, node in self._keys:
            if node.value is not None:
                made.texts[key] = self._text(key, node, name, all_values)
        for key, nodes in self._lists.items():
            filled = ((self._texts.fill_in(node, values), node) for values in all_values for node in nodes)
            made.lists[key] = list({text: (text, node) for text, node in filled}.values())
        return made

    def _text(self, key: str, node: Scalar, name: str, all_values: list[Values]) -> str:
        """The text at a key, which must be one where one thing stands for several values."""
        texts = [self._texts.fill_in(node, values) for values in all_values]
        if any(one != other for one, other in pairwise(texts)):
            self._source.note(self._refuse_differing(key, node, name))
        return texts[0]

    def _refuse_differing(self, key: str, node: Scalar, name: str) -> Refusal:
        in_name = self._texts.used_parameters(self._name_node.text)
        used = self._texts.used_parameters(node.text)
        differing = next((each for each in used if each not in in_name), used[0])
        message = f"'{key}' differs by '{differing}', and several values of it are one thing called '{shorten(name)}'"
        hint = f"put '{{{differing}}}' into the name, or take it out of '{key}'"
        return self._source.refuse("parameter", message, node, hint=hint)
