"""Which form of a file it is."""

from __future__ import annotations

from mulligan.formats.prodigy import environment_keys, keys, mapreduce_keys, parameters, regular, retries
from mulligan.formats.prodigy.mapreduce import is_mapreduce, mapreduce
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node
from mulligan.language.shapes import Record

RECORDS: tuple[Record, ...] = (
    *(*regular.RECORDS, *keys.RECORDS, *retries.RECORDS, *parameters.RECORDS),
    *(*mapreduce_keys.RECORDS, *environment_keys.RECORDS),
)


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of Prodigy's as the tree of one of ours."""
    return mapreduce(root, translation) if is_mapreduce(root) else regular.regular(root, translation)
