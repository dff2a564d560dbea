"""A planner that is an agent of the engine: a command, or a model of the file of providers.

The engine asks it, by the step `agent` of `scan.yaml` and `ask.yaml`: so its process, its time, its environment, its
failures and what it costs are those of every other agent. Here is what it is asked, and what becomes of its reply.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from typing import Any

from mulligan_nl2sql.planning import decompositions
from mulligan_nl2sql.planning.failures import SETTINGS_INVALID, PlannerFailed
from mulligan_nl2sql.planning.planner import DecomposeRequest, Decomposition, Plan, PlanRequest, Refusal, Usage
from mulligan_nl2sql.planning.prompts import SYSTEM, make_prompt, read_answer

_NAME = re.compile(r"[A-Za-z0-9_-]+")
# The commands that the engine knows without a setting.
_KNOWN = ("claude", "codex")
PROVIDERS_VARIABLE = "MULLIGAN_AGENTS"


class AgentPlanner:
    """Reads the reply that an agent gave: the output of its step."""

    def __init__(self, name: str, reply: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._reply = reply

    def plan(self, request: PlanRequest) -> Plan | Refusal:
        """The SQL or the refusal in the reply. PlannerFailed if it is neither, or if nobody was asked."""
        text, model, usage = self._said()
        return read_answer(text, planner=self.name, model=model, usage=usage)

    def decompose(self, request: DecomposeRequest) -> Decomposition | Refusal:
        """The parts or the refusal in the reply. PlannerFailed if it is neither, or if nobody was asked."""
        text, model, usage = self._said()
        return decompositions.read_answer(text, request, planner=self.name, model=model, usage=usage)

    def _said(self) -> tuple[str, str, Usage]:
        if self._reply is None:
            message = f"the agent '{self.name}' was not asked: the step 'agent' of the workflow does that"
            raise PlannerFailed(SETTINGS_INVALID, message, planner=self.name)
        text, model = self._reply.get("content"), self._reply.get("model")
        usage = read_usage(self._reply)
        return text if isinstance(text, str) else "", model if isinstance(model, str) else "", usage


def write_prompt(request: PlanRequest) -> str:
    """What an agent is asked."""
    return f"{SYSTEM}\n\n{make_prompt(request)}"


def read_usage(said: Mapping[str, Any]) -> Usage:
    """What an agent says that its reply took: `tokens` as a number or as `{input, output}`, and `cost`."""
    tokens, cost = said.get("tokens"), said.get("cost")
    parts = tokens if isinstance(tokens, Mapping) else {}
    read, written = (_count(parts.get(name)) for name in ("input", "output"))
    return Usage(read, written, _amount(cost), _count(tokens))


def command_variable(name: str) -> str:
    """The variable with the command of an agent, as everywhere in Mulligan."""
    return f"MULLIGAN_AGENT_{name.upper().replace('-', '_')}"


def is_agent(name: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment says who the agent of this name is. A file of providers is left to the engine."""
    if not _NAME.fullmatch(name):
        return False
    if environ.get(command_variable(name), "").strip() or environ.get(PROVIDERS_VARIABLE):
        return True
    return name in _KNOWN and shutil.which(name, path=environ.get("PATH")) is not None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _amount(value: Any) -> float | None:
    """The engine gives what something cost as a number or as its digits."""
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None
