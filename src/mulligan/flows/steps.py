"""`@step`: a function as a step of flows."""

from __future__ import annotations

import os

from mulligan.flows.callbacks import Callback, as_callback, command_for
from mulligan.flows.context import RECORDER, Site, call_site, current, given, outside_program, refuse, running_program
from mulligan.flows.functions import FunctionWrapper
from mulligan.flows.parameters import Parameters
from mulligan.flows.references import Reference, conditional, step_path
from mulligan.flows.source import action_for
from mulligan.flows.static_types import Generic, overload
from mulligan.flows.step_keys import (
    ENVIRONMENT,
    OF_CALLS,
    apply_keys,
    arguments_of,
    command_of_function,
    located,
    put_key,
    refuse_limits,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
    from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack

    from mulligan.flows.recording import Record, Recorder
    from mulligan.flows.step_keys import FunctionKeys, Keys

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Callable[..., Any])

    class StepDecorator(Protocol):
        """What `@step(…)` returns: it makes a step of a function."""

        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, Generator[Any, Any, R]], /) -> GeneratorStep[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


else:
    P = R = None


MAP_KEYS = (
    "item_name",
    "max_parallel",
    "filter",
    "sort_by",
    "distinct",
    "offset",
    "max_items",
    "on_item_failure",
    "max_failures",
    "failure_threshold",
    "collect_critical",
)


def map_keys(recorder: Any, record: Record, items: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What stands under `map:` of a step that runs once per item. `chosen`: its options, by their names."""
    # A list that is known when the flow is built, or `{"file": …}` and `{"shell": …}` as in a file.
    over = items if isinstance(items, Reference | dict | str) else list(items)
    given = {key: recorder.value(chosen[key], record.reads) for key in MAP_KEYS if chosen.get(key) is not None}
    return {"over": recorder.value(over, record.reads), **given}


class Mapped(Generic[R]):
    """What a map step returns: how many items there were, and their results in order.

    `total`, `succeeded` and `failed` are counts. `results` has one entry per item, None where the item failed.
    `failures` has an object per failed item: `index`, `item`, `code`, `message`, `exit_code`.
    """

    total: int
    succeeded: int
    failed: int
    results: list[R]
    failures: list[dict[str, Any]]


class _Recovery:
    """What belongs to a step and all its changed copies: handler, undo, routes."""

    def __init__(self) -> None:
        # The functions of `on_failure` and `undo`, by key.
        self.callbacks: dict[str, tuple[Callback, dict[str, Any], Site]] = {}
        self.routes: list[tuple[Any, dict[str, Any], Site]] = []


class Step(FunctionWrapper, Generic[P, R]):
    """A function as a step. Called inside a flow, it adds a step and returns a reference to what it will return.

    `fn` is the plain function, for unit tests.
    """

    fn: Callable[P, R]

    def __init__(self, function: Callable[P, R], keys: Keys, site: Site, recovery: _Recovery | None = None) -> None:
        super().__init__(function)
        # Of calls in a program, and no keys of a step: the name of one call, and whether the program itself runs it.
        self.call_key = str(keys["key"][0]) if "key" in keys else ""
        self.is_inline = "inline" in keys and bool(keys["inline"][0])
        self.keys = {name: one for name, one in keys.items() if name not in OF_CALLS}
        self.site = site
        if self.is_inline:
            refuse_limits(self.__name__, self.keys)
        self.__mulligan_function__ = function
        self.recovery = recovery or _Recovery()
        # A name that was chosen for one call is not numbered.
        self._is_name_chosen = False
        self._parameters: Parameters | None = None
        self._action: tuple[str, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<step {self.__name__}>"

    @property
    def routes(self) -> list[tuple[Any, dict[str, Any], Site]]:
        """What `on_failure` has added outside a flow: target, keys, position."""
        return self.recovery.routes

    @property
    def name(self) -> str:
        """The name of the step in a flow that calls it once."""
        return str(self.keys["name"][0]) if "name" in self.keys else self.__name__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        program = running_program()
        if program is not None:
            return program.call(self, args, kwargs)  # type: ignore[no-any-return]
        recorder = current(
            f"step '{self.__name__}'",
            f"call the plain function: {self.__name__}.fn(…)",
            inside="a @program or a @flow",
        )
        site = call_site()
        bound = self._signature().bind(args, kwargs, site)
        record = self._add(recorder, site)
        record.action = self._python({name: recorder.value(value, record.reads) for name, value in bound.items()})
        self._finish(recorder, record)
        return recorder.result(record, self._shape())  # type: ignore[no-any-return]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        """A call that has not started, in a program: for `gather`, or to be awaited.

            counts = gather(load.call(part) for part in parts)

        In an `async def` program `await load.call(part)` does the same as `await load(part)`, and is known to type
        checkers.
        """
        program = running_program()
        if program is None:
            outside_program(f"{self.__name__}.call")
        return program.prepare(self, args, kwargs)  # type: ignore[no-any-return]

    def options(self, **keys: Unpack[FunctionKeys]) -> Step[P, R]:
        """The same step with other keys: `fetch.options(name="fetch_east", timeout="5m")(url)`.

        In a program `key=region` names one call, so that it keeps its result when the program is edited.
        """
        site = call_site()
        own: Keys = {"inline": (True, self.site)} if self.is_inline else {}
        changed = Step(self.fn, {**self.keys, **own, **located(keys, site)}, site, self.recovery)
        changed._is_name_chosen = "name" in keys or self._is_name_chosen
        return changed

    def map(
        self,
        items: Iterable[Any] | dict[str, str],
        /,
        *args: Any,
        item_name: str | None = None,
        max_parallel: int | None = None,
        on_item_failure: Literal["fail", "stop", "collect"] | None = None,
        max_failures: int | None = None,
        failure_threshold: float | None = None,
        collect_critical: bool | None = None,
        filter: object = None,
        sort_by: object = None,
        distinct: object = None,
        offset: int | None = None,
        max_items: int | None = None,
        **kwargs: Any,
    ) -> Mapped[R]:
        """Run the step once per item, as a map. The item is the first argument; further ones are the same for all.

            cleaned = clean.map(rows, max_parallel=4, on_item_failure="collect")
            load(cleaned.results)

        With `collect` the step completes without the items that failed; with `stop` it starts no further item after a
        failure; by default all items run, and the step fails if one did. A critical failure of an item fails the step
        in any case, unless `collect_critical` is true.

        `filter`, `sort_by` and `distinct` are expressions over `item`: `filter="item.size > 0"`. `item_name` is what
        people call an item: `item_name="${item.region}"`.
        """
        chosen = locals()
        recorder = current(
            f"step '{self.__name__}'", in_program=f"write gather({self.__name__}.call(one) for one in …)"
        )
        site = call_site()
        bound = self._signature().bind((Reference("item", {}), *args), kwargs, site)
        record = self._add(recorder, site)
        mapped = map_keys(recorder, record, items, chosen)
        values = {name: recorder.value(value, record.reads) for name, value in bound.items()}
        record.action = {"map": mapped, "do": [self._python(values)]}
        self._finish(recorder, record)
        return recorder.result(record)  # type: ignore[no-any-return]

    def matrix(self, values: Mapping[str, Any], /, *, zip: bool = False, **kwargs: Any) -> list[R]:
        """Make one step per combination of `values`, which are arguments; further arguments are the same for all.

        `simulate.matrix({"alpha": [0.5, 1], "seed": range(1, 4)}, mesh=mesh)` makes six steps, known before the run
        starts. With `zip=True` the first values are combined, then the second ones. The reference is the list of all
        results.
        """
        recorder = current(f"step '{self.__name__}'", in_program=f"write gather({self.__name__}.call(…) for …)")
        site = call_site()
        of_matrix = {name: Reference(f"matrix.{name}", {}) for name in values}
        bound = self._signature().bind((), {**of_matrix, **kwargs}, site)
        name = self.name if "{" in self.name else "_".join([self.name, *(f"{{{key}}}" for key in values)])
        record = recorder.add(
            self.name.partition("{")[0].rstrip("_-") or self.name, is_chosen=True, site=site, keys_site=self.site
        )
        recorder.last[id(self)] = record
        record.is_matrix = True
        lists = {
            key: recorder.value(one if isinstance(one, str | dict) else list(one), {}) for key, one in values.items()
        }
        record.keys["step"] = (name, site)
        record.keys["matrix"] = ({"zip": lists} if zip else lists, site)
        record.action = self._python({key: recorder.value(one, record.reads) for key, one in bound.items()})
        self._finish(recorder, record)
        return recorder.result(record)  # type: ignore[no-any-return]

    # Recovery

    @overload
    def handler(self, function: F, /) -> F: ...
    @overload
    def handler(
        self,
        function: None = None,
        /,
        *,
        strategy: Literal["recovery", "fallback", "cleanup", "custom"] = ...,
        rerun: int = ...,
        timeout: Any = ...,
        retry: Any = ...,
        capture: Any = ...,
        handler_failure_fatal: bool = ...,
    ) -> Callable[[F], F]: ...

    def handler(self, function: Any = None, /, **keys: Any) -> Any:
        """Let a function handle the failures of this step: `@fetch.handler`.

            @fetch.handler
            def cached(failure: mulligan.Failure, url: str) -> list[dict]: ...

        It receives the failure as its first parameter that is no argument of the step, and those arguments of the step
        that it has parameters for. What it returns becomes the output of the step. `strategy="cleanup"` leaves the
        failure as it is; `rerun=1` runs the step again afterwards.
        """
        return self._set_callback("on_failure", "handlers", function, keys)

    @overload
    def undo(self, function: F, /) -> F: ...
    @overload
    def undo(
        self, function: None = None, /, *, timeout: Any = ..., retry: Any = ..., on_failure: Any = ...
    ) -> Callable[[F], F]: ...

    def undo(self, function: Any = None, /, **keys: Any) -> Any:
        """Let a function undo the work of this step if the run does not complete: `@deploy.undo`.

            @deploy.undo
            def withdraw(deployed: str, region: str) -> None: ...

        It receives what the step returned as its first parameter that is no argument of the step, whatever its name,
        and those arguments of the step that it has parameters for.
        """
        return self._set_callback("undo", "undos", function, keys)

    def _set_callback(self, key: str, plural: str, function: Any, keys: dict[str, Any]) -> Any:
        """Let a function be the command under `key` of this step; without a function, return the decorator."""
        site = call_site()

        def decorate(function: Callable[..., Any]) -> Callback:
            callback = as_callback(function)
            if key in self.recovery.callbacks:
                other = self.recovery.callbacks[key][0].__name__
                message = f"step '{self.__name__}' has two {plural}: '{other}' and '{callback.__name__}'"
                refuse("duplicate_key", message, hint="remove one of them", site=site)
            self.recovery.callbacks[key] = (callback, keys, site)
            return callback

        return decorate if function is None else decorate(function)

    def on_failure(
        self,
        target: Any,
        /,
        *,
        then: Literal["rerun", "continue"] | None = None,
        codes: Sequence[str] | str | None = None,
        exit_codes: Sequence[int | str] | int | str | None = None,
        priority: int | None = None,
        handles: bool | None = None,
    ) -> Step[P, R]:
        """Route failures of this step to another one: `deploy.on_failure(repair, then="rerun")`.

        `target` is a step. It receives the failure (a parameter `failure`), and those arguments of this step that it
        has parameters for. Inside a flow it may also be what a step returned. With `then="rerun"` this step runs again
        when the target completes; with `then="continue"` the target replaces it.
        """
        keys = {"on": "failure", **given(locals(), "target")}
        site = call_site()
        recorder = RECORDER.get()
        if recorder is None:
            self.recovery.routes.append((target, keys, site))
        else:
            recorder.step_routes.setdefault(id(self.recovery), []).append((target, keys, site))
        return self

    # Recording

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of the parameters; LanguageError for those that do not fit."""
        signature = self._signature()
        if not kwargs and len(args) == len(signature.names):
            return dict(zip(signature.names, args, strict=True))
        return signature.bind(args, kwargs, call_site())

    def _signature(self) -> Parameters:
        if self._parameters is None:
            self._parameters = Parameters(self.fn, f"step '{self.__name__}'")
        return self._parameters

    def _add(self, recorder: Recorder, site: Site) -> Record:
        record = recorder.add(self.name, is_chosen=self._is_name_chosen, site=site, keys_site=self.site)
        recorder.last[id(self)] = record
        return record

    def _python(self, values: dict[str, Any]) -> dict[str, Any]:
        folder = os.getcwd()  # where workers find the module depends on it
        if self._action is not None and self._action[0] == folder:
            action = self._action[1]
        else:
            action = {**action_for(self.fn), **{key: self.keys[key][0] for key in ENVIRONMENT if key in self.keys}}
            if "source" not in action:
                self._action = folder, action  # source may change: a notebook goes on
        return {"python": action, "args": values} if values else {"python": action}

    def _finish(self, recorder: Recorder, record: Record) -> None:
        apply_keys(recorder, record, {name: one for name, one in self.keys.items() if name not in ENVIRONMENT})
        self._add_callbacks(recorder, record)
        recorder.recoveries.append((record, self))

    def _add_callbacks(self, recorder: Recorder, record: Record) -> None:
        for key, (callback, keys, site) in self.recovery.callbacks.items():
            if key in self.keys:
                message = f"step '{self.__name__}' has '{key}' and the function '{callback.__name__}'"
                refuse("duplicate_key", message, hint="remove one of them", site=site)
            made = {**command_of_function(record, callback, key), **recorder.value(keys, record.reads)}
            put_key(record, key, made, site)

    def record_for_route(self, recorder: Recorder, source: Record, site: Site) -> Record:
        """The step that handles the failures of `source`, which another step has routed to this one."""
        record = self._add(recorder, site)
        values = {**(arguments_of(source) if "map" not in source.action else {}), "failure": "${failure}"}
        made = command_for(self, "the step", given=values, first="failure")
        record.action = self._python(made.get("args", {}))
        self._finish(recorder, record)
        return record

    def _shape(self) -> int | None:
        """The number of elements of the result, if the function returns a tuple of fixed length."""
        annotation: Any = getattr(self.fn, "__annotations__", {}).get("return")
        if isinstance(annotation, str):
            return _count_elements(annotation) if annotation.startswith(("tuple[", "Tuple[")) else None
        if getattr(annotation, "__origin__", None) is tuple and Ellipsis not in annotation.__args__:
            return len(annotation.__args__)
        return None


def _count_elements(annotation: str) -> int | None:
    """The number of elements of `tuple[int, dict[str, int]]`, as it is written."""
    inner = annotation[annotation.index("[") + 1 : -1]
    if "..." in inner or not inner.strip("() "):
        return None
    depth, count = 0, 1
    for character in inner.rstrip(", "):
        depth += (character in "[(") - (character in "])")
        count += character == "," and depth == 0
    return count


if TYPE_CHECKING:

    class AsyncStep(Step[P, R]):
        """A step that is an `async def`. In a flow it returns what the coroutine returns."""

        fn: Callable[P, Coroutine[Any, Any, R]]  # type: ignore[assignment]

    class GeneratorStep(Step[P, R]):
        """A step that yields its progress. In a flow it returns what the generator returns."""

        fn: Callable[P, Generator[Any, Any, R]]  # type: ignore[assignment]


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...
@overload
def step(function: Callable[P, Generator[Any, Any, R]], /) -> GeneratorStep[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(**keys: Unpack[FunctionKeys]) -> StepDecorator: ...


def step(function: Any = None, /, **keys: Any) -> Any:
    """Make a function a step: `@step`, or `@step(retry=3, timeout="1m")`. The keywords are the keys of a file.

        @step(retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s"), timeout="1m")
        def fetch(url: str) -> list[dict]: ...

    Inside a flow `fetch(url)` adds the step, and `fetch.map(urls)` one that runs it for each item. `fetch.fn(url)` is
    the plain function. Further keys are `on_failure`, `triage`, `when`, `after`, `cache`, `resources`, `requirements`
    and the others of a step; `name` names it.
    """
    site = call_site()

    def decorate(function: Callable[..., Any]) -> Step[Any, Any]:
        if isinstance(function, Step):
            refuse("function", f"'{function.__name__}' is a step already", hint="write @step once", site=site)
        if isinstance(function, staticmethod):
            function = function.__func__
        if not hasattr(function, "__code__"):
            message = f"a step is a function, and this is a {type(function).__name__}"
            refuse("function", message, hint="decorate a function: def fetch(url): …", site=site)
        return Step(function, located(keys, site), site)

    return decorate if function is None else decorate(function)


@overload
def latest(target: Step[Any, R], default: R) -> R: ...
@overload
def latest(target: Any, default: Any = None) -> Any: ...


def latest(target: Any, default: Any = None) -> Any:
    """What a step returned in its latest visit, for loops: `latest(improve, draft)` is the draft before the first one.

    `target` is a step that is called later in the flow, or its name.
    """
    recorder = current("mulligan.latest")
    known = recorder.last.get(id(target))
    name = known.name if known else target.name if isinstance(target, Step) else target
    if not isinstance(name, str):
        refuse("reference", f"mulligan.latest takes a step or its name, and this is {target!r}", word="latest")
    output = Reference(f"{step_path(name)}.output", {})
    return conditional(output == None, default, output)  # noqa: E711
