"""The file that $MULLIGAN_AGENTS names: the commands of agents, the models that are asked directly, and token prices.

It belongs to the operator of the worker, like the worker's environment. A workflow only names an agent.
"""

from __future__ import annotations

import os
import stat
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

import msgspec

from mulligan.core.model.agents.spending import parse_cost
from mulligan.core.model.workflow import Secret
from mulligan.errors import InputInvalid, Problem
from mulligan.language.keys.value_schemas import (
    FLAG,
    LIMIT,
    TEXT,
    Choice,
    Either,
    Fields,
    Json,
    Key,
    ListOf,
    MapOf,
    Record,
    Value,
    whole,
)
from mulligan.language.keys.workflow_keys import SECRET
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import Mapping, Node, Refusal, Source, TooManyProblems
from mulligan.worker.actions.agent_output import FORMS, Field, Form, Prices
from mulligan.worker.models.settings import (
    ANSWER_CHARS_MAX,
    DEFAULT_KEYS,
    DEFAULT_URLS,
    KINDS,
    ModelKind,
    ModelSettings,
)
from mulligan.worker.programs import Programs

VARIABLE = "MULLIGAN_AGENTS"
FILE_BYTES_MAX = 1_000_000
# The variables of the providers that need no file: addresses, and files with answers.
URL_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
FILE_VARIABLES = {"scripted": "MULLIGAN_SCRIPTED_AGENT", "cassette": "MULLIGAN_CASSETTE"}
# Names the provider whose answers the cassette records; without it, answers are replayed.
RECORD_VARIABLE = "MULLIGAN_CASSETTE_RECORD"


class Provider(msgspec.Struct, frozen=True):
    """What the file says about an agent. Without a form, everything that it prints is its answer."""

    command: str = ""
    form: Form | None = None
    prices: dict[str, Prices] = {}
    # If it is a model and no command.
    model: ModelSettings | None = None
    # For a cassette: the provider whose answers it records.
    records: str = ""


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
        "prices": Key(MapOf(_PRICES, pattern=r"(?s:.+)"), "by model; 'default' for all others"),
        "kind": Key(Choice(KINDS), "a model that is asked directly, without a command"),
        "url": Key(TEXT, "where it is asked: the address before /chat/completions or /messages"),
        "key": Key(SECRET, "where the worker finds the key; without it and with 'url', none is sent"),
        "model": Key(TEXT, "the model, unless the step names one"),
        "max_tokens": Key(whole(1), "how many tokens an answer may have"),
        "max_answer": Key(whole(1), f"how many characters an answer may have (default {ANSWER_CHARS_MAX})"),
        "read_timeout": Key(LIMIT, "how long it may send nothing (default 5m)"),
        "stream": Key(FLAG, "false: the answer arrives in one piece"),
        "schema": Key(
            Choice(("native", "prompt")), "how it learns the schema of its answer (default native; anthropic: prompt)"
        ),
        "script": Key(TEXT, "the file with the answers of a scripted agent"),
        "cassette": Key(TEXT, "the file with recorded answers"),
        "of": Key(TEXT, "the provider whose answers the cassette records"),
        "record": Key(FLAG, "true: ask that provider, and record its answers"),
    },
)
# The keys that only some kinds have.
_COMMAND_KEYS = ("command", "output")
_HTTP_KEYS = ("url", "key", "model", "max_tokens", "max_answer", "read_timeout", "stream", "schema")
_KEYS_BY_KIND: dict[str, tuple[str, ...]] = {
    "": _COMMAND_KEYS,
    "openai": _HTTP_KEYS,
    "anthropic": _HTTP_KEYS,
    "scripted": ("script",),
    "cassette": ("cassette", "of", "record"),
}
_FILE_KEYS = {"scripted": "script", "cassette": "cassette"}
_ANY_KIND = ("kind", "prices")


def find_model(name: str, programs: Programs) -> ModelSettings | None:
    """Return the model that a provider is; None if it is a command. InputInvalid if something about it is missing.

    The variable with a command takes precedence, then the file, then the providers that come with Mulligan.
    """
    if programs.variable(command_variable(name)).strip():
        return None
    described = provider(name, programs)
    settings = described.model
    if settings is None:
        if described.command or name not in KINDS:
            return None
        settings = _built_in(name, described, programs)
    records = described.records or (programs.variable(RECORD_VARIABLE) if settings.kind == "cassette" else "")
    return msgspec.structs.replace(settings, recorded=_recorded(name, records, programs)) if records else settings


def command_variable(name: str) -> str:
    """Return the variable of the worker's environment that contains the command of a provider."""
    return f"MULLIGAN_AGENT_{name.upper().replace('-', '_')}"


def _built_in(name: str, described: Provider, programs: Programs) -> ModelSettings:
    """Return a provider that needs no file: variables say where its endpoint, its key or its answers are."""
    if name in FILE_VARIABLES:
        file = programs.variable(FILE_VARIABLES[name])
        if not file:
            raise InputInvalid(
                f"agent '{name}' is not available: {FILE_VARIABLES[name]} is not set where the worker runs"
            )
        return ModelSettings(name, name, file=os.path.abspath(file), prices=described.prices)  # type: ignore[arg-type]
    url = programs.variable(URL_VARIABLES[name])
    has_key = bool(programs.variable(DEFAULT_KEYS[name])) or not url
    return ModelSettings(
        name,
        name,  # type: ignore[arg-type]
        url=url or DEFAULT_URLS[name],
        key=Secret(env=DEFAULT_KEYS[name]) if has_key else None,
        prices=described.prices,
        schema=_schema_way(name),
    )


def _recorded(name: str, records: str, programs: Programs) -> ModelSettings:
    found = find_model(records, programs) if records != name else None
    if found is None or found.kind not in DEFAULT_URLS:
        raise InputInvalid(
            f"cassette '{name}' cannot record '{records}': that is no provider of kind openai or anthropic"
        )
    return found


def _schema_way(kind: str) -> Literal["native", "prompt"]:
    """Return how a model learns a schema. Not every schema can be a field of a request to Anthropic."""
    return "native" if kind == "openai" else "prompt"


def provider(name: str, programs: Programs) -> Provider:
    """Return what the file says about an agent, if anything. InputInvalid if the file is not valid."""
    return _described(programs).get(name, Provider())


def described_names(programs: Programs) -> list[str]:
    """Return the agents that the file describes."""
    return list(_described(programs))


def _described(programs: Programs) -> dict[str, Provider]:
    file = programs.variable(VARIABLE)
    if not file:
        return {}
    try:
        info = os.stat(file)
        if not stat.S_ISREG(info.st_mode):
            # A pipe may block, and cannot be read twice.
            raise InputInvalid(f"'{file}' of {VARIABLE} is not a regular file")
        return _providers(file, info.st_mtime_ns, info.st_size)
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
            parse(source, content="a file of agents names each with its 'command', 'output' or 'kind'"), source
        )
    except Refusal as refusal:
        raise _invalid(refusal.problem) from None
    except TooManyProblems:
        raise _invalid(source.problems[0]) from None


def _invalid(problem: Problem) -> InputInvalid:
    return InputInvalid(f"{problem.file}:{problem.line}:{problem.column}: {problem.message}", hint=problem.hint)


def _read_providers(root: Node, source: Source) -> dict[str, Provider]:
    if not isinstance(root, Mapping):
        raise source.refuse("type", "a mapping of agents is expected, each with 'command', 'output' or 'kind'", root)
    providers: dict[str, Fields] = {
        name: PROVIDER.read(node, f"agent '{name}'", source) for name, (_, node) in root.entries.items()
    }
    for name, fields in providers.items():
        _note_stray_keys(name, fields, source)
    if source.problems:
        raise _invalid(source.problems[0])
    return {name: _provider(name, fields, source) for name, fields in providers.items()}


def _note_stray_keys(name: str, fields: Fields, source: Source) -> None:
    """Note the keys that an agent of this kind does not have, and those that it needs."""
    kind = fields.get("kind", "")
    what = f"an agent of kind '{kind}'" if kind else "an agent without 'kind'"
    for key in fields.values:
        if key not in (*_KEYS_BY_KIND[kind], *_ANY_KIND):
            source.note(source.refuse("stray_key", f"{what} has no '{key}'", fields.key(key)))
    needed = _FILE_KEYS.get(kind)
    if needed and needed not in fields:
        source.note(source.refuse("missing_key", f"agent '{name}' has no '{needed}'", fields.node))
    if fields.get("record") and "of" not in fields:
        source.note(source.refuse("missing_key", f"agent '{name}' records, and has no 'of'", fields.node))


def _model_settings(name: str, fields: Fields, prices: dict[str, Prices], source: Source) -> ModelSettings:
    kind: ModelKind = fields["kind"]
    file = fields.get(_FILE_KEYS.get(kind, ""), "")
    folder = os.path.dirname(os.path.abspath(source.file))
    key = _key(fields["key"].values, folder) if "key" in fields else None
    if key is None and "url" not in fields and kind in DEFAULT_KEYS:
        key = Secret(env=DEFAULT_KEYS[kind])
    return ModelSettings(
        name,
        kind,
        url=fields.get("url", DEFAULT_URLS.get(kind, "")),
        key=key,
        prices=prices,
        schema=fields.get("schema", _schema_way(kind)),
        file=os.path.join(folder, file) if file else "",
        **fields.pick("model", "max_tokens", "max_answer", "read_timeout", "stream"),
    )


def _key(source: dict[str, str], folder: str) -> Secret:
    """Return where a key is found. A file is relative to the file of providers, not to where a run was started."""
    key = Secret(**source)
    return key if key.file is None else Secret(file=os.path.join(folder, os.path.expanduser(key.file)))


def _provider(name: str, fields: Fields, source: Source) -> Provider:
    output = fields.get("output")
    prices = {model: Prices(one["input"], one["output"]) for model, one in fields.get("prices", {}).items()}
    form = FORMS[output] if isinstance(output, str) else None if output is None else _form(output)
    model = _model_settings(name, fields, prices, source) if "kind" in fields else None
    records = fields["of"] if fields.get("record") else ""
    return Provider(fields.get("command", ""), form, prices, model, records)


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
