"""The planner of a name, with its settings from the environment. What a planner needs is imported when it is asked for.

| name | settings |
|---|---|
| `rules` | none |
| `openai` | `NL2SQL_MODEL`, `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `NL2SQL_MODEL_TIMEOUT`, `NL2SQL_MODEL_PRICES` |
| `scripted` | `NL2SQL_SCRIPT` |
| `cassette` | `NL2SQL_CASSETTE`; `NL2SQL_CASSETTE_OF` is the planner that is recorded |
| any other | an agent of the engine: `MULLIGAN_AGENT_NAME` is its command |
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mulligan_nl2sql.planning.failures import SETTINGS_INVALID, PlannerFailed
from mulligan_nl2sql.planning.planner import Planner

DEFAULT = "rules"
_MODULES = {
    "rules": "mulligan_nl2sql.planning.rules.planner",
    "openai": "mulligan_nl2sql.planning.providers.openai",
    "scripted": "mulligan_nl2sql.planning.providers.scripted",
    "cassette": "mulligan_nl2sql.planning.providers.cassette",
}
_AGENTS = "mulligan_nl2sql.planning.providers.agent"
NAMES = tuple(_MODULES)


def find_planner(name: str, environ: Mapping[str, str], reply: Mapping[str, Any] | None = None) -> Planner:
    """The planner of a name. PlannerFailed if a setting is missing or wrong.

    An agent is asked by the engine, and `reply` is what it has said.
    """
    makers: dict[str, Callable[[Any, Mapping[str, str]], Planner]] = {
        "rules": lambda module, _: module.RulesPlanner(),
        "openai": _openai,
        "scripted": lambda module, environ: module.ScriptedPlanner(_file(environ, "NL2SQL_SCRIPT", "scripted")),
        "cassette": lambda module, environ: _cassette(module, environ, reply),
    }
    if name in makers:
        return makers[name](importlib.import_module(_MODULES[name]), environ)
    agents = importlib.import_module(_AGENTS)
    if reply is None and not agents.is_agent(name, environ):
        near = get_close_matches(name, NAMES, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(NAMES)}"
        message = f"there is no planner '{name}', and no agent: {agents.command_variable(name)} is not set; {hint}"
        raise PlannerFailed(SETTINGS_INVALID, message, planner=name)
    planner: Planner = agents.AgentPlanner(name, reply)
    return planner


def find_agent(name: str, environ: Mapping[str, str]) -> str:
    """The agent that the engine has to ask for this planner: the planner, or the one that a cassette records; or ""."""
    asked = environ.get("NL2SQL_CASSETTE_OF", "") if name == "cassette" else name
    return "" if asked in NAMES else asked


def _openai(module: Any, environ: Mapping[str, str]) -> Planner:
    model = environ.get("NL2SQL_MODEL", "")
    if not model:
        raise _missing("openai", "NL2SQL_MODEL", "the name of the model")
    url = environ.get("OPENAI_BASE_URL") or module.DEFAULT_URL
    if not _is_address(url):
        message = "OPENAI_BASE_URL is no address, such as http://127.0.0.1:8000/v1"
        raise PlannerFailed(SETTINGS_INVALID, message, planner="openai")
    key = environ.get("OPENAI_API_KEY", "")
    if not key and url == module.DEFAULT_URL:
        raise _missing("openai", "OPENAI_API_KEY", "the key of the service")
    settings = module.OpenaiSettings(
        model=model,
        url=url,
        key=key,
        seconds=_numbers(environ, "NL2SQL_MODEL_TIMEOUT", "60", 1)[0],
        prices=_numbers(environ, "NL2SQL_MODEL_PRICES", "", 2) or None,
    )
    planner: Planner = module.OpenaiPlanner(settings)
    return planner


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _cassette(module: Any, environ: Mapping[str, str], reply: Mapping[str, Any] | None) -> Planner:
    of = environ.get("NL2SQL_CASSETTE_OF", "")
    if of == "cassette":
        raise PlannerFailed(SETTINGS_INVALID, "NL2SQL_CASSETTE_OF names a planner that is asked", planner="cassette")
    recorded_from = find_planner(of, environ, reply) if of else None
    planner: Planner = module.CassettePlanner(_file(environ, "NL2SQL_CASSETTE", "cassette"), recorded_from)
    return planner


def _file(environ: Mapping[str, str], variable: str, planner: str) -> Path:
    if not environ.get(variable):
        raise _missing(planner, variable, "a file")
    return Path(environ[variable])


def _numbers(environ: Mapping[str, str], variable: str, default: str, count: int) -> tuple[float, ...]:
    """Positive numbers, separated by commas."""
    text = environ.get(variable) or default
    try:
        found = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        found = (-1.0,)
    if found and (len(found) != count or not all(0 < one < float("inf") for one in found)):
        shape = "a positive number" if count == 1 else f"{count} positive numbers with a comma between them"
        raise PlannerFailed(SETTINGS_INVALID, f"{variable} is '{text}', and must be {shape}", planner="openai")
    return found


def _missing(planner: str, variable: str, what: str) -> PlannerFailed:
    message = f"the planner '{planner}' needs {what} (environment variable {variable})"
    return PlannerFailed(SETTINGS_INVALID, message, planner=planner)
