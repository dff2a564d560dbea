"""MapReduce workflows: setup, map, reduce and merge become steps that run one after the other.

The list of items is made in a worker, with Prodigy's own filters and paths. Each item works in its own worktree, which
is merged when its last command has completed.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mulligan.formats.prodigy.context import Context, StepSlots, TranslatedSteps, step_name_of
from mulligan.formats.prodigy.environment import read_number, translate_environment
from mulligan.formats.prodigy.forms import as_mapping, is_step, join_steps, parse_text
from mulligan.formats.prodigy.frame import build_workflow, step_list, with_timeout, wrap_steps
from mulligan.formats.prodigy.keys import LISTS, MAPREDUCE, POLICY_KEYS, SECONDS, format_seconds, growing_delays
from mulligan.formats.prodigy.parameters import translate_parameters
from mulligan.formats.prodigy.queries import parse_filter, parse_order, parse_path
from mulligan.formats.prodigy.repository import Worktree, merge_item, open_item_worktree
from mulligan.formats.prodigy.steps import translate_step, translate_steps
from mulligan.formats.prodigy.variables import text_at
from mulligan.formats.translation import Translation, literal, literal_value, made, mapping, renewed, sequence
from mulligan.language.keys.value_schemas import Fields, whole
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, plain

# -- error_policy ----------------------------------------------------------------------------------------------------


_ITEM_ATTEMPTS_DEFAULT = 3
_BREAKER_DEFAULTS = {"failure_threshold": 5, "timeout": 30.0}
_ONE_PROBE = {
    "success_threshold": "'success_threshold' is ignored: one success closes a breaker",
    "half_open_requests": "'half_open_requests' is ignored: a half-open breaker lets one command through at a time",
}


class ItemPolicy(NamedTuple):
    """The keys that an error policy adds to the map, to its step, to the commands of its items, and to the file."""

    of_map: dict[str, Any]
    of_step: dict[str, Any]
    of_commands: dict[str, Any]
    breakers: dict[str, Any]


def translate_policy(form: Fields, workflow: str, source: Source) -> ItemPolicy:
    """Translate `error_policy`, and the same keys at the top of the workflow.

    Prodigy reads the policy and never applies it; here it works as documented. The dead letter queue is the list of
    failed items: `mulligan items RUN STEP` shows it, and `--retry` runs them again.
    """
    own: Fields | None = form.get("error_policy")
    # Each key with its value and its node.
    keys = {key: (form[key], form.key(key)) for key in POLICY_KEYS if key in form}
    for key in own.values if own else ():
        if key in keys:
            message = f"'{key}' is also in 'error_policy'"
            raise source.refuse("prodigy", message, keys[key][1], hint="remove one of them")
    keys |= {key: (own[key], own.key(key)) for key in POLICY_KEYS if key in own} if own else {}
    breakers, of_commands = _breaker_keys(own, workflow, source)
    return ItemPolicy(_map_keys(keys, source), _retry_keys(own, keys), of_commands, breakers)


def _map_keys(keys: dict[str, tuple[Any, Scalar]], source: Source) -> dict[str, Any]:
    """Failed items are collected. If there is a limit, no further item starts once it is exceeded."""
    way = keys["on_item_failure"][0] if "on_item_failure" in keys else "dlq"
    if isinstance(way, Fields) or way == "custom":
        message, hint = (
            "'custom' would be code inside Prodigy, which has none",
            "write 'dlq', 'retry', 'skip' or 'stop'",
        )
        raise source.refuse("prodigy", message, keys["on_item_failure"][1], hint=hint)
    bounds: dict[str, Any] = {key: keys[key][0] for key in ("max_failures", "failure_threshold") if key in keys}
    if way == "stop" or ("continue_on_failure" in keys and keys["continue_on_failure"][0] is False):
        for key in bounds:
            source.warn("prodigy", f"'{key}' has no effect: the first failure stops the map", keys[key][1])
        return {"on_item_failure": "stop"}
    if "max_failures" in bounds:
        # Prodigy stops at this number, we stop beyond it.
        bounds["max_failures"] = made(bounds["max_failures"] - 1, keys["max_failures"][1])
    return {"on_item_failure": "stop" if bounds else "collect", **bounds}


def _retry_keys(own: Fields | None, keys: dict[str, tuple[Any, Scalar]]) -> dict[str, Any]:
    """The `retry` of the map, which applies to each command without its own."""
    config: Fields | None = own.get("retry_config") if own else None
    if config is None and ("on_item_failure" not in keys or keys["on_item_failure"][0] != "retry"):
        return {}
    retries = (config.get("max_attempts", _ITEM_ATTEMPTS_DEFAULT) if config else _ITEM_ATTEMPTS_DEFAULT) - 1
    return {"retry": {"max_retries": retries, **_item_backoff_keys(config, retries)} if retries else 0}


def _item_backoff_keys(config: Fields | None, retries: int) -> dict[str, Any]:
    form: Fields | None = config.get("backoff") if config else None
    kind = next(iter(form.values), "exponential") if form else "exponential"
    options: dict[str, Any] = form[kind].values if form and isinstance(form.get(kind), Fields) else {}
    if kind == "fixed":
        return {"delay": format_seconds(options.get("delay", 1.0))}
    first = options.get("initial", 1.0)
    if kind == "exponential":
        return {"delay": format_seconds(first), "factor": options.get("multiplier", 2.0)}
    return {"delays": [*map(format_seconds, growing_delays(kind, first, options.get("increment", 0.0), retries))]}


def _breaker_keys(own: Fields | None, workflow: str, source: Source) -> tuple[dict[str, Any], dict[str, Any]]:
    form: Fields | None = own.get("circuit_breaker") if own else None
    if form is None:
        return {}, {}
    for key, why in _ONE_PROBE.items():
        if key in form and form[key] != 1:
            source.warn("prodigy", why, form.key(key))
    name = f"{step_name_of(workflow)}-items"
    failures, reset = (form.get(key, default) for key, default in _BREAKER_DEFAULTS.items())
    return {name: made({"failures": failures, "reset": format_seconds(reset)}, form.node)}, {"breaker": name}


# -- setup -----------------------------------------------------------------------------------------------------------


CAPTURE = "mulligan.formats.prodigy.runtime:capture_variables"
_STREAMS = {"stderr": "stderr", "both": "both", "combined": "both"}


def translate_setup(form: Fields, context: Context) -> TranslatedSteps:
    """Translate `setup`: its steps, and the variables that are captured from them."""
    own: Any = form["setup"]
    steps = step_list(form.at("setup"), "setup", context.source)
    if not isinstance(own, Fields):
        return translate_steps(steps, context)
    limit = read_number(own, "timeout", SECONDS, context.env, context.source)
    asked = _CaptureRules(own, steps, context.source)
    done = translate_steps(asked.steps, context)
    return asked.taken(TranslatedSteps(with_timeout(done.commands, limit), done.context))


class _CaptureRules:
    """The rules of `capture_outputs`, and the steps, each with a capture if a rule needs its output."""

    def __init__(self, own: Fields, steps: Sequence, source: Source) -> None:
        self.rules: dict[str, Any] = own.get("capture_outputs", {})
        self.node = own.node.get("capture_outputs")
        self.source = source
        # By rule: the variable that holds the output of its command.
        self.variables: dict[str, str] = {}
        self.steps = self._asked(steps) if self.rules else steps

    def _asked(self, steps: Sequence) -> Sequence:
        found = join_steps(steps, self.source)
        streams: dict[int, tuple[str, str]] = {}
        for name, rule in self.rules.items():
            index = rule if isinstance(rule, int) else rule.get("command_index", 0)
            stream = rule.get("source", "stdout") if isinstance(rule, Fields) else "stdout"
            other, used = streams.setdefault(index, (name, stream))
            message, hint = f"'{name}' refers to command {index}, but the setup has {len(found)} (counted from 0)", ""
            if (used == "stderr") != (stream == "stderr"):
                message = f"'{name}' captures {stream} of command {index}, but '{other}' captures its {used}"
                hint = "write '2> FILE' in the command, and print the file in a separate command"
            elif index < len(found):
                found[index] = self._capturing(found[index], name, _STREAMS.get(stream))
                continue
            assert isinstance(self.node, Mapping)
            self.source.note(self.source.refuse("prodigy", message, self.node.key(name), hint=hint))
        return sequence(found, steps)

    def _capturing(self, step: Node, name: str, stream: str | None) -> Node:
        if not is_step(step):
            return step
        owner = as_mapping(step)
        asked = {key: value for key, value in (("capture", name), ("capture_streams", stream)) if value is not None}
        whole = renewed({**mapping(asked, owner).entries, **owner.entries}, owner)
        captured = whole.get("capture")
        self.variables[name] = captured.text if isinstance(captured, Scalar) else name
        return whole

    def taken(self, done: TranslatedSteps) -> TranslatedSteps:
        """The steps, followed by one that extracts variables if a rule asks for more than the whole output."""
        context = done.context
        outputs = {name: context.variables.get(variable) for name, variable in self.variables.items()}
        context = context.with_variables({name: output for name, output in outputs.items() if output})
        rules = {
            name: self._rule(rule)
            for name, rule in self.rules.items()
            if isinstance(rule, Fields) and not set(rule.values) <= {"command_index", "source"}
        }
        if not rules:
            return TranslatedSteps(done.commands, context)
        slot = context.slots.take("captured")
        given = {name: f"${{{outputs[name]}}}" for name in rules if outputs.get(name)}
        assert self.node is not None
        call = made({"call": CAPTURE}, self.node)
        step = {"step": slot.name, "python": call, "args": {"outputs": given, "rules": rules}}
        return TranslatedSteps(
            [*done.commands, step], context.with_variables({name: f'{slot.output}["{name}"]' for name in rules})
        )

    def _rule(self, rule: Fields) -> Node:
        """The keys of a rule as literal values, for the worker."""
        path = rule.node.get("json_path")
        if isinstance(path, Scalar):
            parse_text(path, parse_path, self.source)
        return made({key: literal_value(plain(value)) for key, (_, value) in rule.node.entries.items()}, rule.node)


# -- the workflow ----------------------------------------------------------------------------------------------------


LISTER = "mulligan.formats.prodigy.runtime:list_items"
RESULTS = "mulligan.formats.prodigy.runtime:map_results"
_READS_RESULTS = re.compile(r"\$\{map\.results\b")
_READS_TOTAL = re.compile(r"\$\{item_total\b")
_ITEM_ID = "('item_' + string(index))"
MAX_PARALLEL_DEFAULT = 10
AGENT_SECONDS_DEFAULT = 600.0
_KINDS = {"shell": "shell", "agent": "claude", "python": "write_file"}


def is_mapreduce(root: Mapping) -> bool:
    """Whether the file has a map or a mode. A regular workflow may have a mode as well."""
    return "map" in root.entries or ("mode" in root.entries and not any(key in root.entries for key in LISTS))


def translate_mapreduce(root: Mapping, translation: Translation) -> Mapping:
    """Translate a MapReduce workflow."""
    # Prodigy's first documents have a plain list of steps in place of `setup`.
    lists = [key for key in LISTS if key in root.entries]
    if len(lists) == 1 and "setup" not in root.entries:
        root = renewed({"setup" if key == lists[0] else key: entry for key, entry in root.entries.items()}, root)
    form: Fields = MAPREDUCE.read(root, "the workflow", translation.source)
    start = Context(StepSlots(), translation, translate_step)
    inputs, context, checks = translate_parameters(form, start)
    name = form.node.get("name")
    policy = translate_policy(form, name.text if isinstance(name, Scalar) else "mapreduce", translation.source)
    environment = translate_environment(form, context)
    head, steps = wrap_steps(
        form, context=context, environment=environment, body=lambda run: _phases(form, policy, run)
    )
    tree = {**head, "breakers": policy.breakers or None, "inputs": {**head["inputs"], **inputs}}
    return build_workflow(tree, [*checks, *steps], context, root)


def _phases(form: Fields, policy: ItemPolicy, run: Worktree) -> TranslatedSteps:
    context, source = run.context, run.context.source
    steps: list[dict[str, Any]] = []
    if "setup" in form:
        with source.noting:
            steps, context = translate_setup(form, context)
    if "map" in form and {"agent_template", "input"} <= form["map"].values.keys():
        with source.noting:
            mapped, context = _map_steps(form["map"], policy, run, context)
            steps = [*steps, *mapped]
    if "reduce" in form:
        after, context = translate_steps(step_list(form.at("reduce"), "reduce", source), context)
        steps = [*steps, *after]
    return TranslatedSteps(steps, context)


# -- the map ---------------------------------------------------------------------------------------------------------


def _map_steps(form: Fields, policy: ItemPolicy, run: Worktree, context: Context) -> TranslatedSteps:
    """The map; before it a step that lists its items if they are counted, behind it one that makes `map.results`."""
    slot, source = context.slots.take("map"), context.source
    over: Any = _lister(form, run, context)
    before: list[dict[str, Any]] = []
    if _READS_TOTAL.search(source.text):
        listed = context.slots.take("map_items")
        before = [{"step": listed.name, **over}]
        over = made(f"${{{listed.output}}}", form.at("input"))
        context = context.with_variables({"item_total": _counted(listed.output, form)})
    keys = {
        "over": over,
        "max_parallel": read_number(form, "max_parallel", whole(1), context.env, source) or MAX_PARALLEL_DEFAULT,
        "offset": form.get("offset"),
        "max_items": form.get("max_items"),
        **policy.of_map,
    }
    timeouts, config = _timeouts(form, context), form.get("timeout_config")
    of_timeouts = "" if config is None else config.get("timeout_policy", "")
    # By this policy the timeout of an agent applies to each of its commands, and not to all of them together.
    if "" in timeouts and of_timeouts.lower().replace("_", "") != "percommand":
        keys["item_timeout"] = format_seconds(timeouts.pop(""))
    do = _item_commands(form, policy, run, context, timeouts)
    again = {"retry": form["retry_on_failure"]} if form.get("retry_on_failure") else {}
    step = {"step": slot.name, "map": made(keys, form.node), "do": do, **again, **policy.of_step}
    variables = {"total": "total", "successful": "succeeded", "failed": "failed"}
    context = context.with_variables({f"map.{name}": f"{slot.output}.{ours}" for name, ours in variables.items()})
    if not _READS_RESULTS.search(source.text):
        return TranslatedSteps([*before, step], context)
    results = context.slots.take("map_results")
    args = {name: f"${{{slot.output}.{name}}}" for name in ("results", "failures")}
    behind = {"step": results.name, "python": {"call": RESULTS}, "args": args}
    return TranslatedSteps([*before, step, behind], context.with_variables({"map.results": results.output}))


def _counted(items: str, form: Fields) -> str:
    """How many items of a list the map takes."""
    count, offset, most = f"size({items})", form.get("offset", 0), form.get("max_items")
    if offset:
        count = f"({count} > {offset} ? {count} - {offset} : 0)"
    return count if most is None else f"({count} < {most} ? {count} : {most})"


def _lister(form: Fields, run: Worktree, context: Context) -> dict[str, Any]:
    args: dict[str, Any] = {"input": text_at(form, "input", context), "origin": f"${{{run.work}.checkout}}"}
    for key, reads in (("json_path", parse_path), ("filter", parse_filter), ("sort_by", parse_order)):
        where = form.node.get(key)
        if key in form and isinstance(where, Scalar) and where.text.strip():
            with context.source.noting:
                parse_text(where, reads, context.source)
                # As literal text, in which nothing is filled in.
                args[key] = made(literal(where.text), where)
    args["distinct"] = form.get("distinct")
    return {"python": {"call": LISTER}, "args": args, "cwd": context.cwd}


def _item_commands(
    form: Fields, policy: ItemPolicy, run: Worktree, context: Context, timeouts: dict[str, float]
) -> list[dict[str, Any]]:
    """The commands of an item: open its worktree, work in it, merge it."""
    template, source = form.at("agent_template"), context.source
    variables = {
        "item": "item",
        # In Prodigy a printed line is an object with this one field.
        "item.item": "(type(item) == map ? item.item : item)",
        "item_json": "item",
        "item_id": _ITEM_ID,
        "item_index": "index",
        "index": "index",
    }
    opened = open_item_worktree(run, context.of_item(variables), template)
    done = translate_steps(step_list(template, "agent_template", source), opened.context).commands
    own = []
    for command in done:
        kind = next((theirs for ours, theirs in _KINDS.items() if ours in command), "")
        seconds = timeouts.get(kind, timeouts.get(""))
        limit = {"timeout": format_seconds(seconds)} if seconds and "timeout" not in command else {}
        own.append({**command, **limit, **policy.of_commands})
    item_id = _ITEM_ID if _READS_RESULTS.search(source.text) else ""
    return [opened.command, *own, merge_item(run, opened, template, item_id=item_id)]


# -- times -----------------------------------------------------------------------------------------------------------


def _timeouts(form: Fields, context: Context) -> dict[str, float]:
    """The timeout of a command by its kind; that of an item is under "", or that of all other commands."""
    found: dict[str, float] = {}
    config: Fields | None = form.get("timeout_config")
    if config is not None:
        found = {"": AGENT_SECONDS_DEFAULT, **config.get("command_timeouts", {})}
        _warn_of_timeouts(config, context.source)
    if "timeout_per_agent" in form:
        found[""] = form["timeout_per_agent"]
    for where in (config, form):
        if where is not None and "agent_timeout_secs" in where:
            found[""] = float(read_number(where, "agent_timeout_secs", whole(1), context.env, context.source))
    return found


def _warn_of_timeouts(config: Fields, source: Source) -> None:
    if config.get("timeout_action", "Dlq").lower() == "fail":
        message = "'timeout_action: Fail' is ignored: a timeout fails its item; use 'max_failures' to fail the map"
        source.warn("prodigy", message, config.key("timeout_action"))
    if "cleanup_grace_period_secs" in config:
        message = "'cleanup_grace_period_secs' is ignored: a command that timed out has 10s to end"
        source.warn("prodigy", message, config.key("cleanup_grace_period_secs"))
