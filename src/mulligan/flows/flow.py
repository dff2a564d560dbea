"""`@flow`: a function that says which steps run, and what they give to each other."""

from __future__ import annotations

from mulligan.flows.callbacks import Callback, as_callback
from mulligan.flows.context import RECORDER, Site, call_site, outside_program, refuse, refuse_run, running_program
from mulligan.flows.functions import FunctionWrapper
from mulligan.flows.parameters import Parameters
from mulligan.flows.recording import RESULT
from mulligan.flows.static_types import Generic, overload
from mulligan.flows.step_keys import apply_keys, located

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack

    import mulligan
    from mulligan.flows.building import Built
    from mulligan.flows.retries import Duration, Retry
    from mulligan.flows.steps import Mapped
    from mulligan.language.python.builder import Workflow

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Callable[..., Any])

    class FlowKeys(TypedDict, total=False):
        """The keys of the top level of a file."""

        name: str
        description: str
        labels: Mapping[str, str]
        # Further keys of inputs, by the names of the parameters: {"url": {"description": "where the rows are"}}.
        inputs: Mapping[str, Mapping[str, Any]]
        defaults: Mapping[str, Any]
        retry_policies: Mapping[str, Retry | Mapping[str, Any]]
        handlers: Mapping[str, Any]
        files: Mapping[str, str]
        secrets: Mapping[str, Mapping[str, str]]
        breakers: Mapping[str, Mapping[str, Any]]
        order: Literal["data", "sequential"]
        timeout: Duration
        budget: Mapping[str, Any]
        max_parallel: int
        fail_fast: Literal["on_critical", "always", "never"] | bool
        notify: Sequence[Mapping[str, Any]]
        schedules: Mapping[str, Mapping[str, Any]]
        slurm: Mapping[str, Mapping[str, Any]]
        cancel_grace: Duration
        hide_credentials: bool
        workspace: Mapping[str, str]

else:
    P = R = None


# What a step has and a flow does not, and what to write instead.
_OF_STEPS = {
    "matrix": "run it once for each item of a list: NAME.map([…])",
    **dict.fromkeys(("handler", "on_failure"), "a failure of a child run is dealt with by a route, or in a @program"),
    "undo": "its steps are undone one by one: write @STEP.undo",
}


class Flow(FunctionWrapper, Generic[P, R]):
    """A workflow that is a function. `run` runs it; called inside another flow, it is a child run."""

    fn: Callable[P, R]

    def __init__(self, function: Callable[P, R], keys: dict[str, Any], site: Site) -> None:
        super().__init__(function)
        self.keys = keys
        self.site = site
        self.end_action: tuple[Callback | None, dict[str, Any], Site] | None = None
        # What a program that calls it gets, made once.
        self.built: Built | None = None

    def __repr__(self) -> str:
        return f"<flow {self.name}>"

    def _repr_html_(self) -> str | None:
        """Its graph, in a notebook."""
        import mulligan

        html: str | None = mulligan._flow_html(self)
        return html

    @property
    def name(self) -> str:
        """The name of the workflow: `name=` of `@flow`, or that of the function."""
        return str(self.keys.get("name", self.__name__))

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name in _OF_STEPS:
                hint = _OF_STEPS[name].replace("NAME", self.__name__)
                refuse("flow", f"the flow '{self.name}' has no '{name}', which is for steps", hint=hint)
            raise AttributeError(f"a flow has no attribute '{name}'", name=name, obj=self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another flow: run this one as a child run; the reference is what it returns. Also in a program."""
        recorder = RECORDER.get()
        if recorder is None and (program := running_program()) is not None:
            return program.call(FlowCall(self), args, kwargs)  # type: ignore[no-any-return]
        if recorder is None:
            message = f"the flow '{self.name}' is called like a function"
            refuse("flow", message, hint=f"write {self.__name__}.run(…), or call it inside a flow or a program")
        return record_child(recorder, self, args, kwargs)  # type: ignore[no-any-return]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the parameters; LanguageError for those that do not fit."""
        return Parameters(self.fn, f"flow '{self.name}'").bind(args, kwargs, call_site())

    def map(self, items: Iterable[Any] | dict[str, str], /, *args: Any, **kwargs: Any) -> Mapped[R]:
        """Run the flow once per item, each as a child run: `totals = region.map(regions, day, max_parallel=4)`.

        The item is its first argument; further ones are the same for all. Other keywords are those of the map of a
        step, such as `max_parallel` and `on_item_failure`. `totals.results` has what each child run returns.
        """
        from mulligan.flows.building import map_child

        return map_child(self, items, args, kwargs)  # type: ignore[no-any-return]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        """A call that has not started, in a program: for `gather`, or to be awaited."""
        return FlowCall(self).call(*args, **kwargs)  # type: ignore[no-any-return]

    def options(self, **keys: Any) -> Callable[P, R]:
        """The same flow with keys of its step, when it is called inside another flow: `child.options(retry=1)(x)`.

        In a program: `key`, which names one call.
        """
        if running_program() is not None and RECORDER.get() is None:
            return FlowCall(self, **keys)

        def call(*args: Any, **kwargs: Any) -> Any:
            recorder = RECORDER.get()
            if recorder is None:
                refuse("flow", f"the flow '{self.name}' is called like a function", hint="call it inside another flow")
            own = {key: value for key, value in keys.items() if key != "name"}
            return record_child(recorder, self, args, kwargs, name=keys.get("name", ""), keys=own)

        return call

    @overload
    def end(self, function: F, /) -> F: ...
    @overload
    def end(self, function: None = None, /, **keys: Any) -> Callable[[F], F]: ...

    def end(self, function: Any = None, /, **keys: Any) -> Any:
        """Let a function run last, whatever happened: `@nightly.end`.

        Its parameters are inputs of the flow by name, `failures` (a list), `steps` (how each step ended), `stopping`
        (why the run stops, or None) and `run` (all of these, and `id`). For other actions write
        `nightly.end(shell="./report.sh")`.
        """
        site = call_site()
        if self.end_action is not None:
            refuse("duplicate_key", f"the flow '{self.name}' has two ends", hint="remove one of them", site=site)
        if function is None and any(key in keys for key in ("shell", "http", "sql", "agent", "python")):
            self.end_action = (None, keys, site)
            return None

        def decorate(function: Callable[..., Any]) -> Callback:
            callback = as_callback(function)
            self.end_action = (callback, keys, site)
            return callback

        return decorate if function is None else decorate(function)

    def __mulligan_workflow__(self) -> Workflow:
        from mulligan.flows.building import build

        return build(self).workflow

    def workflow(self) -> Workflow:
        """The workflow that this flow makes, as `mulligan.Workflow`."""
        return self.__mulligan_workflow__()

    def run(self, *args: P.args, **kwargs: P.kwargs) -> mulligan.Run:
        """Run the flow here, durably, to its end: `nightly.run(url="https://…")`.

        It returns the run, also if that failed: look at `run.status`, or call `run.raise_for_status()`. The arguments
        are the inputs. Options go to `mulligan.run`: `mulligan.run(nightly, url="https://…", key="monday")`.
        """
        import mulligan

        refuse_run(self)
        run: mulligan.Run = mulligan.run(self, inputs=self._inputs(args, kwargs))
        return run

    def start(self, *args: P.args, **kwargs: P.kwargs) -> mulligan.Run:
        """Start a run for workers (`mulligan worker`) to drive, and return it at once.

        Options go to `Home.start`: `mulligan.open().start(nightly, url="https://…", key="monday")`.
        """
        import mulligan

        refuse_run(self)
        run: mulligan.Run = mulligan.open().start(self, inputs=self._inputs(args, kwargs))
        return run

    def publish(self, **options: Any) -> Any:
        """Publish it with the files of its project that it needs: `nightly.publish(note="first version")`.

        Options are those of `Home.publish`: `mulligan.open("https://…").publish(nightly)` publishes on a server.
        """
        import mulligan

        refuse_run(self)
        return mulligan.open().publish(self, **options)

    def _inputs(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args:
            return kwargs
        # Whether they fit the inputs is checked when the run is prepared, as for a file.
        return Parameters(self.fn, f"flow '{self.name}'").by_name(args, kwargs, call_site())


def record_child(
    recorder: Any, called: Any, args: Any, kwargs: Any, *, name: str = "", keys: dict[str, Any] | None = None
) -> Any:
    """While a flow is built: a step of it that runs another flow, or a program, as a child run. Its result."""
    site = call_site()
    given = called.bind(args, kwargs)
    record = recorder.add(name or called.name, is_chosen=bool(name), site=site, keys_site=site)
    recorder.last[id(called)] = record
    from mulligan.flows.building import child_of

    file, returns_one_value = child_of(recorder, called)
    inputs = {name: recorder.value(value, record.reads) for name, value in given.items()}
    record.action = {"workflow": {"file": file, "inputs": inputs} if inputs else file}
    apply_keys(recorder, record, located(keys or {}, site))
    outputs = recorder.result(record)
    return outputs[RESULT] if returns_one_value else outputs


class FlowCall:
    """A flow as a program calls it: as a child run, which returns what the flow returns."""

    is_inline = False

    def __init__(self, flow: Flow[Any, Any], *, key: str | int = "", **keys: Any) -> None:
        if keys:
            hint = "in a program 'key' names the call; retries are those of the steps of the flow"
            refuse("type", f"'{next(iter(keys))}' is no option of the flow '{flow.name}' in a program", hint=hint)
        self.flow = flow
        self.fn = flow.fn
        self.name = flow.name
        self.keys = flow.keys
        self.call_key = str(key)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the parameters."""
        return self.flow.bind(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return running_program().call(self, args, kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """A call that has not started."""
        program = running_program()
        if program is None:
            outside_program(f"{self.flow.__name__}.call")
        return program.prepare(self, args, kwargs)

    def __mulligan_workflow__(self) -> Workflow:
        return self._build().workflow

    def read(self, outputs: Any) -> Any:
        """What the flow returns, from the outputs of its run."""
        is_one = isinstance(outputs, dict) and [*outputs] == [RESULT] and self._build().returns_one_value
        return outputs[RESULT] if is_one else outputs

    def _build(self) -> Built:
        if self.flow.built is None:
            from mulligan.flows.building import build

            self.flow.built = build(self.flow)
        return self.flow.built


@overload
def flow(function: Callable[P, R], /) -> Flow[P, R]: ...
@overload
def flow(**keys: Unpack[FlowKeys]) -> Callable[[Callable[P, R]], Flow[P, R]]: ...


def flow(function: Any = None, /, **keys: Any) -> Any:
    """Make a function a workflow: `@flow`, or `@flow(timeout="1h")`. The keywords are the top-level keys of a file.

        @flow
        def nightly(url: str, table: str = "facts"):
            return {"count": load(fetch(url), table)}

    Its parameters are the inputs, what it returns are the outputs. The function runs once, to build the workflow: there
    a step returns a reference to what it will return. `nightly.run(url=…)` and `mulligan run FILE` run the workflow.
    """
    site = call_site()

    def decorate(function: Callable[..., Any]) -> Flow[Any, Any]:
        code = getattr(function, "__code__", None)
        if code is None:
            message = f"a flow is a function, and this is a {type(function).__name__}"
            refuse("function", message, hint="decorate a function: def nightly(url): …", site=site)
        if code.co_flags & (0x20 | 0x80 | 0x200):  # generator, coroutine, asynchronous generator
            hint = "write a plain 'def' without yield: its steps may be async"
            refuse("function", f"the flow '{function.__name__}' is async or a generator", hint=hint, site=site)
        return Flow(function, keys, site)

    return decorate if function is None else decorate(function)
