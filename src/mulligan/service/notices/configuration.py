"""The targets of a home, from its `server.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from mulligan.core.model.formatting import error_reason
from mulligan.errors import InputInvalid
from mulligan.service.home_names import SERVER_CONFIG
from mulligan.service.notices.targets import Target

FILE = SERVER_CONFIG


class TargetList(msgspec.Struct, frozen=True):
    """The targets by name, and the address of the server in links."""

    by_name: dict[str, Target] = {}
    url: str = ""


def find_targets(home: Path) -> TargetList:
    """The targets that the home knows. `InputInvalid` for a file that cannot be read or meant."""
    path = home / FILE
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return TargetList()
    except (OSError, ValueError) as error:
        reason = error_reason(error) if isinstance(error, OSError) else str(error)
        raise InputInvalid(f"'{path}' cannot be read: {reason}") from None
    try:
        by_name = msgspec.convert(tree.get("targets", {}), dict[str, Target])
    except msgspec.ValidationError as error:
        raise InputInvalid(f"'{path}', in [targets]: {error}") from None
    server = tree.get("server", {})
    url = server.get("public_url", "") if isinstance(server, dict) else ""
    return TargetList(by_name, url if isinstance(url, str) else "")
