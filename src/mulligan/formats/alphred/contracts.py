"""What an agent has to know of the answer that is expected of it: nobody decides in a word who was not told to."""

from __future__ import annotations

from collections.abc import Iterable

APPROVED = "approved"
BLOCKED = "blocked"
# What is said where it is not done yet.
OPEN = ("changes_requested", "retry")

_ROUTING = """\
---
What follows depends on your decision. {how}
{words}"""
_LINE = """Say it in the last line of your answer, with nothing after it, as
decision: WORD
where WORD is one of"""
_FIELD = 'Say it in your JSON, as the text of its field "decision", which is one of'
_SPAWNER = """\
---
Answer with one JSON object and nothing else, no text before or after it:
{{"schemaVersion": 1, "subtasks": [{{"nodeKey": "a-short-key", "title": "…", "prompt": "…"}}]}}
It has from 0 to {most} subtasks, each with a title and a prompt. A prompt stands for itself: whoever gets it has not \
read any of this. "nodeKey" (a key that no other has), "provider", "model" and "metadata" are optional."""
_JSON = """\
---
Answer with JSON and nothing else, no text before or after it."""


def routing(words: Iterable[str], *, is_json: bool, has_default: bool) -> str:
    """Which decisions there are, and where to say one. `has_default`: there is a way on without any."""
    known = list(dict.fromkeys((*words, APPROVED, BLOCKED)))
    lines = [f"- {word}{_MEANINGS.get(word, '')}" for word in known]
    if has_default:
        lines.append("If none of them fits, say none.")
    return _ROUTING.format(how=_FIELD if is_json else _LINE, words="\n".join(lines))


_MEANINGS = {APPROVED: ": it is done, and well", BLOCKED: ": you cannot go on, and somebody has to look"}


def spawner(most: int) -> str:
    """How a spawner lists its subtasks."""
    return _SPAWNER.format(most=most)


def json_answer() -> str:
    """That the answer is read by a program."""
    return _JSON
