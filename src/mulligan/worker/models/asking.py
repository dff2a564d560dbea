"""Ask a model for a step, in a warm child: from the task to the output of the step."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from mulligan import StepError
from mulligan.core.effects.tasks import Task
from mulligan.core.model.agents.conversation import Message
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.errors import InputInvalid
from mulligan.language.expressions import as_text
from mulligan.worker.actions.agent_answer import AnswerRejected, decision, read_structure, schema_of, shown_usage
from mulligan.worker.actions.agent_output import MODEL_CHARS_MAX, Prices, priced
from mulligan.worker.actions.agent_prompt import hide_credentials, make_prompt
from mulligan.worker.folders import replace_private_file
from mulligan.worker.models import find_kind
from mulligan.worker.models.conversation_messages import read_conversation
from mulligan.worker.models.request import ModelAnswer, ModelRequest, Origin
from mulligan.worker.models.settings import Access, ModelSettings
from mulligan.worker.outputs.outputs import OutputInvalid

# The place of one call of a conversation with tools: its number of the attempt is that of the step.
_MODEL_PLACE = lazy_regex(r".*\.model@(\d+)\.\d+")


def run(task: dict[str, Any], references: str, settings: dict[str, Any], access: dict[str, Any]) -> dict[str, Any]:
    """Return the output of the step. `references` are the texts before artifacts were put into them."""
    asked = hide_credentials(msgspec.convert(task, Task), references)
    provider = msgspec.convert(settings, ModelSettings)
    log = StepLog(os.environ.get("MULLIGAN_OUTPUT", ""), provider.prices)
    try:
        request = make_request(asked, provider)
        log.asked_model = request.model
        answer = find_kind(provider.kind).ask(request, provider, msgspec.convert(access, Access), log)
        log.end()
        return _output(asked, answer, log)
    except InputInvalid as error:
        raise StepError("INPUT_INVALID", error.message, retryable=False) from None
    except StepError as error:
        log.end()
        # Print it to the log too.
        print(error.message, file=sys.stderr)
        raise


def make_request(task: Task, settings: ModelSettings) -> ModelRequest:
    """Return what the model is asked. InputInvalid if something is missing."""
    schema = schema_of(task.params.get("answer"))
    prompt = make_prompt(task, shows_schema=settings.schema == "prompt")
    talk = read_conversation(task.conversation, hides=task.agent_context is not None and task.agent_context.hides)
    model = as_text(task.params.get("model") or "") or settings.model
    if not model and settings.kind in ("openai", "anthropic"):
        hint = "write 'model' in the step, or in the file that MULLIGAN_AGENTS names"
        raise InputInvalid(f"agent '{settings.name}' has no model: {hint}")
    found = _MODEL_PLACE.fullmatch(task.place)
    return ModelRequest(
        provider=settings.name,
        model=model,
        messages=(*talk.history, Message("user", prompt.whole), *talk.later),
        tools=talk.tools,
        schema=schema,
        max_tokens=_max_tokens(task, settings),
        origin=Origin(
            place=task.place,
            step=task.step,
            visit=task.visit,
            attempt=int(found[1]) if found else task.attempt,
            turn=1 + sum(message.role == "assistant" for message in talk.later),
        ),
    )


def _max_tokens(task: Task, settings: ModelSettings) -> int | None:
    """Return how long the answer may be: no longer than the budget allows."""
    left = task.budget.limits.get("tokens") if task.budget is not None else None
    limits = [limit for limit in (settings.max_tokens, left) if limit]
    return int(min(limits)) if limits else None


def _output(task: Task, answer: ModelAnswer, log: StepLog) -> dict[str, Any]:
    if answer.stop_reason == "refusal":
        raise StepError("AGENT_FAILED", f"the model refuses to answer: {answer.text[:1000]}".rstrip(": "))
    if answer.stop_reason == "max_tokens":
        raise StepError("OUTPUT_INVALID", "the answer was cut off at the limit of its tokens ('max_tokens')")
    used = shown_usage(log.used)
    written = {"content": answer.text, "decision": decision(answer.text), **used}
    if answer.tool_calls:
        return {**written, "tool_calls": msgspec.to_builtins(answer.tool_calls)}
    try:
        return read_structure(written, task.params.get("answer"))
    except OutputInvalid as problem:
        raise StepError("OUTPUT_INVALID", str(problem)) from None
    except AnswerRejected as problem:
        raise StepError("VALIDATION_FAILED", str(problem), details=problem.details) from None


class StepLog:
    """The log of the step, and the file from which the worker reads what was spent, also if the attempt fails."""

    def __init__(self, usage_file: str, prices: dict[str, Prices]) -> None:
        self._usage_file = usage_file
        self._prices = prices
        self._is_line_open = False
        # The model that was asked for. The one that answers often has a longer name, with a date.
        self.asked_model = ""
        self.used: dict[str, Any] = {}

    def write(self, text: str) -> None:
        """Write a piece of the answer as it arrives."""
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._is_line_open = not text.endswith("\n")

    def end(self) -> None:
        """End the last line."""
        if self._is_line_open:
            self.write("\n")

    def spend(self, usage: dict[str, Any], model: str) -> None:
        """Record what was spent so far. The file is replaced, so that the worker never reads half of it."""
        named = {"model": model[:MODEL_CHARS_MAX]} if model else {}
        prices = self._prices
        if model and model not in prices and self.asked_model in prices:
            prices = {**prices, model: prices[self.asked_model]}
        self.used = priced({**usage, **named}, prices)
        if self._usage_file:
            replace_private_file(self._usage_file, msgspec.json.encode(self.used).decode())
