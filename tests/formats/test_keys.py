"""Every key that a reader knows is explained on its page, and shown in an example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from mulligan.formats import FORMATS
from mulligan.formats.loading import parse_file
from mulligan.language.keys.value_schemas import Record
from mulligan.language.text.document import decode
from mulligan.language.text.nodes import Mapping, Node, Sequence

ROOT = Path(__file__).parent.parent.parent
SUFFIXES = {".yaml", ".yml", ".json", ".json5", ".kdl"}

each_system = pytest.mark.parametrize("system", FORMATS)


def records_of(system: str) -> list[Record]:
    """The mappings that the reader of a system knows: all that a module of its package has a name for."""
    package = import_module(f"mulligan.formats.{system}")
    modules = [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
    values = [value for module in modules for value in vars(module).values()]
    named = [each for value in values for each in (value.values() if isinstance(value, dict) else (value,))]
    return list({id(each): each for each in named if isinstance(each, Record)}.values())


def known_keys(system: str) -> set[str]:
    """The keys of all mappings that the reader of a system knows."""
    return {key for record in records_of(system) for key in record.keys}


def keys_in(node: Node) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from node.entries
        for _, value in node.items():
            yield from keys_in(value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from keys_in(item)


def used_keys(system: str) -> set[str]:
    files = [path for path in (ROOT / "examples/formats" / system).rglob("*") if path.suffix in SUFFIXES]
    return {key for path in files for key in keys_in(parse_file(decode(path.read_bytes(), str(path))))}


@each_system
def test_a_reader_says_which_mappings_it_knows(system: str) -> None:
    records = records_of(system)

    assert len(records) >= 3 and all(record.keys for record in records)


@each_system
def test_every_key_is_on_the_page_of_its_system(system: str) -> None:
    page = (ROOT / f"docs/other-systems/{system}.md").read_text(encoding="utf-8")

    said = set(re.findall(r"`([A-Za-z_][\w.-]*)`", page))

    assert known_keys(system) - said == set()


@each_system
def test_every_key_is_used_in_an_example(system: str) -> None:
    assert known_keys(system) - used_keys(system) == set()


@each_system
def test_every_key_says_what_becomes_of_it(system: str) -> None:
    records = records_of(system)

    assert [(record.name, word) for record in records for word, key in record.keys.items() if not key.about] == []
