"""Entries of a list, each as many things as its parameters say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mulligan.formats.torc.parameters import Texts, Values, combinations, scalars
from mulligan.formats.torc.records import entries
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node, Refusal, Scalar, Source, shorten
from mulligan.language.shapes import Fields, Record

# More than anybody runs, and a file of a few lines can stand for them.
THINGS_MAX = 200_000

_SEVERAL = {"job": "jobs", "file": "files", "user data": "user data"}


class Expanded:
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
        self.broken: set[str] = set()

    @property
    def _source(self) -> Source:
        return self.translation.source

    def forms(self, form: Fields, key: str, record: Record, what: str) -> Iterator[Fields]:
        """The entries of a list, as far as they can be read."""
        for item in entries(form, key):
            fields = self._read(item, record, what)
            if fields is not None:
                yield fields
            else:
                self.broken.add(what)

    def _read(self, item: Node, record: Record, what: str) -> Fields | None:
        """An entry; None where nobody can say what it is called."""
        with self._source.noting:
            fields: Fields = record.read(item, _label(item, what), self._source)
            is_named = "name" in fields or not record.keys["name"].is_required
            return fields if is_named else None
        return None

    def expanded(self, form: Fields, what: str, keys: tuple[str, ...], lists: tuple[str, ...] = ()) -> list[Expanded]:
        """The things that an entry stands for: one for each name that the values of its parameters make.

        Where the name lacks a parameter, one thing stands for all values of it: it has one text at each of `keys`,
        and in its `lists` what all of them name.
        """
        name_node = form.node.get("name")
        assert isinstance(name_node, Scalar)
        all_values = combinations(form, self._shared, self.translation)
        self._refuse_too_many(len(all_values), form)
        texts = Texts(all_values[0], self.translation)
        named: dict[str, list[Values]] = {}
        for values in all_values:
            named.setdefault(texts.filled(name_node, values), []).append(values)
        made = _Maker(form, name_node, texts, keys, lists, self._source)
        return [made(name, values) for name, values in named.items() if self.is_new(what, name, name_node)]

    def is_new(self, what: str, name: str, node: Node) -> bool:
        """Whether nothing of the kind has that name yet; else that is noted."""
        first = self._first.setdefault((what, name), node)
        if first is not node:
            line = self._source.number(first)
            message = f"there are two {_SEVERAL[what]} '{shorten(name)}': first in line {line}"
            self._source.note(self._source.refuse("duplicate_name", message, node))
        return first is node

    def _refuse_too_many(self, count: int, form: Fields) -> None:
        self._count += count
        if self._count > THINGS_MAX:
            message = f"the parameters of this file stand for more than {THINGS_MAX:,} jobs and files"
            raise self._source.refuse("parameter", message, form.node)


def _label(item: Node, what: str) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return f"{what} '{shorten(name.text)}'" if isinstance(name, Scalar) and name.value else f"a {what}"


class _Maker:
    """Makes the things of one entry."""

    def __init__(
        self,
        form: Fields,
        name_node: Scalar,
        texts: Texts,
        keys: tuple[str, ...],
        lists: tuple[str, ...],
        source: Source,
    ) -> None:
        self._form = form
        self._name_node = name_node
        self._texts = texts
        self._keys = [(key, node) for key in keys if isinstance(node := form.node.get(key), Scalar) and key in form]
        self._lists = {key: found for key in lists if (found := scalars(form, key))}
        self._source = source

    def __call__(self, name: str, all_values: list[Values]) -> Expanded:
        made = Expanded(name, self._name_node, self._form)
        for key, node in self._keys:
            if node.value is not None:
                made.texts[key] = self._text(key, node, name, all_values)
        for key, nodes in self._lists.items():
            filled = ((self._texts.filled(node, values), node) for values in all_values for node in nodes)
            made.lists[key] = list({text: (text, node) for text, node in filled}.values())
        return made

    def _text(self, key: str, node: Scalar, name: str, all_values: list[Values]) -> str:
        """The text at a key, which must be one where one thing stands for several values."""
        texts = [self._texts.filled(node, values) for values in all_values]
        if any(one != other for one, other in pairwise(texts)):
            self._source.note(self._refuse_differing(key, node, name))
        return texts[0]

    def _refuse_differing(self, key: str, node: Scalar, name: str) -> Refusal:
        in_name = self._texts.used(self._name_node.text)
        used = self._texts.used(node.text)
        differing = next((each for each in used if each not in in_name), used[0])
        message = f"'{key}' differs by '{differing}', and several values of it are one thing called '{shorten(name)}'"
        hint = f"put '{{{differing}}}' into the name, or take it out of '{key}'"
        return self._source.refuse("parameter", message, node, hint=hint)
