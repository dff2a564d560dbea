"""What a worker knows of a provider whose model is asked over HTTP, or answers from a file."""

from __future__ import annotations

from typing import Literal

import msgspec

from mulligan.core.model.workflow import Secret
from mulligan.worker.actions.agent_output import Prices

ModelKind = Literal["openai", "anthropic", "scripted", "cassette"]
KINDS: tuple[ModelKind, ...] = ("openai", "anthropic", "scripted", "cassette")
DEFAULT_URLS: dict[str, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}
DEFAULT_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
# A model may think for minutes before it says the first word.
READ_SECONDS = 300.0
# Characters of an answer and its tool calls: about 250,000 tokens.
ANSWER_CHARS_MAX = 1 << 20


class ModelSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """A provider, from the worker's environment or from the file of providers."""

    name: str
    kind: ModelKind
    url: str = ""
    # Where the worker finds the key; None if the endpoint needs none.
    key: Secret | None = None
    # The model, unless the step names one.
    model: str = ""
    prices: dict[str, Prices] = {}
    max_tokens: int | None = None
    read_timeout: float = READ_SECONDS
    max_answer: int = ANSWER_CHARS_MAX
    stream: bool = True
    # How a model learns which schema its answer must have: by a field of the request, or as a part of the prompt.
    schema: Literal["native", "prompt"] = "native"
    # The file with the answers of a scripted agent; the file of a cassette.
    file: str = ""
    # For a cassette that is being recorded: whom to ask.
    recorded: ModelSettings | None = None


class Access(msgspec.Struct, frozen=True):
    """What the worker adds to a call: the key, and all secrets that the task may know, which are not recorded."""

    key: str = ""
    secrets: tuple[str, ...] = ()
