"""Numbers that a file writes, or leaves to a variable of its environment: `max_parallel: $WORKERS`."""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from typing import Any

from mulligan.formats.translation import Translation, made
from mulligan.language.nodes import Node, Scalar
from mulligan.language.shapes import Fields, Shape

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?", re.A)
_WRITTEN = re.compile(r"'(\d+(?:\.\d+)?)'")


def number_of(form: Fields, key: str, shape: Shape, variables: Dict[str, str], translation: Translation) -> Any:
    """The number at `key`, None where there is none. A variable must say it before the run: the map is made of it."""
    if key not in form:
        return None
    node = form.at(key)
    match = _VARIABLE.fullmatch(node.text) if isinstance(node, Scalar) else None
    if match is None:
        return shape.read(node, f"'{key}'", translation.source)
    return shape.read(_value(match[1], node, key, variables, translation), f"'{key}'", translation.source)


def _value(name: str, node: Node, key: str, variables: Dict[str, str], translation: Translation) -> Node:
    written = _WRITTEN.fullmatch(variables.get(name, ""))
    if written is None:
        message = f"'{key}' is '${name}', and 'env' has no number under that name"
        hint = f"add 'env: {{{name}: 5}}': it is needed before the run starts"
        raise translation.source.refuse("prodigy", message, node, hint=hint)
    return made(float(written[1]) if "." in written[1] else int(written[1]), node)
