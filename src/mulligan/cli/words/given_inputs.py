"""The inputs that a command is given: a file of them, and single ones, which win."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.parameters import Option
from mulligan.errors import InputInvalid
from mulligan.service.authoring.area import Workflows

Inputs = Annotated[list[str] | None, Option("KEY=VALUE", "An input; may be repeated.", "--input", "-i")]
InputsFile = Annotated[
    str | None, Option("FILE", "A YAML or JSON file of inputs, '-' for standard input; -i has priority.", "--inputs")
]
STANDARD_INPUT = "-"


def given_inputs(words: Sequence[str] | None, file: str | None = None) -> dict[str, Any]:
    """The inputs by name: those of the file, and those of the words, which win. The workflow checks them later.

    Standard input can be read once: call it once per command.
    """
    single = _read_words(words or ())
    return {**_read_file(file), **single} if file is not None else single


def name_file(error: InputInvalid, words: Sequence[str] | None, file: str) -> None:
    """Let an error about an input that is not among the words name the file."""
    name = error.data.get("input")
    if name is not None and not any(word.startswith(f"{name}=") for word in words or ()):
        error.message = f"{_title(file)}: {error.message}"


def _read_words(words: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageRefused(f"'{word}' is not an input", hint="write it like -i name=value")
        if name in given:
            raise UsageRefused(f"input '{name}' is given twice")
        given[name] = value
    return given


def _read_file(file: str) -> dict[str, Any]:
    try:
        if file == STANDARD_INPUT:
            data = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as opened:
                data = opened.read()
    except OSError as error:
        raise UsageRefused(f"--inputs: '{file}' cannot be read: {(error.strerror or str(error)).lower()}") from None
    return Workflows.parse_inputs(data, _title(file))


def _title(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file
