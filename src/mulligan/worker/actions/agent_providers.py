"""The file that $MULLIGAN_AGENTS names: the commands of agents, where their usage is printed, and token prices.

It belongs to the operator of the worker, like the worker's environment. A workflow only names an agent.
"""

from __future__ import annotations

import os
import stat
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.model.spending import parse_cost
from mulligan.errors import InputInvalid, Problem
from mulligan.language.document import decode, parse
from mulligan.language.nodes import Mapping, Node, Refusal, Source, TooManyProblems
from mulligan.language.shapes import TEXT, Choice, Either, Fields, Json, Key, ListOf, MapOf, Record, Value
from mulligan.worker.actions.agent_output import FORMS, Field, Form, Prices
from mulligan.worker.programs import Programs

VARIABLE = "MULLIGAN_AGENTS"
FILE_BYTES_MAX = 1_000_000


class Provider(msgspec.Struct, frozen=True):
    """What the file says about an agent. Without a form, everything that it prints is its answer."""

    command: str = ""
    form: Form | None = None
    prices: dict[str, Prices] = {}


def _price(value: Any) -> Decimal:
    price = parse_cost(value)
    if price is None:
        raise ValueError(value)
    return price


_PATH = Record(
    "path",
    {
        "path": Key(TEXT, "where the value stands", is_required=True),
        "where": Key(MapOf(Json()), "what other paths of the same object must say"),
    },
)
_FIELD = Either("a path such as usage.input_tokens", text=TEXT, mapping=_PATH)
_FIELDS = ListOf(_FIELD, or_one=True, at_least=1)
_TOKENS = Record("tokens", {"input": Key(_FIELDS, "tokens read"), "output": Key(_FIELDS, "tokens written")})
_OUTPUT = Record(
    "output",
    {
        "content": Key(_FIELD, "the answer", is_required=True),
        "tokens": Key(Either("a path, or {input, output}", text=TEXT, list=_FIELDS, mapping=_TOKENS), "what it used"),
        "cost": Key(_FIELD, "what that cost, in US dollars"),
        "calls": Key(_FIELD, "how many calls it made"),
        "turns": Key(_FIELD, "how many turns it took"),
        "model": Key(_FIELD, "which model answered"),
        "error": Key(_FIELD, "what went wrong, or true"),
    },
)
_DOLLARS = Value("an amount of US dollars such as 2.50", _price, {"type": "number"})
_PRICES = Record(
    "prices",
    {
        "input": Key(_DOLLARS, "of a million tokens read", is_required=True),
        "output": Key(_DOLLARS, "of a million tokens written", is_required=True),
    },
)
PROVIDER = Record(
    "provider",
    {
        "command": Key(TEXT, "what bash runs"),
        "output": Key(
            Either("claude, codex or a mapping", text=Choice(tuple(FORMS)), mapping=_OUTPUT), "how it is read"
        ),
        "prices": Key(MapOf(_PRICES), "by model; 'default' for all others"),
    },
)


def provider(name: str, programs: Programs) -> Provider:
    """Return what the file says about an agent, if anything. InputInvalid if the file is not valid."""
    file = programs.variable(VARIABLE)
    if not file:
        return Provider()
    try:
        info = os.stat(file)
        if not stat.S_ISREG(info.st_mode):
            # A pipe may block, and cannot be read twice.
            raise InputInvalid(f"'{file}' of {VARIABLE} is not a regular file")
        return _providers(file, info.st_mtime_ns, info.st_size).get(name, Provider())
    except OSError as error:
        raise InputInvalid(f"the file '{file}' of {VARIABLE} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _providers(file: str, changed_at: int, size: int) -> dict[str, Provider]:
    """Read the agents of a file, again whenever it has changed."""
    with open(file, "rb") as opened:
        data = opened.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise InputInvalid(f"the file '{file}' of {VARIABLE} is larger than {FILE_BYTES_MAX:,} bytes")
    try:
        source = decode(data, file)
        return _read_providers(
            parse(source, content="a file of agents names each with its 'command' or 'output'"), source
        )
    except Refusal as refusal:
        raise _invalid(refusal.problem) from None
    except TooManyProblems:
        raise _invalid(source.problems[0]) from None


def _invalid(problem: Problem) -> InputInvalid:
    return InputInvalid(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}", hint=problem.hint)


def _read_providers(root: Node, source: Source) -> dict[str, Provider]:
    if not isinstance(root, Mapping):
        raise source.refuse("type", "a mapping of agents is expected, each with 'command' or 'output'", root)
    providers: dict[str, Fields] = {
        name: PROVIDER.read(node, f"agent '{name}'", source) for name, (_, node) in root.entries.items()
    }
    if source.problems:
        raise _invalid(source.problems[0])
    return {name: _provider(fields) for name, fields in providers.items()}


def _provider(fields: Fields) -> Provider:
    output = fields.get("output")
    prices = {model: Prices(one["input"], one["output"]) for model, one in fields.get("prices", {}).items()}
    form = FORMS[output] if isinstance(output, str) else None if output is None else _form(output)
    return Provider(fields.get("command", ""), form, prices)


def _form(fields: Fields) -> Form:
    parsed: dict[str, Any] = {name: _field(fields[name]) for name in fields.values if name != "tokens"}
    tokens = fields.get("tokens")
    if isinstance(tokens, Fields):
        parsed["input_tokens"] = tuple(map(_field, tokens.get("input", ())))
        parsed["output_tokens"] = tuple(map(_field, tokens.get("output", ())))
    elif tokens is not None:
        parsed["tokens"] = tuple(map(_field, [tokens] if isinstance(tokens, str) else tokens))
    return Form(**parsed)


def _field(value: Any) -> Field:
    return Field(value) if isinstance(value, str) else Field(value["path"], value.get("where", {}))
