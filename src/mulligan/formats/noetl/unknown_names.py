"""Warn of a name in a template that nothing in the playbook has, and that looks like one that it has.

What a template may read is known only during a run: steps set values, and tools return them. So a name counts as known
if it is anywhere in the file as a key or a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from jinja2 import Environment, TemplateError, nodes

from mulligan.formats.noetl.texts import texts
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source
from mulligan.language.text.suggestions import did_you_mean

_JINJA = Environment(extensions=["jinja2.ext.do"])  # noqa: S701
_WORD = re.compile(r"[A-Za-z_]\w*")
_WORKLOAD = "workload"
# What every template may read, and what Jinja2 has.
_ALWAYS = frozenset(
    "args catalog_id context ctx cycler dict error event execution_id input item iter job joiner keychain loop "
    "loop_index namespace outcome output page payload range response result results self steps this vars workload "
    "_index _loop _prev _retry".split()
)
# Their texts are no templates.
_NO_TEMPLATES = frozenset({"code", "desc", "description", "name", "step"})


def warn_of_unknown_names(root: Mapping, workload: set[str], steps: set[str], source: Source) -> None:
    """Warn of names in templates that are likely to be spelled wrong."""
    known = {*_ALWAYS, *workload, *steps, *(name.replace("-", "_") for name in steps)}
    known |= {word for text in texts(root) if "{{" not in text and "{%" not in text for word in _WORD.findall(text)}
    for node in _templates(root):
        for owner, name in _names(node.value):
            if name not in known and (hint := did_you_mean(name, workload if owner else {*workload, *steps})):
                start = next((found.start() for found in re.finditer(rf"\b{name}\b", node.text)), 0)
                source.warn_in("unknown_name", f"'{name}' is not known here", node, start, len(name), hint=hint)


def _templates(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key.text not in _NO_TEMPLATES:
                yield from _templates(value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _templates(item)
    elif isinstance(node.value, str) and ("{{" in node.value or "{%" in node.value):
        yield node


@lru_cache(maxsize=1024)
def _names(text: str) -> tuple[tuple[str, str], ...]:
    """The names that a template reads, as ("", name); and the keys of the workload, as ("workload", key)."""
    try:
        tree = _JINJA.parse(text)
    except (TemplateError, RecursionError, ValueError):
        return ()
    names = [*tree.find_all(nodes.Name)]
    own = {name.name for name in names if name.ctx != "load"}
    own |= {macro.name for macro in tree.find_all(nodes.Macro)}
    found = [("", name.name) for name in names if name.ctx == "load" and name.name not in own]
    for read in tree.find_all(nodes.Getattr):
        if isinstance(read.node, nodes.Name) and read.node.name == _WORKLOAD:
            found.append((_WORKLOAD, read.attr))
    return tuple(dict.fromkeys(found))
