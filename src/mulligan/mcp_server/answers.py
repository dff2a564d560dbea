"""What a client gets: answers and errors as plain data and as text. Nothing here needs the library `mcp`.

Everything that leaves the server, of tools, resources and prompts, passes through `present`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.api.http.problems import details
from mulligan.errors import LanguageError, MulliganError
from mulligan.mcp_server.untrusted import clean, mark, mark_error, mark_text
from mulligan.service.rendering.json_output import to_json


def present(answer: Any, *, is_ours: bool = False) -> dict[str, Any]:
    """What a handler gave, as the JSON object that a client gets. Texts are marked, unless all of them are ours."""
    found = to_json(answer)
    whole = found if isinstance(found, dict) else {"result": found}
    return whole if is_ours else mark(whole)


def present_error(error: MulliganError) -> dict[str, Any]:
    """An error as the JSON object that a client gets: code, message, hint and data, as every other face says them."""
    found = msgspec.to_builtins(details(error))
    about = {name: found[name] for name in ("hint", "data", "problems") if name in found}
    return {"error": mark_error({"code": found["code"], "message": found["detail"], **about})}


def error_text(error: MulliganError) -> str:
    """An error as text: what a model reads first."""
    text = clean(error.render())
    if isinstance(error, LanguageError) or "item_names" in error.data:
        return mark_text(text)
    return f"{text}\n  data: {as_text(mark_error(details(error).data))}" if error.data else text


def as_text(answer: dict[str, Any]) -> str:
    """An answer for clients that read text alone."""
    return msgspec.json.encode(answer).decode("utf-8", "replace")
