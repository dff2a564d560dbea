"""Reads commands and handlers: they run like steps but are not in the graph. They may be nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mulligan.core.model.actions import AGENT, ENGINE_ACTIONS, traits_of
from mulligan.core.model.workflow import Command, Expression, Handler, Template
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.keys.workflow_keys import (
    CAPTURE,
    COMMAND,
    COMMAND_KEYS,
    DO_COMMAND,
    HANDLER,
    HANDLER_CAPTURE,
    HANDLER_OPTIONS,
)
from mulligan.language.readers.actions import read_action, shell_action
from mulligan.language.readers.agent_tools import read_agent_tools
from mulligan.language.readers.retry_policies import read_retry
from mulligan.language.readers.settings import Settings, guard_of, read_breaker_key, read_logs
from mulligan.language.readers.step_files import read_item_files
from mulligan.language.scope import Scope, bare_expression, read_condition
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence
from mulligan.language.text.suggestions import did_you_mean

HANDLERS_DEPTH_MAX = 8
# A limit, since handlers that use others twice double at each level.
HANDLER_USES_MAX = 200_000
# Keys that go from the file into a `Command` as they are.
_COPIED_KEYS = ("deadline", "handler_failure_fatal", "continue_on_error", "affinity")
# The keys of a command that are not also keys of a handler.
_COMMAND_ONLY = tuple(key for key in COMMAND_KEYS if key not in HANDLER_OPTIONS)


def read_command(node: Node, label: str, scope: Scope, settings: Settings) -> Command:
    """A command: a text (shell), or a mapping with one action."""
    if isinstance(node, Scalar):
        return Command(action=shell_action(node, scope), **inherited_fields(settings, scope))
    if isinstance(node, Sequence):
        raise scope.source.refuse("type", f"{label} is a list, one command is expected", node)
    fields: Fields = COMMAND.read(node, label, scope.source)
    scope = scope.for_fields(fields)
    return Command(**action_field(fields, label, scope), **command_fields(fields, scope, settings))


def action_field(fields: Fields, label: str, scope: Scope, *, may_be_program: bool = False) -> dict[str, Any]:
    """The `action` field. If the action is refused, the rest is still read, to find all problems."""
    try:  # `scope.noting` would take longer, and this runs for every step
        action = read_action(fields, label, scope, may_be_program=may_be_program)
        if action is not None and traits_of(action).is_agent:
            return {"action": action, **read_agent_tools(fields.at(AGENT), scope)}
        return {"action": action}
    except Refusal as refusal:
        scope.note(refusal)
    return {}


def read_command_of_item(node: Node, label: str, scope: Scope, settings: Settings) -> Command:
    """A command of `do`: it may have a condition."""
    if not isinstance(node, Mapping):
        return read_command(node, label, scope, settings)
    fields: Fields = DO_COMMAND.read(node, label, scope.source)
    scope = scope.for_fields(fields)
    values = {**action_field(fields, label, scope), **command_fields(fields, scope, settings)}
    if "when" in fields:
        with scope.noting:
            values["when"] = read_condition(fields.at("when"), scope)
    if "reads" in fields or "writes" in fields:
        values.update(read_item_files(fields, values, scope))
    return Command(**values)


def read_commands(
    node: Node,
    label: str,
    scope: Scope,
    settings: Settings,
    before: Settings | None = None,
    read: Callable[[Node, str, Scope, Settings], Command] = read_command,
) -> tuple[Command, ...]:
    """One command or a list of them; `before` are the settings of all but the last."""
    if not isinstance(node, Sequence):
        return (read(node, label, scope, settings),)
    if not node.items:
        raise scope.source.refuse("type", f"{label} is an empty list", node)
    commands = []
    for item in node.items:
        own = settings if item is node.items[-1] else before or settings
        with scope.noting:
            commands.append(read(item, f"a command in {label}", scope, own))
    return tuple(commands)


def inherited_fields(
    settings: Settings, scope: Scope, *, is_engines: bool = False, is_map: bool = False
) -> dict[str, Any]:
    """The fields of a command that it inherits from its settings."""
    retry = read_retry(settings.retry, scope, settings)
    default_timeout = None if is_engines else settings.default_timeout
    return {
        "rules": retry.rules,
        "max_attempts": retry.max_attempts,
        "deadline": retry.deadline,
        "timeout": settings.timeout if settings.timeout is not None else default_timeout,
        "resources": settings.resources,
        "capture": settings.capture,
        "env": settings.env,
        "cwd": settings.cwd,
        "on_lost": settings.on_lost,
        "breaker": None if is_engines else settings.breaker,
        "breaker_key": None if is_engines or is_map else read_breaker_key(settings.breaker_key, scope),
        "logs": {} if is_engines else settings.logs,
    }


# The keys that `_outcome_fields` reads. Most steps have none of them.
_OUTCOME_KEYS = frozenset({"on_failure", "on_success", "validate"})


def command_fields(fields: Fields, scope: Scope, settings: Settings) -> dict[str, Any]:
    """The fields that a `Command` and a `Step` share, without the action."""
    own = settings.merge(fields, scope)
    values = _attempt_fields(fields, scope, own)
    if not _OUTCOME_KEYS.isdisjoint(fields.values):
        values.update(_outcome_fields(fields, scope, own.for_commands()))
    return values


def _attempt_fields(fields: Fields, scope: Scope, own: Settings) -> dict[str, Any]:
    values, present = fields.pick(*_COPIED_KEYS), fields.values
    try:  # as above
        is_engines = not ENGINE_ACTIONS.isdisjoint(fields.node.entries)
        values = {**inherited_fields(own, scope, is_engines=is_engines, is_map="map" in present), **values}
    except Refusal as refusal:
        scope.note(refusal)
    if "breaker" in present:
        with scope.noting:
            _check_breaker(fields, scope)
    if "logs" in present:
        with scope.noting:
            values["logs"] = _read_logs(fields, scope)
    return values


def _check_breaker(fields: Fields, scope: Scope) -> None:
    """Refuse an undeclared breaker, and one on an engine action: breakers act when a worker leases a task."""
    name, _ = guard_of(fields)
    if name not in scope.draft.breakers:
        hint = did_you_mean(name, scope.draft.breakers) or "declare it under 'breakers:'"
        raise scope.source.refuse("unknown_breaker", f"there is no breaker '{name}'", fields.at("breaker"), hint=hint)
    engines = next((action for action in fields.node.entries if action in ENGINE_ACTIONS), None)
    if engines is not None:
        message = f"a breaker guards actions that workers run, and '{engines}' is run by the engine"
        hint = "set it on the steps of that workflow" if engines == "workflow" else "remove it"
        raise scope.source.refuse("stray_key", message, fields.key("breaker"), hint=hint)


def _read_logs(fields: Fields, scope: Scope) -> dict[str, Template]:
    """The paths of links to the logs; only workers write logs."""
    strays = [word for word in ("map", *ENGINE_ACTIONS) if word in fields.node.entries]
    if strays:
        message = f"'logs' is for actions that workers run, and '{strays[0]}' is run by the engine"
        hint = "move it into 'do'" if strays[0] == "map" else "remove it"
        raise scope.source.refuse("stray_key", message, fields.key("logs"), hint=hint)
    agent = fields.node.get(AGENT)
    if isinstance(agent, Mapping) and ("tools" in agent.entries or "session" in agent.entries):
        message = "an agent with tools or a session has a log for each question and call, so it has no 'logs'"
        raise scope.source.refuse("stray_key", message, fields.key("logs"), hint="remove it")
    return read_logs(fields["logs"], scope)


def _outcome_fields(fields: Fields, scope: Scope, settings: Settings) -> dict[str, Any]:
    """The fields for what follows an attempt: handler, validation, commands on success."""
    values: dict[str, Any] = {}
    if "on_failure" in fields:
        with scope.noting:
            values["on_failure"], is_fatal = read_handler(fields.at("on_failure"), scope, settings)
            if is_fatal and "handler_failure_fatal" not in fields:
                values["handler_failure_fatal"] = True
    if "on_success" in fields:
        with scope.noting:
            after = scope.with_names("output")
            values["on_success"] = read_commands(fields.at("on_success"), "'on_success'", after, settings.for_effects())
    if "validate" in fields:
        node, after = fields.at("validate"), scope.with_names("output")
        with scope.noting:
            if isinstance(node, Mapping):
                values["validator"] = read_command(node, "'validate'", after, settings.for_effects())
            else:
                values["validate"] = read_condition(node, after)
    return values


def read_handler(node: Node, scope: Scope, settings: Settings) -> tuple[Handler, bool]:
    """A handler in any of its forms, and whether its own failure is fatal."""
    inner = scope.with_names("error")
    if not isinstance(node, Mapping):
        return Handler(_read_handler_sequence(node, "'on_failure'", inner, settings)), False
    form: Fields = HANDLER.read(node, "'on_failure'", scope.source)
    if "use" in node.entries:
        return _read_used_handler(form, scope, settings)
    is_for_effect = form.get("strategy") == "cleanup" or bool(form.get("rerun"))
    handler = Handler(
        commands=_handler_commands(form, inner, settings.for_effects() if is_for_effect else settings),
        capture=_read_capture(form, inner),
        **form.pick("strategy", "timeout", "rerun"),
    )
    if handler.rerun and handler.strategy != "recovery":
        message = f"'rerun' is for the strategy recovery, and this one is {handler.strategy}"
        scope.note(scope.source.refuse("handler", message, form.key("rerun"), hint="remove one of them"))
    return handler, form.get("handler_failure_fatal", False)


def _read_used_handler(form: Fields, scope: Scope, settings: Settings) -> tuple[Handler, bool]:
    others = [key for key in form.node.entries if key != "use"]
    if others:
        message = f"'{others[0]}' is next to 'use', but belongs in the handler itself"
        raise scope.source.refuse("stray_key", message, form.key(others[0]), hint="move it to 'handlers:'")
    name: str = form.get("use", "")
    handlers = scope.draft.handlers
    found = handlers.get(name) if handlers else None
    if found is None:
        hint = did_you_mean(name, handlers.entries if handlers else ()) or "declare it under 'handlers:'"
        raise scope.source.refuse("unknown_handler", f"there is no handler '{name}'", form.at("use"), hint=hint)
    scope.draft.used.add(("handlers", name))
    return named_handler(name, found, form.at("use"), scope, settings)


def named_handler(name: str, found: Node, used: Node, scope: Scope, settings: Settings) -> tuple[Handler, bool]:
    """A handler from `handlers`, read in the scope that uses it. A handler that uses itself is refused."""
    draft = scope.draft
    draft.used_handlers[name] = draft.used_handlers.get(name, 0) + 1
    if name in scope.open_handlers:
        way = " → ".join((*scope.open_handlers[scope.open_handlers.index(name) :], name))
        raise scope.source.refuse("recursive_handler", f"handler '{name}' uses itself: {way}", used)
    if len(scope.open_handlers) >= HANDLERS_DEPTH_MAX or draft.used_handlers[name] > HANDLER_USES_MAX:
        raise scope.source.refuse("recursive_handler", f"handler '{name}' is used too often inside others", used)
    return read_handler(found, msgspec.structs.replace(scope, open_handlers=(*scope.open_handlers, name)), settings)


def _handler_commands(form: Fields, scope: Scope, settings: Settings) -> tuple[Command, ...]:
    if "commands" not in form.node.entries:
        only = Fields(form.node, {key: form[key] for key in _COMMAND_ONLY if key in form})
        if _is_format(form):
            only.values["capture"] = CAPTURE.read(form.at("capture"), "'capture'", scope.source)
        scope = scope.for_fields(form)
        return (Command(**action_field(form, "'on_failure'", scope), **command_fields(only, scope, settings)),)
    own = (*_COMMAND_ONLY, *form.added)
    strays = [key for key in form.values if key in own or (key == "capture" and _is_format(form))]
    if strays:
        message = f"'{strays[0]}' is next to 'commands', but belongs in one of them"
        raise scope.source.refuse("stray_key", message, form.key(strays[0]), hint="move it into a command")
    return _read_handler_sequence(form.at("commands"), "'commands'", scope, settings)


def _read_handler_sequence(node: Node, label: str, scope: Scope, settings: Settings) -> tuple[Command, ...]:
    """The commands of a handler. Only the last one may produce the output of the step."""
    return read_commands(node, label, scope, settings, before=settings.for_effects())


def _is_format(form: Fields) -> bool:
    """Whether `capture` is the format of the single command instead of what the handler captures."""
    return "capture" in form and isinstance(form.at("capture"), Scalar)


def _read_capture(form: Fields, scope: Scope) -> dict[str, Expression]:
    if "capture" not in form or _is_format(form):
        return {}
    after = scope.with_names("output")
    entries = HANDLER_CAPTURE.read(form.at("capture"), "'capture'", scope.source)
    return {name: bare_expression(node, after) for name, node in entries.items()}
