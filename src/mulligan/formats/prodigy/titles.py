"""What a step is called that nobody has given a name: by what it does, since `shell_7` tells nobody anything."""

from __future__ import annotations

from mulligan.core.model.lazy_regex import lazy_regex

_WORDS_MAX = 3
# What a script begins with before it does anything.
_PREPARING = lazy_regex(r"(?:\s*(?:set\s+[-+][^\n;&]*|cd\s+[^\n;&]+)\s*(?:&&|;|\n))*\s*")
_PROGRAM = lazy_regex(r"(?:[\w.-]*/)*(?P<name>[A-Za-z][\w-]*)(?:\.\w+)?(?![^\s;|&])")
# Further words that are words: no option, no variable, nothing in quotes.
_WORD = lazy_regex(r"[ \t]+(?P<name>[A-Za-z][\w-]*)(?![^\s;|&])")
_KEYWORDS = frozenset("if for while until case function exec eval export".split())


def of_prompt(prompt: str) -> str:
    """`/review` of a command of the agent's; just the agent of anything that is said to it."""
    word = prompt.split(maxsplit=1)[0] if prompt.strip() else ""
    return word.lstrip("/") if word.startswith("/") or " " not in prompt.strip() else "claude"


def of_script(script: str) -> str:
    """The program and what it is to do, `npm_run_build`; `shell` where it does not begin with a plain program."""
    prepared = _PREPARING.match(script)
    offset = prepared.end() if prepared else 0
    found = _PROGRAM.match(script, offset)
    if found is None or found["name"] in _KEYWORDS:
        return "shell"
    words = [found["name"]]
    while len(words) < _WORDS_MAX and (word := _WORD.match(script, found.end())):
        words.append(word["name"])
        found = word
    return "_".join(words)
