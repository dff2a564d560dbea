"""The targets of a home, from the configuration of its server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mulligan.service.server.notices.targets import Target
from mulligan.service.server.server_config import find_config


class TargetList(msgspec.Struct, frozen=True):
    """The targets by name, and the address of the server in links."""

    by_name: dict[str, Target] = {}
    url: str = ""


def find_targets(home: Path, file: str | None = None) -> TargetList:
    """The targets of `file`, of `$MULLIGAN_CONFIG`, or of `server.toml` in the home. `LanguageError` if one is bad."""
    config = find_config(home, file)
    return TargetList(config.targets, config.server.public_url)
