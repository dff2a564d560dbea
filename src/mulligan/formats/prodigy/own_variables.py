"""The variables that a script gives a value itself: there they are its own, whatever a step captured."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.S)
# What would end a word, or make one look like an assignment, if it did not stand in quotes.
_PARTS = str.maketrans(dict.fromkeys(" \t\r\n;&|()=`", "_"))
_COMMAND = r"(?:^|[;&|({`]|\b(?:do|then|else|if|elif|while|until|export|local|readonly|declare)\b)[ \t]*"
_ASSIGNED = re.compile(rf"{_COMMAND}((?:[A-Za-z_]\w*=[^\s;&|]*[ \t]*)+)([^\n;]*)", re.M | re.A)
_NAME = re.compile(r"(?:^|\s)([A-Za-z_]\w*)=", re.A)
_LOOP = re.compile(r"\bfor\s+([A-Za-z_]\w*)(?=\s+in\b|\s*;|\s+do\b)", re.A)
_READ = re.compile(rf"{_COMMAND}(?:IFS=\S*\s+)?read\s+((?:-\w+\s+)*[\w \t]+)", re.M | re.A)


def own_variables(script: str) -> frozenset[str]:
    """Their names. In `v=${v}` the value comes from outside, so `v` is none; `echo v=${v}` gives nothing a value."""
    bare = _QUOTED.sub(lambda quoted: quoted.group().translate(_PARTS), script)
    names = dict.fromkeys(_LOOP.findall(bare) + " ".join(_READ.findall(bare)).split(), True)
    for found in _ASSIGNED.finditer(bare):
        for name in _NAME.findall(found[1]):
            names.setdefault(name, re.search(rf"\$\{{?{name}\b", found.group()) is None)
    return frozenset(name for name, is_own in names.items() if is_own)
