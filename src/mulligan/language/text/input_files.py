"""Files of inputs: a mapping from names to values, as YAML or JSON."""

from __future__ import annotations

import json
from typing import Any

from mulligan.errors import InputInvalid, LanguageError
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping, Refusal, plain, refuse_not_json

_CONTENT = "a file of inputs maps names to values, such as 'target: prod'"


class _TwiceGiven(ValueError):
    """A key of a JSON object that it has already."""


def parse_inputs(data: bytes, file: str, content: str = _CONTENT) -> dict[str, Any]:
    """The inputs in the text of a file, by name. The workflow checks them later. `LanguageError` names the place.

    `content`: what else the file is to have in it.
    """
    try:
        source = decode(data, file)
        if source.text.lstrip().startswith("{") and (found := _read_json(source.text, file)) is not None:
            return found
        root = parse(source, content=content)
        if not isinstance(root, Mapping):
            raise source.refuse("type", "a mapping from names to values is expected", root, hint=content)
        refuse_not_json(root, source)
    except Refusal as refusal:
        raise LanguageError([refusal.problem]) from None
    inputs: dict[str, Any] = plain(root)
    return inputs


def _read_json(text: str, file: str) -> dict[str, Any] | None:
    """The object, or None: what is not JSON may be YAML, which allows no tabs and more of everything else."""
    try:
        found = json.loads(text, object_pairs_hook=_without_repetition)
    except _TwiceGiven as error:
        raise InputInvalid(f"{file}: the key '{error}' is there twice", hint="remove one of them") from None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceGiven(key[:100])
        found[key] = value
    return found
