"""Variables about changes in Git: `${step.files_added}`, `${workflow.commits:json}`, `${step.files_changed:*.md}`.

`step` is the previous step: the commit that HEAD was at before it is remembered. `workflow` is the run: what its branch
has that its target branch does not have. A command before the step that asks looks them up.

A modifier is a format (`json`, `lines`, `csv` …), or a pattern that the paths must match, or both: `:*.rs:json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.expressions import entry
from mulligan.formats.prodigy.context import Context, added_step
from mulligan.formats.prodigy.variables import GIT_FIELDS, GIT_REFERENCE, mentions
from mulligan.formats.translation import literal, scalars
from mulligan.language.text.nodes import Mapping, Node, Scalar, Source
from mulligan.language.text.suggestions import quote_list

_STEP_CHANGES = re.compile(rf"\$\{{step\.(?:{'|'.join(GIT_FIELDS)})\b")
# The key in `Context.variables` of the file that remembers HEAD. It is not a variable of Prodigy.
_REMEMBERED = "step before"
_ACTION_KEYS = ("shell", "claude", "write_file", "test", "command")
_TARGET_BRANCH = "merge.target_branch"

FORMATS = ("json", "lines", "newline", "csv", "comma", "space")
_LISTS = GIT_FIELDS[:5]


def track_for_next(context: Context, following: Node | None) -> Context:
    """The context of a step; it tracks changes if the following step asks for them."""
    asked = [following]
    if isinstance(following, Mapping):
        own = next((node for node in map(following.get, _ACTION_KEYS) if node is not None), None)
        asked = [own, following.get("when")]
    is_asked = any(mentions(node, _STEP_CHANGES) for node in asked)
    return msgspec.structs.replace(context, tracks_changes=is_asked)


def reads_changes(node: Node | None) -> bool:
    """Whether a text reads changes."""
    return mentions(node, GIT_REFERENCE)


def after_tracking(context: Context, remembered: str) -> Context:
    """The context after a step; `remembered` is the file that remembers HEAD before it."""
    forgotten = {name: value for name, value in context.variables.items() if name != _REMEMBERED}
    known = {_REMEMBERED: remembered} if context.tracks_changes else {}
    return msgspec.structs.replace(context, variables={**forgotten, **known}, tracks_changes=False)


def look_up_changes(asked: list[Node], title: str, context: Context) -> tuple[list[dict[str, Any]], Context]:
    """The commands that look up changes for the texts `asked`, and the context in which they are variables."""
    looks: list[dict[str, Any]] = []
    found = [each for node in asked for each in _references(node, context.source)]
    target = context.variables.get(_TARGET_BRANCH)
    for root, args in (
        ("step", {"remembered": context.variables.get(_REMEMBERED)}),
        ("workflow", {"branch": target and f"${{{target}}}"}),
    ):
        words = dict.fromkeys(word for each, word in found if each == root)
        if words and root == "step" and not all(args.values()):
            context.source.warn("prodigy", "no step is before this one, so nothing has changed", asked[0])
            args = {}
        if words and all(args.values()):
            slot = context.slots.take(f"{title}_changes")
            modified = [literal(word) for word in words if ":" in word]
            given = {**args, **({"modified": modified} if modified else {})}
            looks.append(added_step(slot, "changes_since", given))
            known = {f"{root}.{field}": f"{slot.output}.{field}" for field in GIT_FIELDS}
            known |= {f"{root}.{word}": entry(slot.output, word) for word in words if ":" in word}
            lists = {known[f"{root}.{word}"] for word in words if word.partition(":")[0] in _LISTS}
            context = msgspec.structs.replace(context.with_variables(known), word_lists=context.word_lists | lists)
    return looks, context


def _references(node: Node, source: Source) -> Iterator[tuple[str, str]]:
    """Each variable about changes in a text: `step` or `workflow`, and the field with its modifier."""
    for each in scalars(node):
        for found in GIT_REFERENCE.finditer(each.text):
            if found["field"] in GIT_FIELDS:
                _check_modifier(found, each, source)
                yield found["root"], found["field"] + (f":{found['modifier']}" if found["modifier"] is not None else "")


def _check_modifier(found: re.Match[str], node: Scalar, source: Source) -> None:
    """Refuse a modifier that is neither a format nor a pattern: in Prodigy it would have no effect."""
    if found["modifier"] is None:
        return
    field, words = found["field"], found["modifier"].split(":")
    unknown = [word for word in words if word not in FORMATS and not any(sign in word for sign in "*?[/.")]
    if field not in _LISTS:
        message, hint = f"'{field}' is a number and has no modifier", f"write ${{{found['root']}.{field}}}"
    elif sum(word in FORMATS for word in words) > 1:
        message, hint = f"'{found.group()}' has two formats", "keep one of them"
    elif unknown:
        message = f"'{unknown[0]}' is not a modifier of '{field}'"
        hint = f"write a pattern such as *.md, or one of {quote_list(FORMATS)}"
    else:
        return
    raise source.refuse_in("prodigy", message, node, found.start(), len(found.group()), hint=hint)
