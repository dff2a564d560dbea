"""Checks after a step: `validate`, `step_validate`, required commits, and writing `output_file`.

They become one chain: each check is the `validate` of the one before it, so the first failure ends the chain and
becomes the failure of the step. Prodigy's `validate` comes last. Its `on_incomplete` becomes a handler, which runs
before the work is checked again.
"""

from __future__ import annotations

import re
from typing import Any

from mulligan.formats.prodigy import actions
from mulligan.formats.prodigy.actions import EVALUATED_REMARK
from mulligan.formats.prodigy.context import Context
from mulligan.formats.prodigy.failures import handler_context, translate_commands
from mulligan.formats.prodigy.forms import is_prompt, read_record
from mulligan.formats.prodigy.keys import ON_INCOMPLETE, STEP_VALIDATE, VALIDATE, format_seconds
from mulligan.formats.prodigy.repository import (
    auto_commit,
    check_commit_message,
    commit_required_at,
    require_commit,
    with_required_commit,
)
from mulligan.formats.prodigy.variables import captured_names, text_at, translate_text
from mulligan.formats.translation import literal, literal_value, made
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe, plain

JUDGE = "mulligan.formats.prodigy.runtime:judge_completion"
CHECK = "mulligan.formats.prodigy.runtime:run_checks"
INCOMPLETE_ATTEMPTS = 2
_ACTIONS = ("shell", "claude")


def validation_variables(depth: int) -> dict[str, str]:
    """The variables about incomplete work: details of the failure `depth` causes below the handler's `error`.

    If the check itself failed, there are no details, and the variables have defaults.
    """
    causes = [f"error{'.cause[0]' * level}.cause" for level in range(depth)]
    details = f"error{'.cause[0]' * depth}.details"
    are_there = " && ".join(f"size({cause}) > 0" for cause in causes)

    def detail(name: str, otherwise: str) -> str:
        return f"({are_there} && has({details}.{name}) ? {details}.{name} : {otherwise})"

    return {
        "validation.completion": detail("completion", "0"),
        "validation.completion_percentage": detail("completion", "0"),
        "validation.missing": detail("missing", "error.message"),
        "validation.gaps": detail("gaps", "''"),
        "validation.status": detail("status", "'failed'"),
        "validation.attempt_number": "error.attempt",
    }


def translate_checks(form: Fields, kind: str, title: str, context: Context) -> dict[str, Any] | None:
    """The chain of checks of a step; None if it has none."""
    given = "output.content" if kind == "claude" else "output"
    own = dict.fromkeys((*captured_names(form), "last.output", f"{kind}.output"), given)
    after = context.with_variables(own).nested(names=context.names | {"output"})
    commands: list[dict[str, Any]] = []
    if "output_file" in form:
        path = text_at(form, "output_file", after)
        args = {"path": path, **actions.path_prefix(path), "content": _output_expression(kind), "create_dirs": True}
        commands.append({"python": {"call": actions.WRITE}, "args": args})
    commands += _commit_checks(form, title, after)
    if form.get("skip_validation"):
        return chain(commands)
    if "step_validate" in form:
        with context.source.noting:
            commands += _with_limits(translate_step_validate(form.at("step_validate"), after), form)
    if "validate" in form:
        with context.source.noting:
            check = translate_validate(form.at("validate"), after)
            commands += _with_limits([check], form) if check else []
    return chain(commands)


def chain(commands: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Chain commands into one check."""
    whole: dict[str, Any] | None = None
    for command in reversed(commands):
        whole = {**command, "validate": whole} if whole else command
    return whole


def _with_limits(commands: list[dict[str, Any]], form: Fields) -> list[dict[str, Any]]:
    """Add what the step sets for all of its checks: a timeout, and whether a failure is ignored."""
    limits: dict[str, Any] = {}
    if "validation_timeout" in form:
        limits["timeout"] = format_seconds(form["validation_timeout"])
    if form.get("ignore_validation_failure"):
        limits["continue_on_error"] = True
    return [{**limits, **command} if "timeout" in command else {**command, **limits} for command in commands]


def _output_expression(kind: str) -> str:
    """The output of a command, for the check after it."""
    return "${output.content}" if kind == "claude" else "${output}"


def _commit_checks(form: Fields, title: str, after: Context) -> list[dict[str, Any]]:
    config = form.get("commit_config")
    found = []
    if form.get("auto_commit"):
        found.append(auto_commit(form.at("auto_commit"), title, config, after))
    at = commit_required_at(form)
    if at is not None:
        found.append(require_commit(at, title))
    if config is not None and "message_pattern" in config:
        found.append(check_commit_message(config))
    return found


# -- validate ------------------------------------------------------------------------------


def translate_validate(node: Node, context: Context) -> dict[str, Any] | None:
    """Translate `validate` to one check; None for an empty list."""
    if isinstance(node, Mapping):
        # With keys that `validate` does not have, it is an ordinary step.
        is_step = not node.entries.keys() <= VALIDATE.keys.keys() and not node.entries.keys().isdisjoint(_ACTIONS)
        if not is_step:
            return _judged_check(read_record(VALIDATE, node, "'validate'", context.source), context)
    if isinstance(node, Scalar) and not isinstance(node.value, str):
        message = f"'validate' is {describe(node)}, a command, a list of steps or a mapping is expected"
        raise context.source.refuse("type", message, node)
    return chain(translate_commands(node, context))


def _judged_check(form: Fields, context: Context) -> dict[str, Any]:
    """A check whose result says how complete the work is, in percent."""
    commands = _check_commands(form, context)
    last = commands[-1]
    last = {**last, "validate": {"python": {"call": JUDGE}, "args": _judge_args(form, last, context)}}
    if "timeout" in form:
        last["timeout"] = format_seconds(form["timeout"])
    whole = chain([*commands[:-1], last])
    assert whole is not None
    if "on_incomplete" in form:
        inner = handler_context(context).with_variables(validation_variables(len(commands)))
        whole |= _on_incomplete(form.at("on_incomplete"), inner)
    return whole


def _check_commands(form: Fields, context: Context) -> list[dict[str, Any]]:
    kinds = [kind for kind in ("shell", "command", "claude") if kind in form]
    if kinds and "commands" in form:
        message = f"'{kinds[0]}' cannot be combined with 'commands'"
        raise context.source.refuse("prodigy", message, form.key(kinds[0]), hint="move it into 'commands'")
    found = [_check_command(form[kind], kind, context) for kind in kinds]
    if "commands" in form:
        found = translate_commands(form.at("commands"), context)
    if not found:
        message, hint = "'validate' has no command", "add 'shell', 'claude' or 'commands'"
        raise context.source.refuse("prodigy", message, form.node, hint=hint)
    return found


def _check_command(node: Scalar, kind: str, context: Context) -> dict[str, Any]:
    return actions.agent_action(node, context) if kind == "claude" else actions.command_action(node, context)


def _judge_args(form: Fields, last: dict[str, Any], context: Context) -> dict[str, Any]:
    args: dict[str, Any] = {"output": _output_expression("claude" if "agent" in last else "shell")}
    if "threshold" in form:
        args["threshold"] = _percent(form.at("threshold"), context.source)
    if "result_file" in form:
        args["result_file"] = text_at(form, "result_file", context)
        args |= actions.path_prefix(args["result_file"])
    if "expected_schema" in form:
        args["expected_schema"] = made(literal_value(plain(form.at("expected_schema"))), form.at("expected_schema"))
    return args


def _percent(node: Node, source: Source) -> Node:
    is_number = isinstance(node, Scalar) and type(node.value) in (int, float)
    if not is_number or not isinstance(node, Scalar) or not 0 <= node.value <= 100:
        message = f"'threshold' is {describe(node)}, a number from 0 to 100 is expected"
        raise source.refuse("type", message, node)
    return made(node.value, node)


def _on_incomplete(node: Node, inner: Context) -> dict[str, Any]:
    """What runs if the work is incomplete, before it is checked again."""
    if not isinstance(node, Mapping):
        commands = translate_commands(node, inner)
        return {"on_failure": {"commands": commands, "rerun": INCOMPLETE_ATTEMPTS}}
    form = read_record(ON_INCOMPLETE, node, "'on_incomplete'", inner.source)
    entries: dict[str, Any] = {} if form.get("fail_workflow", True) else {"continue_on_error": True}
    is_asked = "prompt" in form and "commands" not in form
    if "commands" in form:
        commands = translate_commands(form.at("commands"), inner)
    elif is_asked:
        commands = [{"approve": text_at(form, "prompt", inner)}]
    else:
        commands = [_check_command(form[kind], kind, inner) for kind in _ACTIONS if kind in form]
    if form.get("commit_required") and commands and not is_asked:
        commands = with_required_commit(commands, form.node)
    if commands:
        entries["on_failure"] = {"commands": commands}
        if "prompt" not in form:
            entries["on_failure"]["rerun"] = form.get("max_attempts", INCOMPLETE_ATTEMPTS)
    return entries


# -- step_validate ------------------------------------------------------------------------------


def translate_step_validate(node: Node, context: Context) -> list[dict[str, Any]]:
    """Translate `step_validate`: all commands must succeed, unless a mapping says otherwise."""
    if isinstance(node, Mapping):
        return [_counted_checks(read_record(STEP_VALIDATE, node, "'step_validate'", context.source), context)]
    nodes = node.items if isinstance(node, Sequence) else [node]
    found = []
    for each in nodes:
        if not isinstance(each, Scalar) or not isinstance(each.value, str):
            message = f"a check of 'step_validate' is {describe(each)}, a command is expected"
            raise context.source.refuse("type", message, each)
        found.append(actions.command_action(each, context))
    return found


def _counted_checks(form: Fields, context: Context) -> dict[str, Any]:
    """Checks of which a number must pass, each with its expectations."""
    # A check without a command is refused already.
    asked = [each for each in form.get("commands", ()) if not isinstance(each, Fields) or "command" in each]
    listed = [_expectation(each, context) for each in asked]
    criteria = form.get("success_criteria", "all")
    if isinstance(criteria, Fields):
        needed = criteria.get("atleast", 1)
    else:
        needed = 1 if criteria == "any" else len(listed)
    checks = made(listed, form.node)
    if any("${" in each["command"].text.replace("$${", "") for each in listed):
        context.translation.remark(checks, EVALUATED_REMARK)
    entries: dict[str, Any] = {"python": {"call": CHECK}, "args": {"checks": checks, "needed": needed}}
    attempts = form.get("max_attempts", 1)
    if attempts > 1:
        entries["retry"] = {"max_retries": attempts - 1, "delay": format_seconds(form.get("retry_delay", 5.0))}
    return entries


def _expectation(check: Node | Fields, context: Context) -> dict[str, Any]:
    node = check.at("command") if isinstance(check, Fields) else check
    assert isinstance(node, Scalar)
    is_claude = isinstance(check, Fields) and check.get("command_type") == "claude"
    if is_claude or is_prompt(node):
        message = f"{describe(node)} is a prompt, but checks with criteria run in the shell"
        hint = "use 'validate: {claude: …}'"
        raise context.source.refuse("prodigy", message, node, hint=hint)
    entries: dict[str, Any] = {"command": made(translate_text(node, context), node)}
    if isinstance(check, Fields):
        if "expect_output" in check:
            entries["expect_output"] = made(literal(_pattern(check, context.source)), check.at("expect_output"))
        if "expect_exit_code" in check:
            entries["expect_exit_code"] = check["expect_exit_code"]
    return entries


def _pattern(check: Fields, source: Source) -> str:
    pattern: str = check["expect_output"]
    try:
        re.compile(pattern)
    except re.error as error:
        message = f"'expect_output' is '{pattern}', which is not a regular expression: {error}"
        raise source.refuse("type", message, check.at("expect_output")) from None
    return pattern
