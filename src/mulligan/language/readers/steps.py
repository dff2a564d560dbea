"""Reads steps into drafts, whose links are still names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.core.model.actions import TABLE, shell_command, traits_of
from mulligan.core.model.workflow import (
    END,
    END_TIMEOUT_SECONDS,
    Action,
    Command,
    Expression,
    Resources,
    Step,
    Template,
)
from mulligan.core.state.scope import reads_secrets
from mulligan.language.keys.action_keys import ACTIONS
from mulligan.language.keys.value_schemas import NAME, Fields
from mulligan.language.keys.workflow_keys import END as END_SHAPE
from mulligan.language.keys.workflow_keys import ITEM_WORKSPACE, STEP
from mulligan.language.matrices.matrix import base_name, read_matrix, step_names, written_names
from mulligan.language.matrices.matrix_binding import Values, binder
from mulligan.language.matrices.matrix_limits import keys_with_matrix_values, limits_per_step, without_keys
from mulligan.language.readers.actions import read_plain_action
from mulligan.language.readers.budgets import read_budget, warn_of_idle_budget
from mulligan.language.readers.commands import (
    action_field,
    command_fields,
    read_command,
    read_command_of_item,
    read_commands,
)
from mulligan.language.readers.edges import EdgeDraft, NeedDraft, read_needs, read_next
from mulligan.language.readers.groups import with_retry_of_group
from mulligan.language.readers.maps import read_map
from mulligan.language.readers.program_steps import check_program
from mulligan.language.readers.settings import Settings
from mulligan.language.readers.step_files import StepFiles, files_per_step, read_files, with_files
from mulligan.language.readers.triage import read_triage
from mulligan.language.readers.workspace_steps import WORK, workspace_action
from mulligan.language.scope import ATTEMPT_NAMES, Draft, Scope, read_condition, read_template
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Source, describe, shorten
from mulligan.language.text.suggestions import closest_key

_COPIED_KEYS = ("take", "no_match", "join", "max_visits", "at_max_visits", "fail_fast")
# All keys that `_graph_fields` reads. Most steps have none of them.
_GRAPH_KEYS = frozenset(
    {*_COPIED_KEYS, "when", "triage", "undo", "reads", "writes", "cache", "start", "budget", "coverage"}
)
# Those that say what a step runs, of the kinds that have no other part in it, and what it waits for.
_PLAIN_ACTIONS = frozenset({"shell", "python"})
_PLAIN_KEYS = _PLAIN_ACTIONS | {"step", "needs"}
# On a map step these are the defaults of its commands, not settings of the step itself.
_COMMAND_DEFAULTS = ("rules", "max_attempts", "timeout", "resources", "breaker", "breaker_key", "logs")


class StepDraft(msgspec.Struct):
    """A step as written: `step` without links, the links by name, and one name per matrix combination."""

    name: str
    node: Mapping
    name_node: Scalar
    step: Step
    needs: list[NeedDraft] | None = None
    edges: list[EdgeDraft] = []
    combinations: list[Values] = []
    names: list[str] = []
    # The files of each step of a matrix, if they differ.
    files: list[StepFiles] = []
    # The resources and timeout of each step of a matrix, if they differ.
    limits: list[dict[str, Any]] = []

    def instances(self) -> Iterator[tuple[Step, Values]]:
        """The steps of this draft: one, or one per combination of its matrix."""
        if not self.combinations:
            yield self.step, {}
            return
        bind = binder(self.step)
        for index, (name, values) in enumerate(zip(self.names, self.combinations, strict=True)):
            bound = bind(values) if bind else self.step
            if self.files:
                bound = with_files(bound, self.files[index])
            if self.limits:
                bound = msgspec.structs.replace(bound, **self.limits[index])
            yield msgspec.structs.replace(bound, name=name, matrix=values, sweep=self.name), values


def read_step(node: Node, draft: Draft, settings: Settings) -> StepDraft | None:
    """A step of the list. Problems are noted; None if it has no name."""
    try:  # `source.noting` would take longer, and this runs for every step
        return _step(node, draft, settings)
    except Refusal as refusal:
        draft.source.note(refusal)
    # A matrix has other names than the one that is written.
    is_matrix = isinstance(node, Mapping) and "matrix" in node.entries
    draft.source.note_unread(node, "" if is_matrix else "step")
    return None


def _step(node: Node, draft: Draft, settings: Settings) -> StepDraft:
    source = draft.source
    if not isinstance(node, Mapping):
        message = f"an entry of 'steps' is {describe(node)}, a mapping with 'step: NAME' is expected"
        raise source.refuse("type", message, node)
    if node.entries.keys() <= _PLAIN_KEYS and (plain := _plain_step(node, draft, settings)) is not None:
        return plain
    name_node = _name_node(node, draft)
    node = with_retry_of_group(node, source)
    name = name_node.text
    label = f"step '{shorten(name)}'"
    fields: Fields = STEP.read(without_keys(node, keys_with_matrix_values(node)), label, source)
    scope = Scope(draft, label, reader=name).for_fields(fields)
    name, names, combinations = _read_names(name_node, fields, scope)
    # The values themselves are asked for keys that most steps do not have: a call less for each.
    present = fields.values
    if "matrix" in present:
        values = combinations[0] if combinations else written_names(fields.at("matrix"))
        scope = msgspec.structs.replace(scope, matrix=frozenset(values))
    step = Step(name=name, **_step_fields(fields, label, scope, settings))
    if step.budget is not None:
        warn_of_idle_budget(fields, [step], label, source)
    found = StepDraft(name, node, name_node, step, combinations=combinations, names=names)
    if combinations:
        found.files = files_per_step(fields, combinations, scope)
        with scope.noting:
            found.limits = limits_per_step(node, step, combinations, scope)
    if "needs" in present:
        found.needs = read_needs(fields.at("needs"), scope)
    if "next" in present:
        found.edges = read_next(fields.at("next"), scope)
    return found


def _plain_step(node: Mapping, draft: Draft, settings: Settings) -> StepDraft | None:
    """A step that says nothing but its action and what it needs; None if it has to be read at length.

    The rest of it is the same for all such steps of a file, so one is read at length.
    """
    name_node = node.get("step")
    kinds = node.entries.keys() & _PLAIN_ACTIONS
    if len(kinds) != 1 or not isinstance(name_node, Scalar) or not name_node.is_text:
        return None
    (kind,) = kinds
    text, name = node.entries[kind][1], name_node.text
    if not isinstance(text, Scalar):
        return None
    if settings.retry is not None or settings.breaker_key is not None or not NAME.fullmatch(name):
        return None
    scope = Scope(draft, f"step '{shorten(name)}'", reader=name, names=ATTEMPT_NAMES)
    if draft.plain_step is None:
        fields = Fields(node, {})
        draft.plain_step = Step(**command_fields(fields, scope, settings))
    try:
        action: Action | None = read_plain_action(kind, text, node, scope)
    except Refusal as refusal:
        scope.note(refusal)
        action = None
    step = msgspec.structs.replace(draft.plain_step, name=name, action=action)
    found = StepDraft(name, node, name_node, step, names=[name])
    if "needs" in node.entries:
        found.needs = read_needs(node.entries["needs"][1], scope)
    return found


def _name_node(node: Mapping, draft: Draft) -> Scalar:
    found = node.get("step")
    if found is None:
        wrong = next((word for word in node.entries if word in ("name", "id", "task", "task_id", "job", "rule")), None)
        if wrong:
            message = f"'{wrong}' is not a key of a step"
            raise draft.source.refuse("unknown_key", message, node.key(wrong), hint="did you mean 'step'?")
        raise draft.source.refuse("missing_key", "the step has no name", node, hint="add 'step: NAME'")
    if not isinstance(found, Scalar) or found.value is None or isinstance(found.value, bool | float):
        message = f"'step' is {describe(found)}, a name of letters, digits, '_' and '-' is expected"
        raise draft.source.refuse("type", message, found)
    return found


def _read_names(node: Scalar, fields: Fields, scope: Scope) -> tuple[str, list[str], list[Values]]:
    """The name of the step (or of the whole matrix), the names of all its steps, and their values."""
    name = base_name(node.text) if "matrix" in fields.node.entries else node.text
    if "matrix" not in fields.values and NAME.fullmatch(name):
        return name, [name], []
    with scope.noting:
        if "matrix" in fields:
            combinations = read_matrix(fields.at("matrix"), scope)
            names = step_names(node, combinations, scope)
            if END in names:
                raise scope.source.refuse("name", "a step of the matrix is called 'end', which runs last", node)
            return name, names, combinations
        hint = "values in a name need a 'matrix'" if "{" in name else ""
        message = f"'{shorten(name)}' is not a name of letters, digits, '_' and '-'"
        raise scope.source.refuse("name", message, node, hint=hint)
    return name, [name], []


def _step_fields(fields: Fields, label: str, scope: Scope, settings: Settings) -> dict[str, Any]:
    """The fields of the step that can be read, so that one problem does not hide others."""
    values: dict[str, Any] = {}
    if "map" in fields.node.entries or "do" in fields.node.entries:
        with scope.noting:
            values = _map_fields(fields, label, scope, settings)
    else:
        action = action_field(fields, label, scope, may_be_program=True)
        values = {**action, **command_fields(fields, scope, settings)}
        if "python" in fields.values:
            check_program(values, fields, label, scope)
        if "workspace" in fields.values:
            message = f"{label} has 'workspace' and no 'map': steps work in the worktree of the run"
            hint = "set 'workspace' at the top of the file, or use a map, whose items have one each"
            scope.note(scope.source.refuse("stray_key", message, fields.key("workspace"), hint=hint))
    values = {**values, **_graph_fields(fields, scope, settings)}
    _warn_of_idle_triage(values, fields, scope)
    return _with_labels(_with_file_check(values))


def _warn_of_idle_triage(values: dict[str, Any], fields: Fields, scope: Scope) -> None:
    """Warn about triage on a map that completes without its failed items: they never reach triage."""
    mapped = values.get("map")
    if mapped is None or values.get("triage") is None or mapped.on_item_failure != "collect":
        return
    if mapped.max_failures is None and mapped.failure_threshold is None:
        message = "failed items do not reach triage: with 'on_item_failure: collect' the step completes without them"
        hint = "set 'max_failures' or 'failure_threshold', or remove 'collect'"
        scope.source.warn("idle_triage", message, fields.key("triage"), hint=hint)


def _has_no_task(values: dict[str, Any]) -> bool:
    """Whether no worker runs the step itself: a map, an action of the engine, an agent that is several tasks."""
    action = values.get("action")
    is_engines = "map" in values or (action is not None and traits_of(action).runs_in == "engine")
    return is_engines or bool(values.get("tools") or values.get("session"))


def _with_file_check(values: dict[str, Any]) -> dict[str, Any]:
    """Let the validator check the files that a map or engine action writes, since no worker runs the step itself."""
    if not _has_no_task(values) or not values.get("writes"):
        return values
    check = values.get("validator") or Command(action=shell_command(":"))
    return {**values, "validator": msgspec.structs.replace(check, writes=values["writes"])}


def _with_labels(values: dict[str, Any]) -> dict[str, Any]:
    """Give the labels of the step to commands that work with its files and have no attempt whose host they go to.

    Not to its handlers: they may be there for the day on which no worker has these labels.
    """
    if not _has_no_task(values):
        return values
    commands = values.get("do")
    asked = commands[0].resources if commands else values.get("resources")
    if asked is None or not asked.labels:
        return values

    def labelled(command: Command | None) -> Command | None:
        if command is None or command.resources is not None:
            return command
        return msgspec.structs.replace(command, resources=Resources(labels=asked.labels))

    found: dict[str, Any] = {name: labelled(values[name]) for name in ("validator", "undo") if name in values}
    if "on_success" in values:
        found["on_success"] = tuple(map(labelled, values["on_success"]))
    if "map" in values:
        found["map"] = msgspec.structs.replace(values["map"], lister=labelled(values["map"].lister))
    return {**values, **found}


def _map_fields(fields: Fields, label: str, scope: Scope, settings: Settings) -> dict[str, Any]:
    _refuse_incomplete_map(fields, label, scope)
    if "map" not in fields or "do" not in fields:
        return {}
    own = msgspec.structs.replace(settings.merge(fields, scope), logs={})
    mapped, inner = read_map(fields.at("map"), scope, own.for_commands())
    within = msgspec.structs.replace(inner, names=inner.names | {"output", "outputs"})
    commands = read_commands(fields.at("do"), "'do'", within, own, read=read_command_of_item)
    values = command_fields(fields, scope, settings)
    for key in _COMMAND_DEFAULTS:
        values.pop(key, None)
    values["deadline"] = fields.get("deadline")
    if "workspace" in fields:
        values.update(read_item_workspace(fields.at("workspace"), commands, scope.source))
    return {"do": commands, **values, "map": mapped}


def _refuse_incomplete_map(fields: Fields, label: str, scope: Scope) -> None:
    source, entries = scope.source, fields.node.entries
    actions = [*(action for action in ACTIONS if action in entries), *fields.added]
    if fields.has_unknown_keys and ("do" not in entries or "map" not in entries):
        return  # most likely a misspelled key, which is already noted
    if "do" not in entries:
        hint = f"put '{actions[0]}' into it" if actions else "add 'do: [{shell: …}]'"
        raise source.refuse("map", f"{label} has 'map' and no 'do'", fields.key("map"), hint=hint)
    if "map" not in entries:
        raise source.refuse("map", f"{label} has 'do' and no 'map'", fields.key("do"), hint="add 'map: {over: …}'")
    if actions:
        message = f"{label} has 'map', so its actions stand in 'do'"
        raise source.refuse("several_actions", message, fields.key(actions[0]), hint=f"move '{actions[0]}' into 'do'")


def _graph_fields(fields: Fields, scope: Scope, settings: Settings) -> dict[str, Any]:
    """The fields that a step has in addition to those of a command."""
    if _GRAPH_KEYS.isdisjoint(fields.values):
        return {}
    values: dict[str, Any] = fields.pick(*_COPIED_KEYS)
    if "when" in fields:
        with scope.noting:
            values["when"] = read_condition(fields.at("when"), scope)
    if "triage" in fields:
        with scope.noting:
            values["triage"] = read_triage(fields["triage"], scope, settings.merge(fields, scope).for_commands())
    if "undo" in fields:
        with scope.noting:
            own = settings.merge(fields, scope).for_commands()
            values["undo"] = _with_timeout(read_command(fields.at("undo"), "'undo'", scope.with_names("output"), own))
    values.update(read_files(fields, scope))
    if "cache" in fields:
        with scope.noting:
            values.update(read_cache(fields, scope))
    if fields.get("start"):
        values["is_start"] = True
    if "budget" in fields:
        values["budget"] = read_budget(fields["budget"], scope.source)
    if "coverage" in fields:
        values["accepts"] = fields["coverage"].get("accept", {})
    return values


def _with_timeout(command: Command) -> Command:
    """The undo command with a timeout: it runs while the run ends, which must not take forever."""
    return command if command.timeout else msgspec.structs.replace(command, timeout=END_TIMEOUT_SECONDS)


def read_end(node: Node, draft: Draft, settings: Settings) -> Step:
    """The explicit `end`: an action with few keys, which may read every step."""
    source = draft.source
    if not isinstance(node, Mapping):
        raise source.refuse("type", f"'end' is {describe(node)}, a mapping with an action is expected", node)
    _refuse_keys_of_steps(node, draft)
    own = Mapping(node.line, node.column)
    own.entries = {key: entry for key, entry in node.entries.items() if END_SHAPE.known(key)}
    fields: Fields = END_SHAPE.read(own, "'end'", source)
    scope = Scope(draft, "'end'", reader=None).for_fields(fields)
    defaults = msgspec.structs.replace(settings, timeout=END_TIMEOUT_SECONDS, retry=None, resources=None, logs={})
    values = {**action_field(fields, "'end'", scope), **command_fields(fields, scope, defaults)}
    return Step(name=END, **values)


def _refuse_keys_of_steps(node: Mapping, draft: Draft) -> None:
    for word, (key, _) in node.entries.items():
        if word == "step" or END_SHAPE.known(word):
            continue
        meant = closest_key(word, END_SHAPE.words) if word not in STEP.keys else None
        message = f"'{shorten(word)}' is not a key of 'end'"
        hint = f"did you mean '{meant}'?" if meant else "every path leads to 'end', and it runs last"
        draft.source.note(draft.source.refuse("unknown_key", message, key, hint=hint))


def default_end() -> Step:
    """The end without an action, which only evaluates outputs."""
    return Step(name=END, timeout=END_TIMEOUT_SECONDS)


# -- caching ----------------------------------------------------------------------------------------------------------


# What stands for an action that has no result to keep, and why not.
_NEVER = {kind: one.why_not_cached for kind, one in TABLE.items() if one.why_not_cached}
_NEVER["group"] = _NEVER["workflow"]
_INSTEAD = {"workflow": "set 'cache' on the steps of that workflow", "group": "set 'cache' on the steps of the group"}


def read_cache(fields: Fields, scope: Scope) -> dict[str, Any]:
    """The fields for `cache`. A step that no worker runs cannot be cached."""
    cache = fields["cache"]
    if cache is False:
        return {"cache": False}
    stray = next((word for word in _NEVER if word in fields.node.entries), None)
    if stray is not None:
        message = f"'{stray}' cannot be cached: {_NEVER[stray]}"
        raise scope.source.refuse("stray_key", message, fields.key("cache"), hint=_INSTEAD.get(stray, "remove it"))
    agent = fields.node.get("agent")
    if isinstance(agent, Mapping) and ("tools" in agent.entries or "session" in agent.entries):
        message = "an agent with tools or a session cannot be cached: what it does depends on more than its inputs"
        raise scope.source.refuse("stray_key", message, fields.key("cache"), hint="remove it")
    if cache is True:
        return {"cache": True}
    written = fields.node.get("cache")
    if isinstance(written, Mapping) and not written.entries:
        message = "'cache' needs 'key', 'code' or both"
        raise scope.source.refuse("missing_key", message, fields.key("cache"), hint="write 'cache: true'")
    found = {"cache": True, "cache_code": cache.get("code", True) is not False}
    if "key" not in cache:
        return found
    key = read_template(cache["key"], scope)
    if reads_secrets(key):
        message = "a cache key cannot contain a secret: only workers know secrets, and the engine computes the key"
        raise scope.source.refuse("secret", message, cache["key"], hint="use a value that changes when the secret does")
    return {**found, "cache_key": key}


# -- worktrees of items -----------------------------------------------------------------------------------------------


_ITEM_WORK = Template((Expression("outputs[0]", ("outputs",)),))
_INDEX = Template((Expression("index", ("index",)),))
_OUTPUT = Template((Expression("output", ("output",)),))


def read_item_workspace(node: Node, commands: tuple[Command, ...], source: Source) -> dict[str, Any]:
    """The fields of a map step whose items have their own worktrees: `do` with what opens and merges one."""
    ITEM_WORKSPACE.read(node, "'workspace'", source)
    opening = workspace_action({"verb": "open_item"}, {"run": WORK, "index": _INDEX})
    merging = workspace_action({"verb": "merge_item"}, {"run": WORK, "item": _ITEM_WORK, "result": _OUTPUT})
    # It opens on a host that can run the commands, which then go to that host.
    asked = commands[0].resources
    labelled = Resources(labels=asked.labels) if asked is not None and asked.labels else None
    return {
        "do": (Command(action=opening, resources=labelled), *commands, Command(action=merging)),
        "has_worktrees": True,
    }
