"""Write proposed changes into the text of a workflow: a rule, a limit, a breaker. All else stays as it is written.

An edit inserts or replaces the fewest characters that it can, so comments, order and quotes stay. Whether the text then
means what was proposed is not decided here: `suggested_text` reads it again and compares the definitions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from mulligan.analysis.suggest.changes import AddBreaker, AddRule, Change, RemoveRule, SetLimit
from mulligan.core.deciding.conditions import CONDITIONS
from mulligan.errors import InputInvalid, NotFound
from mulligan.language.matrices.matrix import base_name
from mulligan.service.server.catalogue.text_nodes import (
    AS_TEXTS,
    BY_HAND,
    end_of,
    flow_text,
    insert_item,
    insert_key,
    key_text,
    line_end,
    load_nodes,
    pair_of,
    refuse_long_text,
)

# `1h30m` and `2GiB` are texts without quotes in any YAML.
_QUANTITY = re.compile(r"(?:\d+[hms])+|\d+[KMG]iB")
# Keys of `retry` that hold for all of its rules.
_BOUNDS = ("max_attempts", "deadline")
_CONDITIONS = frozenset(condition.key for condition in CONDITIONS)
_INDENT = 2


def edit_change(text: str, change: Change) -> str:
    """The text with the change. `InputInvalid` or `NotFound` where that is not possible in place."""
    refuse_long_text(text)
    has_returns = "\r\n" in text
    text = text.replace("\r\n", "\n") if has_returns else text
    if isinstance(change, AddRule):
        found = insert_rule(text, change.step, change.keys)
    elif isinstance(change, RemoveRule):
        found = _remove_rule(text, change)
    elif isinstance(change, SetLimit):
        found = _set_limit(text, change)
    else:
        found = _add_breaker(text, change)
    return found.replace("\n", "\r\n") if has_returns else found


def change_text(change: Change, *, has_rules: bool) -> str:
    """The change as a part of a file, for people to read; "" if it takes something away."""
    if isinstance(change, AddRule):
        if has_rules:
            more = f"      # behind the rules that it has:\n      - {written(change.keys)}"
            return f"- step: {flow_text(change.step)}\n  retry:\n    rules:\n{more}"
        return f"- step: {flow_text(change.step)}\n  retry: {written(change.keys)}"
    if isinstance(change, SetLimit):
        value = change.written if change.what == "timeout" else written({"memory": change.written})
        key = "timeout" if change.what == "timeout" else "resources"
        return f"- step: {flow_text(change.step)}\n  {key}: {value}"
    if isinstance(change, AddBreaker):
        return (
            f"breakers:\n  {key_text(change.name)}: {written(change.keys)}\n"
            f"steps:\n  - step: {flow_text(change.step)}\n    breaker: {flow_text(change.name)}"
        )
    return ""


def written(value: Any) -> str:
    """A value in one line. Durations and sizes stand without quotes, as people write them."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key_text(str(key))}: {written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    return value if isinstance(value, str) and _QUANTITY.fullmatch(value) else flow_text(value)


# -- rules -----------------------------------------------------------------------------------------------------------


def insert_rule(text: str, step: str, keys: Mapping[str, Any]) -> str:
    """The text with one more rule of a step, behind those that it has."""
    owner, key = _retry_owner(text, step)
    pair = pair_of(owner, key)
    rule = written(keys)
    if pair is None:
        return insert_key(text, owner, key, rule)
    value = pair[1]
    if isinstance(value, yaml.ScalarNode):
        return _replace(text, pair, _with_scalar(value.value, rule))
    if not isinstance(value, yaml.MappingNode):
        raise _refusal(step, "its 'retry' is a list")
    rules = pair_of(value, "rules")
    if rules is not None and not (isinstance(rules[1], yaml.SequenceNode) and rules[1].value):
        raise InputInvalid("'rules' is no list that could be extended in place", hint=BY_HAND)
    if rules is not None:
        return insert_item(text, rules[1], rule)
    return _flow_rules(text, value, rule) if value.flow_style else _block_rules(text, value, rule)


def _with_scalar(retry: str, rule: str) -> str:
    """`retry: 3` and `retry: true` as the first of two rules; 0, false and nothing grant no retry."""
    if retry.lower() in ("", "0", "false", "null", "~"):
        return rule
    limit = "" if retry.lower() == "true" else f", max_retries: {retry}"
    return f"{{rules: [{{any: true{limit}}}, {rule}]}}"


def _flow_rules(text: str, value: Any, rule: str) -> str:
    """`{codes: [A], max_attempts: 4}` as `{max_attempts: 4, rules: [{codes: [A], max_retries: 3}, …]}`."""
    begin, end = value.start_mark.index, value.end_mark.index
    bounds = [pair for pair in value.value if pair[0].value in _BOUNDS]
    if not bounds and _has_condition(value):
        # Everything between the braces stays, also line breaks and comments.
        return f"{text[:begin]}{{rules: [{text[begin:end]}, {rule}]}}{text[end:]}"
    if "\n" in text[begin:end]:
        raise InputInvalid("a 'retry' in braces over several lines cannot be extended in place", hint=BY_HAND)
    outer = [_pair_text(text, pair) for pair in bounds]
    inner = [_pair_text(text, pair) for pair in value.value if pair not in bounds]
    first = ", ".join([*_implied(value), *inner])
    return f"{text[:begin]}{{{', '.join([*outer, f'rules: [{{{first}}}, {rule}]'])}}}{text[end:]}"


def _block_rules(text: str, value: Any, rule: str) -> str:
    """A rule over several lines as the first item of `rules`, and one more item behind it."""
    column = value.start_mark.column
    lines = text.split("\n")
    first, last = value.start_mark.line, text.count("\n", 0, end_of(text, value))
    starts = [pair[0].start_mark.line for pair in value.value]
    ends = [*(start - 1 for start in starts[1:]), last]
    outer: list[str] = []
    inner: list[str] = [f"{' ' * column}{word}" for word in _implied(value)]
    for pair, start, end in zip(value.value, starts, ends, strict=True):
        (outer if pair[0].value in _BOUNDS else inner).extend(lines[start : end + 1])
    moved = [f"{' ' * 2 * _INDENT}{line}" if line.strip() else line for line in inner]
    if not moved:
        raise InputInvalid("'retry' has no rule that could be extended in place", hint=BY_HAND)
    dash = f"{' ' * (column + _INDENT)}- "
    listed = [dash + moved[0].lstrip(), *moved[1:], dash + rule]
    return "\n".join([*lines[:first], *outer, f"{' ' * column}rules:", *listed, *lines[last + 1 :]])


def _implied(value: Any) -> list[str]:
    """What a single rule means without saying it, and a rule of a list has to say."""
    found = [] if _has_condition(value) else ["any: true"]
    keys = {pair[0].value: pair[1].value for pair in value.value}
    if "max_attempts" in keys and "max_retries" not in keys and str(keys["max_attempts"]).isdecimal():
        found.append(f"max_retries: {int(keys['max_attempts']) - 1}")
    return found


def _has_condition(value: Any) -> bool:
    return any(pair[0].value in _CONDITIONS for pair in value.value)


def _remove_rule(text: str, change: RemoveRule) -> str:
    owner, key = _retry_owner(text, change.step)
    pair = pair_of(owner, key)
    if pair is None:
        raise _refusal(change.step, "its rules stand elsewhere, perhaps under 'defaults'")
    rules = pair_of(pair[1], "rules")
    items = rules[1].value if rules is not None and isinstance(rules[1], yaml.SequenceNode) else []
    if len(items) < 2:
        # The only rule: without it there is no retry.
        return _replace(text, pair, "0")
    if not 0 <= change.index < len(items):
        raise _refusal(change.step, "its rules were changed meanwhile")
    assert rules is not None
    return _remove_item(text, rules[1], change.index)


def _retry_owner(text: str, step: str) -> tuple[Any, str]:
    """The mapping and the key under which the rules of a step stand: the step, or a retry policy that it names."""
    root, node = _find_step(text, step)
    pair = pair_of(node, "retry")
    if pair is None or not isinstance(pair[1], yaml.ScalarNode):
        return node, "retry"
    name = pair[1].value
    policies = pair_of(root, "retry_policies")
    if policies is not None and pair_of(policies[1], name) is not None:
        return policies[1], name
    return node, "retry"


# -- limits and breakers ---------------------------------------------------------------------------------------------


def _set_limit(text: str, change: SetLimit) -> str:
    _, node = _find_step(text, change.step)
    if change.what == "timeout":
        return _put(text, node, "timeout", change.written)
    pair = pair_of(node, "resources")
    if pair is None:
        return insert_key(text, node, "resources", written({"memory": change.written}))
    if not isinstance(pair[1], yaml.MappingNode) or not pair[1].value:
        raise _refusal(change.step, "its 'resources' is no mapping")
    return _put(text, pair[1], "memory", change.written)


def _add_breaker(text: str, change: AddBreaker) -> str:
    _, node = _find_step(text, change.step)
    text = _put(text, node, "breaker", flow_text(change.name))
    root, _ = _find_step(text, change.step)
    declared = pair_of(root, "breakers")
    if declared is None:
        steps = pair_of(root, "steps")
        assert steps is not None
        if root.flow_style:
            return insert_key(text, root, "breakers", written({change.name: change.keys}))
        begin = text.rfind("\n", 0, steps[0].start_mark.index) + 1
        block = f"breakers:\n{' ' * _INDENT}{key_text(change.name)}: {written(change.keys)}\n"
        return f"{text[:begin]}{block}{text[begin:]}"
    if not isinstance(declared[1], yaml.MappingNode) or not declared[1].value:
        raise _refusal(change.step, "'breakers' of the file is no mapping")
    if pair_of(declared[1], change.name) is not None:
        return text
    return insert_key(text, declared[1], change.name, written(change.keys))


# -- places in a text ------------------------------------------------------------------------------------------------


def _find_step(text: str, step: str) -> tuple[Any, Any]:
    """The nodes of the whole text and of a step, or of a matrix by its name."""
    root, _ = load_nodes(text, AS_TEXTS)
    pair = pair_of(root, "steps")
    if pair is None or not isinstance(pair[1], yaml.SequenceNode):
        raise InputInvalid("the text has no list of steps", hint="only texts of our own format are edited")
    for node in pair[1].value:
        name = pair_of(node, "step")
        if name is not None and isinstance(name[1], yaml.ScalarNode):
            is_matrix = pair_of(node, "matrix") is not None
            if step == (base_name(name[1].value) if is_matrix else name[1].value):
                return root, node
    raise NotFound(f"there is no step '{step}' in the text", hint=BY_HAND, step=step)


def _pair_text(text: str, pair: tuple[Any, Any]) -> str:
    return text[pair[0].start_mark.index : end_of(text, pair[1])]


def _put(text: str, node: Any, key: str, value: str) -> str:
    pair = pair_of(node, key)
    return insert_key(text, node, key, value) if pair is None else _replace(text, pair, value)


def _replace(text: str, pair: tuple[Any, Any], value: str) -> str:
    """The text with another value of a key."""
    begin, end = pair[1].start_mark.index, end_of(text, pair[1])
    if isinstance(pair[1], yaml.ScalarNode) and begin == end:
        begin = end = text.index(":", pair[0].end_mark.index) + 1
        return f"{text[:begin]} {value}{text[end:]}"
    if not isinstance(pair[1], yaml.ScalarNode) and not pair[1].flow_style:
        # The value began on the next line.
        begin = text.index(":", pair[0].end_mark.index) + 1
        return f"{text[:begin]} {value}{text[end:]}"
    return f"{text[:begin]}{value}{text[end:]}"


def _remove_item(text: str, items: Any, index: int) -> str:
    nodes: Sequence[Any] = items.value
    node = nodes[index]
    if items.flow_style:
        if index:
            begin, end = end_of(text, nodes[index - 1]), end_of(text, node)
        else:
            begin, end = node.start_mark.index, nodes[1].start_mark.index
        if "#" in text[begin:end].replace(text[node.start_mark.index : end_of(text, node)], ""):
            raise InputInvalid("a comment stands between the rules, so none is taken out in place", hint=BY_HAND)
        return text[:begin] + text[end:]
    begin = text.rfind("\n", 0, node.start_mark.index) + 1
    if not text[begin : node.start_mark.index].strip().startswith("-"):
        raise InputInvalid("the rule cannot be taken out in place", hint=BY_HAND)
    return text[:begin] + text[line_end(text, end_of(text, node)) + 1 :]


def _refusal(step: str, why: str) -> InputInvalid:
    return InputInvalid(f"step '{step}' cannot be edited in place: {why}", hint=BY_HAND)
