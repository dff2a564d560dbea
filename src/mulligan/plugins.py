"""What a package says of an action that it adds. Only the standard library: it is loaded in warm children, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from keyword import iskeyword

# The group of entry points under which packages offer actions: the name of each is the key in the file.
GROUP = "mulligan.actions"
_CALL = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"


class Unusable(Exception):
    """A package offers an action and it cannot be had; the message says which and why."""


class ActionPlugin:
    """An action of a package of yours: its keys with a line of help each, and the function that carries it out.

        slack = ActionPlugin(
            "mulligan_slack.post:run",
            keys={"text": "what is said", "channel": "where (default: general)"},
            required=["text"],
            text_key="text",
        )

    The function gets the keys that the file has as keyword arguments. It is imported by workers alone, in a process of
    its own, so whatever it needs costs nobody else anything. `text_key` is the key that a plain text stands for.
    `program_keys` are those whose texts the function evaluates itself: a `${…}` is refused there.
    """

    def __init__(
        self,
        call: str,
        *,
        keys: Mapping[str, str],
        required: Iterable[str] = (),
        text_key: str | None = None,
        program_keys: Iterable[str] = (),
        about: str = "",
    ) -> None:
        self.call = call
        self.keys = dict(keys)
        self.required = tuple(required)
        self.text_key = text_key
        self.program_keys = tuple(program_keys)
        self.about = about
        if problem := self._problem():
            raise ValueError(problem)

    def _problem(self) -> str:
        """What is wrong with it in words; nothing if nothing is."""
        if not isinstance(self.call, str) or not re.fullmatch(_CALL, self.call, re.ASCII):
            return f"{self.call!r} is no function such as 'package.module:function'"
        for key in self.keys:
            if not isinstance(key, str) or not (key.isascii() and key.isidentifier()) or iskeyword(key):
                return f"{key!r} cannot be the name of an argument"
        if unknown := [key for key in self.required if key not in self.keys]:
            return f"{unknown[0]!r} is required, and none of its keys"
        if unknown := [key for key in self.program_keys if key not in self.keys]:
            return f"{unknown[0]!r} is evaluated by the action, and none of its keys"
        if self.text_key is not None and self.text_key not in self.keys:
            return f"{self.text_key!r} is what a text stands for, and none of its keys"
        if self.text_key is not None and (others := [key for key in self.required if key != self.text_key]):
            return f"a text cannot stand for all that is required: there is also {others[0]!r}"
        return ""
