"""Actions that wait for another machine most of the time: by default they ask for a small share of a processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mulligan.core.model.workflow import AGENT, MCP

# In the parameters of an action of a plugin: it waits.
WAITS = "waits"
# Ten requests fit where one computation does. An agent is a larger process, and runs commands.
REQUEST_CPUS, AGENT_CPUS, DEFAULT_CPUS = 0.1, 0.25, 1.0
WAITING_CPUS = (REQUEST_CPUS, AGENT_CPUS)
# Databases that are files: a query computes here, and a second writer would only wait for the first.
_LOCAL_DATABASES = ("sqlite:", "duckdb:")


def waits(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether an action waits for another machine. A parameter that is not known yet counts as remote."""
    if kind == "sql":
        connection = params.get("connection")
        return not (isinstance(connection, str) and connection.strip().lower().startswith(_LOCAL_DATABASES))
    return kind in ("http", AGENT, MCP) or params.get(WAITS) is True


def default_cpus(kind: str, params: Mapping[str, Any]) -> float:
    """The processors that an action asks for if its file does not say so."""
    if not waits(kind, params):
        return DEFAULT_CPUS
    return AGENT_CPUS if kind == AGENT else REQUEST_CPUS
