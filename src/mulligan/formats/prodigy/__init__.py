"""Prodigy's files into ours: regular workflows in all their forms, and MapReduce."""

from __future__ import annotations

from mulligan.formats.prodigy import keys, parameters, regular, retries
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node
from mulligan.language.shapes import Record

RECORDS: tuple[Record, ...] = (*regular.RECORDS, *keys.RECORDS, *retries.RECORDS, *parameters.RECORDS)


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of Prodigy's as the tree of one of ours."""
    return regular.regular(root, translation)
