"""MapReduce workflows of Prodigy's: setup, map, reduce, merge, as steps of ours, one after the other.

The map is a map of ours. Its list is made in a worker, by the rules of Prodigy's own filters and paths; each item works
in a worktree of its own, which is merged when its last command is done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from mulligan.formats.prodigy.conditions import condition
from mulligan.formats.prodigy.durations import spelled
from mulligan.formats.prodigy.environment import environment
from mulligan.formats.prodigy.forms import understood
from mulligan.formats.prodigy.frame import framed, step_list
from mulligan.formats.prodigy.isolation import Opened, item_merged, item_opened
from mulligan.formats.prodigy.item_failures import Policy, policy
from mulligan.formats.prodigy.json_path import items_at
from mulligan.formats.prodigy.mapreduce_keys import MAPREDUCE
from mulligan.formats.prodigy.numbers import number_of
from mulligan.formats.prodigy.places import ITEM_NAMES, Commands, Place, Steps
from mulligan.formats.prodigy.regular import LISTS, finished
from mulligan.formats.prodigy.setup import setup
from mulligan.formats.prodigy.sorting import order
from mulligan.formats.prodigy.steps import Translated, commands
from mulligan.formats.prodigy.variables import text
from mulligan.formats.translation import Translation, literal, made
from mulligan.language.nodes import Mapping, Node, Scalar
from mulligan.language.shapes import Fields, whole

LISTER = "mulligan.formats.prodigy.listing:items"
MAX_PARALLEL_DEFAULT = 10
AGENT_SECONDS_DEFAULT = 600.0
_KINDS = {"shell": "shell", "agent": "claude", "python": "write_file"}


class _Workflow(NamedTuple):
    """What all parts of the translation look at."""

    form: Fields
    policy: Policy
    run: Opened
    translation: Translation


def is_mapreduce(root: Node) -> bool:
    """Whether the file says so, or has a map. A regular workflow, too, may say its mode."""
    if not isinstance(root, Mapping):
        return False
    return "map" in root.entries or ("mode" in root.entries and not any(key in root.entries for key in LISTS))


def mapreduce(root: Node, translation: Translation) -> Mapping:
    """A MapReduce workflow."""
    form: Fields = MAPREDUCE.read(_with_setup(root), "the workflow", translation.source)
    place = Place(Steps())
    named = form.node.get("name")
    handling = policy(form, named.text if isinstance(named, Scalar) else "mapreduce", translation)
    top, steps = framed(
        form,
        root,
        place,
        environment(form, translation),
        lambda run: _phases(_Workflow(form, handling, run, translation)),
        translation,
    )
    head = {key: form.node.get(key) for key in ("name", "description")}
    return finished({**head, **top, "breakers": handling.breakers or None}, steps, place, root)


def _with_setup(root: Node) -> Node:
    """The workflow, in which a plain list of steps beside the map is its setup: so the first documents have it."""
    lists = [key for key in LISTS if isinstance(root, Mapping) and key in root.entries]
    if len(lists) != 1 or not isinstance(root, Mapping) or "setup" in root.entries:
        return root
    found = Mapping(root.line, root.column)
    found.entries = {"setup" if key == lists[0] else key: entry for key, entry in root.entries.items()}
    return found


def _phases(workflow: _Workflow) -> Translated:
    form, translation, place = workflow.form, workflow.translation, workflow.run.place
    steps: list[dict[str, Any]] = []
    if "setup" in form:
        with translation.source.noting:
            steps, place = setup(form, place, translation)
    if "map" in form and {"agent_template", "input"} <= form["map"].values.keys():
        with translation.source.noting:
            step, place = _map(workflow, place)
            steps = [*steps, step]
    if "reduce" in form:
        after, place = commands(step_list(form.at("reduce"), "reduce", translation), place, translation)
        steps = [*steps, *after]
    return Translated(steps, place)


# -- the map ---------------------------------------------------------------------------------------------------------


def _map(workflow: _Workflow, place: Place) -> tuple[dict[str, Any], Place]:
    form, policy, translation = workflow.form["map"], workflow.policy, workflow.translation
    spot = place.row.take("map")
    keys = {
        "over": _lister(form, workflow.run, place, translation),
        "max_parallel": number_of(form, "max_parallel", whole(1), place.env, translation) or MAX_PARALLEL_DEFAULT,
        "offset": form.get("offset"),
        "max_items": form.get("max_items"),
        **policy.of_map,
    }
    do = _do(workflow, place, _timeouts(form, place, translation))
    again = {"retry": form["retry_on_failure"]} if form.get("retry_on_failure") else {}
    step = {"step": spot.name, "map": made(keys, form.node), "do": do, **again, **policy.of_step}
    variables = {"total": "total", "successful": "succeeded", "failed": "failed", "results": "results"}
    return step, place.knowing({f"map.{name}": f"{spot.output}.{ours}" for name, ours in variables.items()})


def _lister(form: Fields, run: Opened, place: Place, translation: Translation) -> dict[str, Any]:
    node: Scalar = form["input"]
    args: dict[str, Any] = {"input": made(text(node, place, translation), node), "origin": f"${{{run.work}.checkout}}"}
    for key, reads in (("json_path", items_at), ("filter", condition), ("sort_by", order)):
        where = form.node.get(key)
        if key in form and isinstance(where, Scalar) and where.text.strip():
            with translation.source.noting:
                args[key] = _checked(where, reads, translation)
    args["distinct"] = form.get("distinct")
    return {"python": {"call": LISTER}, "args": args, "cwd": place.cwd}


def _checked(node: Scalar, reads: Any, translation: Translation) -> Node:
    """A text in a grammar of Prodigy's, as it is: our own language fills nothing in."""
    understood(node, reads, translation)
    return made(literal(node.text), node)


def _do(workflow: _Workflow, place: Place, timeouts: dict[str, float]) -> list[dict[str, Any]]:
    """The commands of an item: its worktree, what is to be done in it, and the way back."""
    run, translation = workflow.run, workflow.translation
    template = workflow.form["map"].at("agent_template")
    variables = {
        "item": "item",
        # A line that a command printed is an object with this one field, to Prodigy.
        "item.item": "(type(item) == map ? item.item : item)",
        "item_json": "item",
        "item_id": "('item_' + string(index))",
        "index": "index",
    }
    inside = msgspec.structs.replace(place.knowing(variables), row=Commands(), names=ITEM_NAMES, is_regular=False)
    opened = item_opened(run, inside, template, translation)
    done = commands(step_list(template, "agent_template", translation), opened.place, translation).commands
    own = [_limited(command, timeouts, workflow.policy.of_commands) for command in done]
    return [opened.command, *own, item_merged(run, opened, template, translation)]


def _limited(command: dict[str, Any], timeouts: dict[str, float], of_commands: dict[str, Any]) -> dict[str, Any]:
    kind = next((theirs for ours, theirs in _KINDS.items() if ours in command), "")
    seconds = timeouts.get(kind, timeouts.get(""))
    limit = {"timeout": spelled(seconds)} if seconds and "timeout" not in command else {}
    return {**command, **limit, **of_commands}


# -- times -----------------------------------------------------------------------------------------------------------


def _timeouts(form: Fields, place: Place, translation: Translation) -> dict[str, float]:
    """The time of a command by its kind; under "" that of any other."""
    found: dict[str, float] = {}
    config: Fields | None = form.get("timeout_config")
    if config is not None:
        found = {"": AGENT_SECONDS_DEFAULT, **config.get("command_timeouts", {})}
        _warn_of_timeouts(config, translation)
    if "timeout_per_agent" in form:
        found[""] = form["timeout_per_agent"]
    for where in (config, form):
        if where is not None and "agent_timeout_secs" in where:
            found[""] = float(number_of(where, "agent_timeout_secs", whole(1), place.env, translation))
    return found


def _warn_of_timeouts(config: Fields, translation: Translation) -> None:
    if config.get("timeout_action", "Dlq").lower() == "fail":
        message = "'timeout_action: Fail' is not honoured: a timeout fails its item, and 'max_failures' the map"
        translation.warn("prodigy", message, config.key("timeout_action"))
    if config.get("timeout_policy", "Hybrid").lower().replace("_", "") == "peragent":
        message = "the time of an agent holds for each of its commands, not for all together"
        translation.warn("prodigy", message, config.key("timeout_policy"))
    if "cleanup_grace_period_secs" in config:
        message = "'cleanup_grace_period_secs' is not honoured: what runs too long has 10s to end"
        translation.warn("prodigy", message, config.key("cleanup_grace_period_secs"))
