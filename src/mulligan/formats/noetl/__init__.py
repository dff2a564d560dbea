"""NoETL's files into ours."""

from __future__ import annotations

from mulligan.formats.translation import Translation
from mulligan.language.nodes import Mapping, Node


def translate(root: Node, translation: Translation) -> Mapping:
    """The tree of a file of NoETL's as the tree of one of ours."""
    raise translation.source.refuse("format", "files of NoETL are not read yet", root)
