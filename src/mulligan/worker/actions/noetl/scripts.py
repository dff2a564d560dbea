"""Texts that stand elsewhere: in a file, or in base64."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.placeholders import marked
from mulligan.worker.actions.noetl.templates import filled_text


def decoded(text: Any, key: str) -> str:
    """A text that was written in base64."""
    try:
        return base64.b64decode(str(text), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise refused(f"'{key}' is no text in base64") from None


def script_text(script: Any, call: Call) -> str:
    """The text of a script: inline, or in a file, relative to where the run was called."""
    said = script if isinstance(script, dict) else {"uri": script}
    source = said.get("source") or {}
    if source.get("type") == "inline" or "code" in source:
        return str(source.get("code", ""))
    uri = str(said.get("uri") or source.get("uri") or "")
    if not call.trusts_templates:
        for placeholder in marked(uri, call.names).placeholders.values():
            raise placeholder.refused("names a script", "write its name in the file")
    path = filled_text(uri, call.names).removeprefix("file://")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise refused(f"the script '{path}' cannot be read: {reason.lower()}") from None
