"""What happens when a step fails: `on_failure`, `on_exit_code` and `retry`.

Prodigy's documents contradict each other about `on_failure`, and its four executors contradict the documents. This
translation guarantees:

| form | what runs | then | still failing |
|---|---|---|---|
| `true` | nothing | the failure is ignored | the workflow continues |
| `false` | nothing | | the workflow fails |
| a text, a list of texts or of steps | each in turn | the step is recovered | fails |
| `{commands, strategy}` | the commands | by the strategy | fails, unless `fail_workflow: false` |
| `{shell}`, `{claude}` | the command | the step is recovered | fails, unless `fail_workflow: false` |
| the same, `max_attempts`, `max_retries` or `retry_original` | the command | the step runs again | continues (a) |
| `{claude}` in a regular workflow | the command | as with `max_attempts: 3` | continues (a) |

(a) Unless `fail_workflow: true`. In an item, in `reduce` and in `merge` it fails, unless `fail_workflow: false`.

`max_attempts` counts all runs of the step's command, `max_retries` those after the first. The strategies `recovery` and
`fallback` complete the step, and `cleanup` leaves the failure as it is. `custom` is treated as `recovery`, since
Prodigy does not evaluate what its commands decide either.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from mulligan.formats.prodigy.context import Context, StepSlots
from mulligan.formats.prodigy.forms import join_steps, read_record, require_keys
from mulligan.formats.prodigy.keys import BACKOFFS, HANDLER_FORMS, SECONDS, format_seconds, growing_delays
from mulligan.formats.prodigy.repository import with_required_commit
from mulligan.formats.prodigy.variables import agent_answer, captured_names, fill_in
from mulligan.formats.translation import made, renewed
from mulligan.formats.value_schemas import LenientRecord
from mulligan.language.keys.value_schemas import Fields, Key, ListOf, number
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, plain
from mulligan.language.text.suggestions import quote_list

# -- on_failure ------------------------------------------------------------------------------------------------------


REGULAR_ATTEMPTS = 3
_NO_COMMAND = "'on_failure' has no command: nothing runs, and the failure is ignored"
# The variables that a handler can read. The output of the failed command is in the message: see `steps`.
ERROR_VARIABLES = {
    "error.message": "error.message",
    "error.exit_code": "error.exit_code",
    "error.step": "error.step",
    "error.timestamp": "error.timestamp",
    "shell.output": "error.message",
    "last.output": "error.message",
    "test.output": "error.message",
    "CAPTURED_OUTPUT": "error.message",
    "test.exit_code": "error.exit_code",
    "test.attempt": "error.attempt",
}


class Handler(NamedTuple):
    """A translated `on_failure`, and the variables that it captures: fields of the step's output."""

    on_failure: dict[str, Any] | None = None
    continue_on_error: bool = False
    captured: tuple[str, ...] = ()


def translate_handler(node: Node, context: Context, names: Iterable[str] = ()) -> Handler:
    """Translate an `on_failure`. `names` are the variables that hold the output of the step on success."""
    form = HANDLER_FORMS.read(node, "'on_failure'", context.source)
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Handler(continue_on_error=node.value)
    inner = handler_context(context).with_variables(dict.fromkeys(names, "error.message"))
    if not isinstance(form, Fields):
        if isinstance(node, Sequence) and not node.items:
            context.translation.warn("prodigy", _NO_COMMAND, node)
            return Handler(continue_on_error=True)
        return Handler({"commands": translate_commands(node, inner)})
    return _translate_mapping(form, inner, context)


def handler_context(context: Context) -> Context:
    """The context of a handler's commands."""
    return context.with_variables(ERROR_VARIABLES).nested(is_regular=False, tracks_changes=False)


def translate_commands(node: Node, context: Context) -> list[dict[str, Any]]:
    """Translate one command or several, in any form."""
    nodes = join_steps(node, context.source, is_handlers=True) if isinstance(node, Sequence) else [node]
    found: list[dict[str, Any]] = []
    for each in nodes:
        with context.source.noting:
            found += context.commands_of(each)
    return found


def _translate_mapping(form: Fields, inner: Context, context: Context) -> Handler:
    require_keys(form, *form.node.entries, source=inner.source)
    commands, rerun = _handler_commands(form, inner), _rerun_count(form, context)
    if not commands:
        # It says only whether the workflow continues, and how often the step runs again.
        if "fail_workflow" not in form and not rerun:
            context.translation.warn("prodigy", _NO_COMMAND, form.node)
        again = {"commands": [{"shell": made("true", form.node)}], "rerun": rerun} if rerun else None
        return Handler(again, continue_on_error=not form.get("fail_workflow", bool(rerun) and not context.is_in_steps))
    if form.get("commit_required"):
        commands = with_required_commit(commands, form.node)
    entries: dict[str, Any] = {"commands": commands, "strategy": _strategy(form), "rerun": rerun or None}
    if "timeout" in form:
        entries["timeout"] = format_seconds(form["timeout"])
    if "capture" in form:
        entries["capture"] = {name: _capture_expression(node, inner) for name, node in form["capture"].items()}
    if form.get("handler_failure_fatal"):
        entries["handler_failure_fatal"] = True
    goes_on = not form.get("fail_workflow", not rerun or not context.is_in_steps)
    return Handler(entries, goes_on, tuple(form.get("capture", ())))


def _handler_commands(form: Fields, inner: Context) -> list[dict[str, Any]]:
    """The commands of a handler: `commands`, or `shell` followed by `claude`."""
    other = next((key for key in ("shell", "claude", "on_failure", "on_success") if key in form), "")
    if "commands" in form and other:
        message = f"'{other}' cannot be combined with 'commands'"
        raise inner.source.refuse("prodigy", message, form.key(other), hint="move it into 'commands'")
    if "commands" in form:
        return translate_commands(form.at("commands"), inner)
    found: list[dict[str, Any]] = []
    kinds = [kind for kind in ("shell", "claude") if kind in form]
    for kind in kinds:
        found += inner.commands_of(_single_command_step(form.node, kind, is_last=kind == kinds[-1]))
    if "on_success" in form:
        found += translate_commands(form.at("on_success"), inner)
    return found


def _single_command_step(node: Mapping, kind: str, *, is_last: bool) -> Mapping:
    """A step with this key of the mapping alone; the last one also gets the `on_failure`."""
    keys = [key for key in (kind, "on_failure") if key == kind or (is_last and key in node.entries)]
    return renewed({key: node.entries[key] for key in keys}, node.key(kind))


def _rerun_count(form: Fields, context: Context) -> int:
    """How often the step runs again after the handler."""
    if _strategy(form) not in (None, "recovery"):
        return 0
    if "max_retries" in form:
        return int(form["max_retries"])
    if "max_attempts" in form:
        return max(int(form["max_attempts"]) - 1, 1 if form.get("retry_original") else 0)
    if "retry_original" in form:
        return 1 if form["retry_original"] else 0
    is_debugged = context.is_regular and "claude" in form and "shell" not in form
    return REGULAR_ATTEMPTS - 1 if is_debugged else 0


def _strategy(form: Fields) -> str | None:
    strategy: str | None = form.get("strategy")
    return None if strategy in ("recovery", "custom") else strategy


def _capture_expression(node: Scalar, inner: Context) -> str:
    """The expression of a captured variable: the handler's output, unless the file has an expression."""
    text = fill_in(node.text, inner)
    is_expression = text.startswith("${") and text.endswith("}") and text.count("${") == 1
    return text[2:-1] if is_expression else agent_answer("output")


# -- on_exit_code ----------------------------------------------------------------------------------------------------


def exit_code_keys(form: Fields, keys: dict[str, Any], context: Context) -> dict[str, Any]:
    """The keys of a step that its `on_exit_code` changes.

    Among steps, a failure edge leads to a step for each exit code. Items have no edges: there the handler looks at the
    exit code. The step for exit code 0 runs after a success.
    """
    steps: dict[str, Node] = form.get("on_exit_code", {})
    changed: dict[str, Any] = {}
    failing = {code: step for code, step in steps.items() if int(code)}
    if "0" in steps:
        extra = handler_context(context).commands_of(steps["0"])
        changed["on_success"] = [*(keys.get("on_success") or ()), *extra]
    if failing and isinstance(context.slots, StepSlots):
        names = captured_names(form)
        changed["next"] = [_exit_code_edge(int(code), step, names, context) for code, step in failing.items()]
    elif failing:
        changed["on_failure"] = _exit_code_handler(failing, keys, context)
    return changed


def _exit_code_edge(code: int, step: Node, names: list[str], context: Context) -> dict[str, Any]:
    """A failure edge to an extra step, which nothing else leads to."""
    assert isinstance(context.slots, StepSlots)
    variables = {f"error.{field}": f"failure.{field}" for field in ("exit_code", "message", "step", "timestamp")}
    variables |= dict.fromkeys(("shell.output", "CAPTURED_OUTPUT", *names), "failure.message")
    steps = context.with_variables(variables).commands_of(step)
    if len(steps) > 1:
        message = "the step for an exit code must be a single command"
        raise context.source.refuse("prodigy", message, step, hint="remove 'commit_required'")
    context.slots.edge_targets += steps
    return {"to": steps[0]["step"], "on": "failure", "exit_codes": [code], "then": "continue"}


def _exit_code_handler(failing: dict[str, Node], keys: dict[str, Any], context: Context) -> dict[str, Any]:
    """A shell handler that branches on the exit code."""
    node = next(iter(failing.values()))
    if keys.get("on_failure"):
        message = "a step of an item cannot have both 'on_failure' and 'on_exit_code'"
        raise context.source.refuse("prodigy", message, node)
    cases = "".join(f"{code})\n{_exit_code_script(step, context)}\n;;\n" for code, step in failing.items())
    return {"shell": made(f'case "$MULLIGAN_RETURN_CODE" in\n{cases}*) exit 1 ;;\nesac', node)}


def _exit_code_script(step: Node, context: Context) -> str:
    found = handler_context(context).commands_of(step)
    script = found[0].get("shell") if len(found) == 1 and set(found[0]) == {"shell"} else None
    if not isinstance(script, Scalar):
        message = "in an item, the step for an exit code must be a plain shell command"
        raise context.source.refuse("prodigy", message, step, hint="use 'on_failure'")
    return script.text


# -- retry -----------------------------------------------------------------------------------------------------------


ATTEMPTS_DEFAULT = 3
_RETRY_PATTERNS = {
    "network": "(?i)network|connection|unreachable|dns",
    # Also our own message about a timeout.
    "timeout": "(?i)timeout|timed out|took longer than",
    "server_error": "(?i)server error|internal error|\\b50[0-9]\\b|service unavailable|bad gateway",
    "rate_limit": "(?i)rate limit|too many requests|\\b429\\b",
}
LINEAR = LenientRecord("linear", {"increment": Key(SECONDS, "by how much each delay grows", is_required=True)})
EXPONENTIAL = LenientRecord(
    "exponential", {"base": Key(number(1, 1000), "factor by which each delay grows (default 2)")}
)
CUSTOM = LenientRecord("custom", {"delays": Key(ListOf(SECONDS, at_least=1), "one for each retry", is_required=True)})


def translate_retry(form: Fields, source: Source) -> dict[str, Any] | int:
    """Translate `retry`. `attempts` counts all attempts of the step.

    Delays that no factor describes (linear, Fibonacci, custom) are listed, one for each retry. The budget counts the
    delays alone, so the number of retries that fit into it is known beforehand.
    """
    require_keys(form, *form.node.entries, source=source)
    retries = form.get("attempts", ATTEMPTS_DEFAULT) - 1
    limit = form.get("max_delay", 30.0)
    delays = [min(limit, delay) for delay in _uncapped_delays(form, retries, source)]
    if "retry_budget" in form:
        retries = sum(total <= form["retry_budget"] for total in accumulate(delays))
    if not retries:
        return 0
    backoff = _backoff_keys(delays[:retries], form)
    if not form.get("retry_on"):
        return {"max_retries": retries, **backoff}
    for each in form["retry_on"]:
        if isinstance(each, Fields):
            require_keys(each, "pattern", source=source)
    patterns = [
        _RETRY_PATTERNS[each] if isinstance(each, str) else made(each["pattern"], each.at("pattern"))
        for each in form["retry_on"]
    ]
    rules = [{"pattern": pattern, "max_retries": retries, **backoff} for pattern in patterns]
    return {"rules": rules, "max_attempts": retries + 1}


def _backoff_keys(delays: list[float], form: Fields) -> dict[str, Any]:
    distinct = list(dict.fromkeys(delays))
    entries: dict[str, Any] = (
        {"delay": format_seconds(delays[0])}
        if len(distinct) == 1
        else {"delays": [format_seconds(delay) for delay in delays]}
    )
    if form.get("jitter"):
        # Prodigy spreads a delay by half of the factor to either side.
        entries["jitter"] = form.get("jitter_factor", 0.3) / 2
    return entries


def _uncapped_delays(form: Fields, retries: int, source: Source) -> list[float]:
    first = form.get("initial_delay", 1.0)
    kind, read = _backoff_kind(form, source)
    options = read.values if read else {}
    if options.get("delays"):
        named = list(options["delays"])
        return (named + [named[-1]] * retries)[:retries]
    growth = options.get("increment", first) if kind == "linear" else options.get("base", 2.0)
    return growing_delays(kind, first, growth, retries)


def _backoff_kind(form: Fields, source: Source) -> tuple[str, Fields | None]:
    """The kind of the backoff, and its options."""
    backoff = form.get("backoff", "exponential")
    if isinstance(backoff, str):
        return backoff, None
    if len(backoff.node.entries) != 1:
        message = f"'backoff' has {len(backoff.node.entries)} kinds, but only one is allowed"
        raise source.refuse("prodigy", message, backoff.node, hint=f"use one of {quote_list(BACKOFFS)}")
    require_keys(backoff, *backoff.node.entries, source=source)
    kind = next(iter(backoff.values))
    node = backoff.at(kind)
    shape = {"linear": LINEAR, "exponential": EXPONENTIAL, "custom": CUSTOM}.get(kind)
    if shape is None or plain(node) in (None, {}):
        return kind, None
    return kind, read_record(shape, node, f"'{kind}'", source)
