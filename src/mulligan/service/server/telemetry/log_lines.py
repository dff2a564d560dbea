"""Lines of structured logs: one JSON object per line, for programs that collect them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec


def log_line(message: str, level: str = "info", at: datetime | None = None, **about: Any) -> str:
    """One line: time, level, message, and what it is about. Empty values are left out."""
    moment = (at or datetime.now(UTC)).astimezone(UTC)
    known = {name: value for name, value in about.items() if value not in ("", None)}
    line = {"time": moment.isoformat().replace("+00:00", "Z"), "level": level, "message": message, **known}
    return msgspec.json.encode(line).decode()
