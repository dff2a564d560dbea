"""Whether a step may reuse the result of an earlier run, and what a worker needs to find one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from mulligan.core.model.actions import is_group, traits_of
from mulligan.core.model.artifacts import KEY_AS_JSON, parse_reference, replace_references
from mulligan.core.model.workflow import END, Command, Workflow
from mulligan.core.state.scope import CACHE_KEY
from mulligan.core.state.state import Place, State

# The parameter with the text of the module of a function, if that is pinned with the run.
PINNED = "source"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Reuse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker needs to know about a step whose result may be reused."""

    # A hash of what the step does, by its definition.
    definition: str
    # Whether to look for an earlier result; otherwise this one is only recorded.
    looks: bool = False
    # The paths of the files that it reads, by name.
    reads: dict[str, str] = {}
    # The value of `cache: {key: …}`.
    key: Any = None
    # A result that can be undone counts only after its run has ended.
    has_undo: bool = False
    # For a step without declared dependencies: hashes of what the steps before it did, by name.
    after: dict[str, str] = {}
    # Whether the code of its function counts.
    code: bool = True


def reuse_of(state: State, place: Place) -> Reuse | None:
    """What a worker needs to reuse a result for the current attempt; None if its result is not reused.

    An earlier result is looked for in the first visit only, since a loop or a round runs a step again on purpose. A
    step that gets the context of a failure neither reuses nor records a result, since each failure is different.
    """
    above = place if place.role == "step" else _map_of(state, place)
    if above is None or above.key == END or above.spec.cache is False or (above.key, above.visit) in state.informed:
        return None
    step, spec = state.step(above.key), place.spec
    is_wanted = above.spec.cache or (state.run.changed_only and not traits_of(spec.action).is_agent)
    if not (is_wanted or above.spec.reads or spec.reads or spec.writes):
        return None
    is_forced = _is_forced(state, above)
    return Reuse(
        definition=_definition(spec, has_undo=step.undo is not None, has_code=above.spec.cache_code),
        looks=bool(is_wanted) and above.visit == 1 and place.climb.tries == 0 and not is_forced,
        reads={
            **{name: path_of(state, above, name) for name in above.spec.reads},
            **({name: path_of(state, place, name) for name in spec.reads} if place is not above else {}),
        },
        key=above.bindings.get(CACHE_KEY),
        has_undo=step.undo is not None,
        after=(_upstream_traces(state, above) if not spec.reads else {}) | _data_trace(state),
        code=above.spec.cache_code,
    )


def forced_child_steps(state: State, place: Place, child: Workflow) -> tuple[str, ...]:
    """The steps that reuse nothing in a child run of this place: all of them, or none.

    All, if the step is forced; and if a group is tried again, since it starts from its first step each time.
    """
    step = state.step_of(place)
    is_again = is_group(place.spec.action) and (step.visit > 1 or place.climb.tries > 0)
    if not is_again and not _is_forced(state, step):
        return ()
    return tuple(dict.fromkeys(one.sweep or one.name for one in child.steps))


def _is_forced(state: State, step: Place) -> bool:
    return step.key in state.run.forced or state.step(step.key).sweep in state.run.forced


def _upstream_traces(state: State, step: Place) -> dict[str, str]:
    """Hashes of what the steps directly before this one did, if it does not declare its dependencies.

    It may read what they wrote. With `reads` or `cache` the author has declared what counts.
    """
    if step.spec.reads or step.spec.cache is not None:
        return {}
    return {name: _trace_of(state, state.places[name]) for name in sorted(state.graph.sources(step.key))}


def _data_trace(state: State) -> dict[str, str]:
    """A hash of the data of the run: any step may read it."""
    data = {name: one.value for name, one in state.run.data.items()}
    return {"run.data": digest_of(data)} if data else {}


def _trace_of(state: State, place: Place) -> str:
    """A hash of what a step did: equal for equal work; unique to the run if that is unknown."""
    spec = place.spec
    if place.status == "completed" and spec.writes and {one.name for one in place.files} == set(spec.writes):
        # Its output and files: if they are the same, nothing behind it runs again.
        return digest_of((contents_of(place.output), [(one.name, one.sha256) for one in place.files]))
    if place.status == "completed" and not place.recovered_by and place.fingerprint:
        return place.fingerprint
    if place.status == "completed" and spec.action is not None and not traits_of(spec.action).has_result:
        return spec.action.kind
    items = [item.fingerprint if item is not None else "" for item in state.items_of(place)]
    if place.status == "completed" and items and all(items):
        return digest_of(items)
    return place.status if place.status in ("skipped", "waiting") else f"{place.status} in {state.run.uid}"


def contents_of(value: Any) -> Any:
    """The value with artifacts replaced by the hashes of their content, since their names differ from run to run."""
    data = _encode(value)
    if KEY_AS_JSON not in data:
        return value
    return replace_references(msgspec.json.decode(data), _content_hash)


def _content_hash(reference: dict[str, Any]) -> list[str]:
    found = parse_reference(reference)
    # The same file may be a column of one library or a table of another.
    # An output that was not kept is like no other.
    return ["artifact", found.sha256 or found.name, found.format, *filter(None, (found.type,))]


def without_pinned(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without the text of the script that the function is in."""
    return {name: value for name, value in params.items() if name != PINNED}


def digest_of(value: Any) -> str:
    return hashlib.sha256(_encode(value)).hexdigest()


def _map_of(state: State, place: Place) -> Place | None:
    """The map whose items are reused one by one: each item runs one command.

    None for a map that writes files or has an undo, since these concern all of its items together.
    """
    step = state.step_of(place)
    is_whole_item = place.role == "do" and len(state.step(step.key).do) == 1 and place.spec.when is None
    return step if is_whole_item and not step.spec.writes and state.step(step.key).undo is None else None


def path_of(state: State, owner: Place, name: str) -> str:
    """The path of a file of a step or of a command of an item: as rendered, as declared, or the name itself."""
    return owner.paths.get(f"file.{name}") or state.workflow.files.get(name, name)


def _definition(spec: Command, *, has_undo: bool, has_code: bool) -> str:
    """A hash of what determines the result of a step and its acceptance; without retries and limits.

    Of a script that is pinned with the run, only what the function uses counts, if its code does.
    """
    action = spec.action
    if has_code and action is not None and PINNED in action.params:
        action = msgspec.structs.replace(action, params=without_pinned(action.params))
    return digest_of((action, spec.capture, spec.validate, spec.validator, spec.on_success, has_undo))
