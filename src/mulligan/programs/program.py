"""`@program`: a function that decides while it runs, and whose calls of steps are durable.

A module of the user imports this in a warm child, too, which may run under another interpreter: standard library only.
"""

from __future__ import annotations

import os

from mulligan.flows.context import RECORDER, Site, call_site, refuse, refuse_run, running_program
from mulligan.flows.functions import FunctionWrapper
from mulligan.flows.parameters import Parameters
from mulligan.flows.static_types import Generic, overload
from mulligan.flows.step_keys import OF_CALLS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack

    import mulligan
    from mulligan.flows.retries import Duration, Retry
    from mulligan.language.python.builder import Workflow

    P = ParamSpec("P")
    R = TypeVar("R")

    class ProgramKeys(TypedDict, total=False):
        """The keys of a program."""

        name: str
        description: str
        labels: Mapping[str, str]
        # Further keys of inputs, by the names of the parameters: {"url": {"description": "where the rows are"}}.
        inputs: Mapping[str, Mapping[str, Any]]
        # How many calls it may make: 10,000 by default, 25,000 at most.
        calls: int
        # The processor time that it may use between two calls; and the time that it may take as a whole.
        timeout: Duration
        deadline: Duration
        retry: Retry | Sequence[Retry | dict[str, Any]] | dict[str, Any] | int | str | bool
        max_parallel: int
        budget: Mapping[str, Any]
        notify: Sequence[Mapping[str, Any]]
        schedules: Mapping[str, Mapping[str, Any]]
        breakers: Mapping[str, Mapping[str, Any]]
        resources: Mapping[str, Any]
        # Links to its logs, by stdout and stderr.
        logs: Mapping[str, Any]
        hide_credentials: bool
        key: str | int

    class ProgramDecorator(Protocol):
        """What `@program(…)` returns: it makes a program of a function."""

        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncProgram[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Program[P, R]: ...

else:
    P = R = None

# What a step has and a program does not, and what to write instead.
_OF_STEPS = {
    **dict.fromkeys(("map", "matrix"), "call it in a program: gather(NAME.call(one) for one in …)"),
    **dict.fromkeys(("handler", "on_failure"), "write 'except StepFailed' in the program that calls it"),
    "undo": "its steps are undone one by one: write @STEP.undo",
}
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200


class Program(FunctionWrapper, Generic[P, R]):
    """A function that runs as it is written, and whose calls of steps are durable. `run` runs it.

    Called inside another program, it is a child run. `fn` is the plain function.
    """

    fn: Callable[P, R]
    is_inline = False

    def __init__(self, function: Callable[P, R], keys: dict[str, Any], site: Site) -> None:
        super().__init__(function)
        # In a program that calls this one: the name of one call.
        self.call_key = str(keys.get("key", ""))
        self.keys = {name: value for name, value in keys.items() if name not in OF_CALLS}
        self.site = site
        self.__mulligan_function__ = function
        self._parameters: Parameters | None = None

    def __repr__(self) -> str:
        return f"<program {self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _OF_STEPS:
                hint = _OF_STEPS[name].replace("NAME", self.__name__)
                refuse("program", f"the program '{self.name}' has no '{name}', which is for steps", hint=hint)
            raise AttributeError(f"a program has no attribute '{name}'", name=name, obj=self)

    @property
    def name(self) -> str:
        """The name of its runs: `name=` of `@program`, or that of the function."""
        return str(self.keys.get("name", self.__name__))

    @property
    def is_async(self) -> bool:
        """Whether it is an `async def`."""
        return bool(self.fn.__code__.co_flags & _COROUTINE)

    @property
    def parameters(self) -> Parameters:
        """What it takes."""
        if self._parameters is None:
            self._parameters = Parameters(self.fn, f"program '{self.name}'")
        return self._parameters

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the names of the parameters; LanguageError for those that do not fit."""
        return self.parameters.bind(args, kwargs, call_site())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another program: run this one as a child run, and return what it returns. In a flow: the same."""
        if (recorder := RECORDER.get()) is not None:
            from mulligan.flows.flow import record_child

            return record_child(recorder, self, args, kwargs)  # type: ignore[no-any-return]
        return self._caller(f"the program '{self.name}'").call(self, args, kwargs)  # type: ignore[no-any-return]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[None, None, R]:
        """A call that has not started, in another program: for `gather`, or to be awaited."""
        return self._caller(f"{self.__name__}.call").prepare(self, args, kwargs)  # type: ignore[no-any-return]

    def _caller(self, what: str) -> Any:
        running = running_program()
        if running is None:
            if "MULLIGAN_ATTEMPT" in os.environ:  # the message becomes that of a failure, in one line
                raise RuntimeError(f"{what} is called inside a step; let the program that calls the step call it")
            refuse("program", f"{what} is called like a function", hint=f"write {self.__name__}.run(…)")
        return running

    def options(self, **keys: Unpack[ProgramKeys]) -> Program[P, R]:
        """The same program with other keys: `nightly.options(key=region)(region)`."""
        own = {"key": self.call_key} if self.call_key else {}
        return Program(self.fn, {**self.keys, **own, **keys}, call_site())

    def __mulligan_workflow__(self) -> Workflow:
        from mulligan.programs.definitions import workflow_of

        workflow: Workflow = workflow_of(self)
        return workflow

    def run(self, *args: P.args, **kwargs: P.kwargs) -> mulligan.Run:
        """Run the program here, durably, to its end: `nightly.run("monday")`.

        It returns the run, also if that failed: look at `run.status`, or call `run.raise_for_status()`. Options go to
        `mulligan.run`: `mulligan.run(nightly, day="monday", key="monday")`.
        """
        import mulligan

        refuse_run(self)
        run: mulligan.Run = mulligan.run(self, inputs=self._inputs(args, kwargs))
        return run

    def start(self, *args: P.args, **kwargs: P.kwargs) -> mulligan.Run:
        """Start a run for workers (`mulligan worker`) to drive, and return it at once."""
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
        if self.call_key:
            message = f"'key' of the program '{self.name}' names a call in another program, and this is a run"
            hint = f'write mulligan.run({self.__name__}, key="{self.call_key}")'
            refuse("program", message, hint=hint, word="key", site=self.site)
        # Whether they fit is checked when the run is prepared.
        return self.parameters.by_name(args, kwargs, call_site()) if args else kwargs


if TYPE_CHECKING:

    class AsyncProgram(Program[P, R]):
        """A program that is an `async def`."""

        fn: Callable[P, Coroutine[Any, Any, R]]  # type: ignore[assignment]


@overload
def program(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncProgram[P, R]: ...
@overload
def program(function: Callable[P, R], /) -> Program[P, R]: ...
@overload
def program(**keys: Unpack[ProgramKeys]) -> ProgramDecorator: ...


def program(function: Any = None, /, **keys: Any) -> Any:
    """Make a function a program: `@program`, or `@program(deadline="1h")`.

        @program
        def nightly(day: str):
            rows = fetch(day)
            return {"loaded": load(rows) if rows else 0}

    It runs as it is written. What a step has returned is recorded, so a program that was interrupted runs again up to
    where it was, and no step runs twice that has ended. What is not a step must be the same in each such replay: take
    the time, random numbers and ids from `mulligan.now`, `mulligan.random` and `mulligan.uuid4`.
    """
    site = call_site()

    def decorate(function: Any) -> Program[Any, Any]:
        code = getattr(function, "__code__", None)
        if isinstance(function, FunctionWrapper) or code is None:
            kind = (
                f"'{function.__name__}' is decorated already"
                if code is None and isinstance(function, FunctionWrapper)
                else f"a program is a function, and this is a {type(function).__name__}"
            )
            refuse("function", kind, hint="decorate a plain function: def nightly(day): …", site=site)
        if code.co_flags & (_GENERATOR | _ASYNC_GENERATOR):
            message = f"the program '{function.__name__}' is a generator"
            refuse("function", message, hint="return the result: a program has no yield", site=site)
        if keys.get("inline"):
            message = f"'inline' is for steps, and '{function.__name__}' is a program"
            refuse("inline", message, hint="leave it out", word="inline", site=site)
        if keys.get("calls") is not None:
            _check_calls(keys["calls"], site)
        return Program(function, keys, site)

    return decorate if function is None else decorate(function)


def _check_calls(calls: Any, site: Site) -> None:
    try:
        from mulligan.core.model.program_calls import CALLS_MAX
    except ImportError:  # another interpreter, which runs steps: it was checked when the run was started
        return
    if type(calls) is not int or not 1 <= calls <= CALLS_MAX:
        message = f"'calls' must be a number from 1 to {CALLS_MAX}, not {calls!r}"
        hint = "let a part of the calls be a program of its own, which this one calls"
        refuse("range", message, hint=hint, word="calls", site=site)
