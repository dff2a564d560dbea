"""The keys of a step: those of a file, some of them as Python writes them."""

from __future__ import annotations

from mulligan.flows.callbacks import command_for, is_function
from mulligan.flows.context import Site, refuse
from mulligan.flows.references import SUCCESS, Reference, merge, reads_of, source_of
from mulligan.flows.retries import Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal, TypedDict

    from mulligan.flows.recording import Record, Recorder
    from mulligan.flows.retries import Duration

    class CommandKeys(TypedDict, total=False):
        """The keys of everything that runs."""

        timeout: Duration
        deadline: Duration
        retry: Retry | Sequence[Retry | dict[str, Any]] | dict[str, Any] | int | str | bool
        on_failure: Any
        on_success: Any
        validate: Any
        handler_failure_fatal: bool
        continue_on_error: bool
        capture: Literal["text", "json", "lines"]
        env: Mapping[str, Any]
        cwd: object
        log_level: Literal["debug", "info", "warning", "error", "critical"]
        resources: Mapping[str, Any]
        on_lost: Literal["rerun", "fail"]
        affinity: Literal["host", "any"]
        breaker: str | Mapping[str, Any]
        logs: Mapping[str, Any]

    class StepKeys(CommandKeys, total=False):
        """The keys of a step in a file, and `after`: steps that must end before it starts."""

        description: str
        after: Any
        when: object
        next: Any
        take: Literal["all", "first"]
        no_match: Literal["record", "fail"]
        join: Literal["any", "all", "first", "each"]
        triage: bool | Mapping[str, Any]
        undo: Any
        max_visits: int
        at_max_visits: Literal["loop_limit", "last_failure"]
        start: bool
        fail_fast: Literal["on_critical", "always", "never"] | bool
        reads: Sequence[str] | str
        writes: Sequence[str] | str
        cache: bool | Mapping[str, Any]
        budget: Mapping[str, Any]
        coverage: Mapping[str, Mapping[str, str]]

    class FunctionKeys(StepKeys, total=False):
        """The keys of a step that is a function: also `name`, `requirements`, and `python`, its interpreter."""

        name: str
        requirements: Sequence[str]
        python: str
        on: Mapping[str, bool]
        # In a program: whether the program's own process runs it; and the name of one call.
        inline: bool
        key: str | int

    Keys = dict[str, tuple[Any, Site]]

# Keys of a step that belong to its function: the packages and the interpreter that it needs.
ENVIRONMENT = ("requirements", "python")
# What says how a program calls the step, and is no key of the step.
OF_CALLS = frozenset({"inline", "key"})
# What the process of a program cannot do for a step that it runs itself.
_NOT_INLINE = {
    "timeout": "a timeout would end the program with it",
    "resources": "it uses what the program has",
    "requirements": "it has the packages of the program",
    "python": "it has the interpreter of the program",
    **dict.fromkeys(("env", "cwd"), "it runs in the process of the program, which has its own"),
    "logs": "what it prints is in the log of the program",
    **dict.fromkeys(("cache", "breaker"), "the program runs it without asking anybody"),
    **dict.fromkeys(("validate", "on_success"), "the program goes on at once"),
    "writes": "its files are not looked at",
    "on": "it gets no client of Dask",
}
# Keys that are commands, each with what the command may read as its first argument.
COMMANDS = {"on_failure": "error", "on_success": "output", "validate": "output", "undo": "output"}
# Keys of a file that a flow says in another way.
_OTHERWISE = {
    "args": "call the step with its arguments",
    "do": "write step.map(items)",
    "map": "write step.map(items)",
    "matrix": "write step.matrix({…})",
    "needs": "write after=[…] with what other steps returned",
    "step": "write name=",
}
# In a map these belong to the function, which runs once per item.
_ITEM_KEYS = frozenset({"on_failure", "on_success", "validate", "handler_failure_fatal"})


def located(keys: Mapping[str, Any], site: Site) -> Keys:
    return {name: (value, site) for name, value in keys.items()}


def refuse_limits(name: str, keys: Keys) -> None:
    """Refuse what an inline step cannot have."""
    for key, reason in _NOT_INLINE.items():
        if key in keys and keys[key][0] is not None:
            message = f"the inline step '{name}' has '{key}', and {reason}"
            hint = "leave out 'inline': then a worker runs it in a process of its own"
            refuse("inline", message, hint=hint, word=key, site=keys[key][1])


def apply_keys(recorder: Recorder, record: Record, keys: Keys) -> None:
    """Put the keys of a step into its record."""
    when = _conjunction([*recorder.conditions, *([recorder.condition(keys["when"][0])] if "when" in keys else [])])
    if when is not None:
        record.keys["when"] = (source_of(when), keys["when"][1] if "when" in keys else record.site)
        merge(record.reads, {step: on for step, on in reads_of(when).items() if step != record.name})
    for name, (value, site) in keys.items():
        if name in ("when", "name"):
            continue
        if name in _OTHERWISE:
            refuse(
                "unknown_key", f"'{name}' is not a key of a step in a flow", hint=_OTHERWISE[name], word=name, site=site
            )
        if name == "after":
            _add_after(recorder, record, value)
        elif name == "next":
            for edge in value if isinstance(value, list | tuple) else [value]:
                _add_edge(recorder, record, edge, site)
        elif name in COMMANDS:
            put_key(record, name, command(recorder, record, value, name), site)
        elif name == "retry":
            is_plain = isinstance(value, Retry) and "recovery_script" not in value.keys and "rules" not in value.keys
            made = recorder.rule(value, record.reads) if is_plain else _retry(recorder, record, value)
            record.keys[name] = (made, site)
        else:
            put_key(record, name, recorder.value(value, record.reads), site)


def put_key(record: Record, name: str, value: Any, site: Site) -> None:
    """Set a key of the step, or of the command of a map that runs for each item."""
    if name in _ITEM_KEYS and "do" in record.action:
        record.action["do"][0][name] = value
    else:
        record.keys[name] = (value, site)


def _conjunction(conditions: list[Reference]) -> Reference | None:
    found: Reference | None = None
    for one in conditions:
        found = one if found is None else found & one
    return found


def _add_after(recorder: Recorder, record: Record, value: Any) -> None:
    for one in value if isinstance(value, list | tuple | set) else [value]:
        if isinstance(one, Reference):
            merge(record.reads, reads_of(one))
        else:
            merge(record.reads, {recorder.record_of(one, "'after'").name: SUCCESS})


def _add_edge(recorder: Recorder, record: Record, edge: Any, site: Site) -> None:
    keys = dict(edge) if isinstance(edge, dict) else {"to": edge}
    if "to" not in keys:
        refuse("missing_key", "an edge has no target", hint="add 'to'", word="next", site=site)
    target = keys.pop("to")
    recorder.route(record, target, keys, site)


def _retry(recorder: Recorder, record: Record, value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = Retry(rules=list(value))
    if isinstance(value, Retry):
        value = value.keys
    if not isinstance(value, dict):
        return recorder.value(value, record.reads)
    found = dict(value)
    if "rules" in found:
        found["rules"] = [_retry(recorder, record, rule) for rule in found["rules"]]
    if "recovery_script" in found:
        found["recovery_script"] = command(recorder, record, found["recovery_script"], "recovery_script")
    return recorder.value(found, record.reads)


def command(recorder: Recorder, record: Record, value: Any, key: str) -> Any:
    """A command as a file has it. A function gets the arguments of the step by name, and what happened."""
    if isinstance(value, Reference):
        return recorder.value(value, record.reads)
    if is_function(value):
        made = command_of_function(record, value, key)
        for name, (one, _) in getattr(value, "keys", {}).items():
            if name in ENVIRONMENT:
                made["python"][name] = one
            elif name not in ("name", "after", "when", "next"):
                made[name] = recorder.value(one, record.reads)
        return made
    if isinstance(value, list | tuple):
        return [command(recorder, record, one, key) for one in value]
    if isinstance(value, dict):
        commands = {"commands": command(recorder, record, value["commands"], key)} if "commands" in value else {}
        return {**recorder.value({k: v for k, v in value.items() if k != "commands"}, record.reads), **commands}
    return recorder.value(value, record.reads)


def command_of_function(record: Record, function: Any, key: str) -> dict[str, Any]:
    """A command that calls a function with the arguments of the step by name, and with what happened.

    It runs in the environment of the step: its module is most likely the same.
    """
    # A map is undone as a whole, so there is no item.
    given = {} if key == "undo" and "do" in record.action else arguments_of(record)
    made = command_for(function, f"'{key}'", given=given, first=COMMANDS.get(key, "error"))
    python = _command_of(record).get("python", {})
    made["python"] = {**made["python"], **{name: python[name] for name in ENVIRONMENT if name in python}}
    return made


def arguments_of(record: Record) -> dict[str, Any]:
    """The arguments of the step, by name: its commands may take them, too."""
    found: dict[str, Any] = _command_of(record).get("args", {})
    return found


def _command_of(record: Record) -> dict[str, Any]:
    """What calls the function of the step: in a map, the command that runs for each item."""
    do: list[dict[str, Any]] | None = record.action.get("do")
    return do[0] if do else record.action
