"""Read scripts from files, and texts from base64."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import refuse_values
from mulligan.formats.noetl.runtime.templates import render_text


def decode_base64(text: Any, key: str) -> str:
    """Decode a text. INPUT_INVALID where it is not base64, or not text."""
    try:
        return base64.b64decode(str(text), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise invalid_input(f"'{key}' is not text in base64") from None


def script_text(script: Any, call: Call) -> str:
    """The text of a script: inline, or from a file relative to the folder that the run was started in."""
    fields = script if isinstance(script, dict) else {"uri": script}
    source = fields.get("source") or {}
    if source.get("type") == "inline" or "code" in source:
        return str(source.get("code", ""))
    uri = str(fields.get("uri") or source.get("uri") or "")
    if not call.trusts_templates:
        refuse_values(uri, call.names, "names a script", "write its name in the file")
    path = render_text(uri, call.names).removeprefix("file://")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise invalid_input(f"the script '{path}' cannot be read: {reason.lower()}") from None
