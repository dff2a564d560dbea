"""Reads `retry`: a number, one rule, `{rules: […]}` or the name of a policy, all as a list of rules."""

from __future__ import annotations

from typing import Any

from mulligan.core.deciding.conditions import CONDITIONS
from mulligan.core.model.actions import AGENT, traits_of
from mulligan.core.model.workflow import MAX_RETRIES_DEFAULT, SCRIPT_TIMEOUT_SECONDS, Adjust, Backoff, Command, Rule
from mulligan.language.keys.retry_keys import ADJUST, POLICY, RETRY, RULE, RULE_BACKOFF, RULE_KEYS, SCRIPT
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.readers.actions import read_action, shell_action
from mulligan.language.readers.agent_tools import read_agent_tools
from mulligan.language.readers.settings import Retry, Settings
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, describe
from mulligan.language.text.suggestions import did_you_mean

_MATCHERS = tuple(condition.key for condition in CONDITIONS)


def read_retry(node: Node | None, scope: Scope, settings: Settings) -> Retry:
    """The rules of `retry`; none if there is no node."""
    if node is None:
        return Retry()
    # An alias in YAML, and the steps of one function in Python, have the same node.
    known: dict[Any, tuple[Node, Retry]] = scope.draft.plain_retries
    if id(node) in known:
        return known[id(node)][1]
    form = RETRY.read(node, "'retry'", scope.source)
    if isinstance(form, Fields):
        retry = _policy(form, scope, settings)
        if not scope.source.problems and not any(rule.recovery_script for rule in retry.rules):
            known[id(node)] = (node, retry)
        return retry
    if isinstance(form, str) and isinstance(node, Scalar):
        scope.draft.used.add(("retry_policies", form))
        return read_policy(form, node, scope, settings)
    if form is True:
        return Retry((Rule(any=True),))
    return Retry((Rule(any=True, max_retries=form),)) if form else Retry()


def read_policy(name: str, node: Node, scope: Scope, settings: Settings) -> Retry:
    """The policy of that name from `retry_policies`."""
    policies = scope.draft.policies
    found = policies.get(name) if policies else None
    if found is None:
        hint = did_you_mean(name, policies.entries if policies else ()) or "declare it under 'retry_policies:'"
        raise scope.source.refuse("unknown_policy", f"there is no retry policy '{name}'", node, hint=hint)
    known: dict[str, Retry] = scope.draft.plain_policies
    if name in known:
        return known[name]
    retry = _policy(POLICY.read(found, f"retry policy '{name}'", scope.source), scope, settings)
    if not scope.source.problems and not any(rule.recovery_script for rule in retry.rules):
        known[name] = retry
    return retry


def _policy(form: Fields, scope: Scope, settings: Settings) -> Retry:
    bounds = form.pick("max_attempts", "deadline")
    if "rules" not in form:
        return Retry((_rule(form, scope, settings, is_alone=True),), **bounds)
    for key in form.values:
        if key in RULE_KEYS:
            message = f"'{key}' is next to 'rules', but belongs in one of them"
            raise scope.source.refuse("stray_key", message, form.key(key), hint="move it into a rule")
    return Retry(_rules(form.at("rules"), scope, settings), **bounds)


def _rules(node: Node, scope: Scope, settings: Settings) -> tuple[Rule, ...]:
    if not isinstance(node, Sequence):
        raise scope.source.refuse("type", f"'rules' is {describe(node)}, a list of rules is expected", node)
    if not node.items:
        raise scope.source.refuse("type", "'rules' is an empty list", node, hint="for no retries write 'retry: 0'")
    rules = []
    for item in node.items:
        with scope.noting:
            rules.append(_rule(RULE.read(item, "a rule", scope.source), scope, settings))
    return tuple(rules)


def _rule(form: Fields, scope: Scope, settings: Settings, *, is_alone: bool = False) -> Rule:
    matchers = [key for key in _MATCHERS if key in form.node.entries]
    _refuse_bad_matchers(form, matchers, scope, is_alone=is_alone)
    _refuse_two_backoffs(form, scope)
    script = _script(form.at("recovery_script"), scope, settings) if "recovery_script" in form else None
    return Rule(
        # A single rule without a condition matches any failure.
        **(form.pick(*matchers) if matchers else {"any": True}),
        # By default one less than the attempts.
        max_retries=form.get("max_retries", form.get("max_attempts", MAX_RETRIES_DEFAULT + 1) - 1),
        backoff=read_backoff(form),
        recovery_script=script,
        adjust=_adjust(form["adjust"], scope) if "adjust" in form else None,
        # A single rule has its limit in `Retry`, which is equivalent.
        max_attempts=None if is_alone else form.get("max_attempts"),
        restarts_conversation=form.get("conversation") == "new",
        avoids_hosts=form.get("host") == "other",
    )


def _refuse_bad_matchers(form: Fields, matchers: list[str], scope: Scope, *, is_alone: bool) -> None:
    if not matchers and not is_alone:
        hint = "add '" + "', '".join(_MATCHERS[:-1]) + "' or 'any: true'"
        raise scope.source.refuse("rule", "the rule does not say which failures it matches", form.node, hint=hint)
    if len(matchers) > 1:
        message = f"a rule has one condition, and this one has '{matchers[0]}' and '{matchers[1]}'"
        raise scope.source.refuse("rule", message, form.key(matchers[1]), hint="make it two rules")
    if form.get("any") is False:
        raise scope.source.refuse("rule", "'any: false' matches nothing", form.at("any"), hint="remove the rule")


def read_backoff(form: Fields) -> Backoff:
    return Backoff(**form.pick(*RULE_BACKOFF))


def _refuse_two_backoffs(form: Fields, scope: Scope) -> None:
    both = [key for key in ("delay", "factor") if key in form.node.entries]
    if "delays" in form.node.entries and both:
        message = f"'delays' and '{both[0]}' cannot be used together"
        scope.note(scope.source.refuse("rule", message, form.key("delays"), hint="remove one of them"))


def _adjust(form: Fields, scope: Scope) -> Adjust:
    for key in ("memory", "cpus", "timeout"):
        if f"max_{key}" in form and key not in form:
            message = f"'max_{key}' limits '{key}', which is not set"
            raise scope.source.refuse("stray_key", message, form.key(f"max_{key}"), hint=f"add '{key}: x2'")
    return Adjust(**form.pick(*ADJUST.keys))


def _script(node: Node, scope: Scope, settings: Settings) -> Command | None:
    """The recovery script: a command with the env and cwd of the step, which can read `error`."""
    inner = scope.with_names("error")
    own = settings.for_commands()
    if not isinstance(node, Mapping):
        return Command(action=shell_action(node, inner), timeout=SCRIPT_TIMEOUT_SECONDS, env=own.env, cwd=own.cwd)
    form: Fields = SCRIPT.read(node, "'recovery_script'", scope.source)
    own, inner = own.merge(form, inner), inner.for_fields(form)
    timeout = SCRIPT_TIMEOUT_SECONDS if own.timeout is None else own.timeout
    action = read_action(form, "'recovery_script'", inner)
    tools = read_agent_tools(form.at(AGENT), inner) if traits_of(action).is_agent else {}
    return Command(action=action, timeout=timeout, env=own.env, cwd=own.cwd, **tools) if action else None
