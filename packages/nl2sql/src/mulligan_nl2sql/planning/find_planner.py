"""The planner of a name, with its settings from the environment. What a planner needs is imported when it is asked for.

| name | settings |
|---|---|
| `rules` | none |
| `openai` | `NL2SQL_MODEL`, `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `NL2SQL_MODEL_TIMEOUT`, `NL2SQL_MODEL_PRICES` |
| `scripted` | `NL2SQL_SCRIPT` |
| `cassette` | `NL2SQL_CASSETTE`; `NL2SQL_CASSETTE_OF` is the planner that is recorded |
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
NAMES = tuple(_MODULES)


def find_planner(name: str, environ: Mapping[str, str]) -> Planner:
    """The planner `rules`, `openai`, `scripted` or `cassette`. PlannerFailed if a setting is missing or wrong."""
    makers: dict[str, Callable[[Any, Mapping[str, str]], Planner]] = {
        "rules": lambda module, _: module.RulesPlanner(),
        "openai": _openai,
        "scripted": lambda module, environ: module.ScriptedPlanner(_file(environ, "NL2SQL_SCRIPT", "scripted")),
        "cassette": _cassette,
    }
    if name not in makers:
        near = get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f": known are {', '.join(NAMES)}"
        raise PlannerFailed(SETTINGS_INVALID, f"there is no planner '{name}'{hint}", planner=name)
    return makers[name](importlib.import_module(_MODULES[name]), environ)


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


def _cassette(module: Any, environ: Mapping[str, str]) -> Planner:
    of = environ.get("NL2SQL_CASSETTE_OF", "")
    if of == "cassette":
        raise PlannerFailed(SETTINGS_INVALID, "NL2SQL_CASSETTE_OF names a planner that is asked", planner="cassette")
    recorded_from = find_planner(of, environ) if of else None
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
