"""Random workflows from the whole language, and a random evaluator.

Only valid ones: what the language refuses (a cycle closed by a need, a condition on a failure edge, a remediation
that waits for what it repairs) is never generated, since the core relies on its absence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from random import Random
from typing import Any

import msgspec

from mulligan.core.model.actions import EVENT
from mulligan.core.model.artifacts import describe_dropped, find_dropped
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import (
    END,
    Action,
    Adjust,
    AgentTools,
    Backoff,
    Breaker,
    Budget,
    Command,
    Edge,
    Expression,
    Handler,
    Input,
    Map,
    Need,
    NeedOn,
    NoticeRule,
    On,
    Resources,
    Rule,
    Secret,
    Step,
    StepTool,
    Strategy,
    Template,
    Triage,
    TriageAgent,
    Workflow,
    decode,
)
from mulligan.errors import ExpressionFailed, OutputDropped
from mulligan.language.readers.workspace_steps import OPENS, WorkspaceDraft, with_workspace
from proof.simulator.programs.drawing import EVENTS, STEPS_COUNT, with_program

HANDLER_DEPTH_MAX = 3
CHILD = "child.yaml"
CALLS_MAX = 2
BREAKERS = ("api", "disk")
SECRET = "hunter2-never-shown"
CODES = ("EXIT_NONZERO", "TIMEOUT", "OUT_OF_MEMORY", "SIGNALED", "WORKER_LOST", "CUSTOM", "HTTP_4XX", "ITEMS_FAILED")

_replace = msgspec.structs.replace


@lru_cache(maxsize=8)
def read_workflow(data: bytes) -> Workflow:
    """Decode a workflow once for all callers: it is immutable."""
    return decode(data)


class RandomEvaluator:
    """An evaluator whose answers depend on a seed, the expression and how often it was evaluated."""

    def __init__(self, seed: object, errors_per_thousand: int = 15) -> None:
        self._seed = seed
        self._errors = errors_per_thousand
        self._asked: dict[str, int] = {}

    def evaluate(self, expression: Expression, names: Mapping[str, Any]) -> Any:
        if expression.source in _REAL_VALUES:
            value: Any = names
            for name in expression.source.split("."):
                value = value[name]
            return value
        count = self._asked[expression.source] = self._asked.get(expression.source, 0) + 1
        text = f"{self._seed}:{expression.source}:{count}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        if number % 1000 < self._errors:
            raise ExpressionFailed(f"no such key in '{expression.source}'")
        # It reads all that it may read.
        if (dropped := find_dropped(dict(names))) is not None:
            raise OutputDropped(describe_dropped(dropped))
        return _ANSWERS[expression.source.partition(".")[0]](number // 1000)

    def keep(self, name: str, value: Any) -> Any:
        return value

    def condition(self, expression: Expression, names: Mapping[str, Any]) -> bool:
        answer = self.evaluate(expression, names)
        if not isinstance(answer, bool):
            raise ExpressionFailed(f"'{expression.source}' is not a condition")
        return answer

    def render(self, template: Template, names: Mapping[str, Any]) -> Any:
        values = [part if isinstance(part, str) else self.evaluate(part, names) for part in template.parts]
        return values[0] if len(values) == 1 else "".join(map(str, values))


# What the steps of a workspace read: where the run works.
_REAL_VALUES = (
    *("run.id", f"steps.{OPENS}.output"),
    # Of a call of a program: its arguments.
    *("inputs", "inputs.seconds", "inputs.prompt", "inputs.timeout", "inputs.event", "inputs.default"),
)


def _some_list(number: int) -> Any:
    if number % 29 == 0:
        return "not a list"
    return [(number >> shift) % 5 for shift in range(number % 5)]


_ANSWERS: dict[str, Callable[[int], Any]] = {
    "bool": lambda number: number % 4 != 0,
    "list": _some_list,
    "key": lambda number: (None, number % 7, f"k{number % 3}", [number % 2])[number % 4],
    "seconds": lambda number: (0.5, 3, 20, "soon", -1)[number % 5],
    "text": lambda number: f"text {number % 10}",
    "secrets": lambda number: SECRET,
}


class WorkflowGenerator:
    """Generate one workflow. Every choice comes from `rng`."""

    def __init__(self, rng: Random, calls: int = 0, often: str = "") -> None:
        self.rng = rng
        # What it has more often: "breakers", "calls", "undo", "tools", "cached" or "worktrees".
        self._often = often
        # How many runs are above those of this workflow.
        self._calls = calls
        self._calls_child = False
        self.breakers: dict[str, Breaker] = {}
        self._expressions = 0
        self._item_commands = 0
        self._agents = 0
        self._triages = 0
        self._is_in_tool = False
        # How many features this workflow mixes: plain ones test each feature alone.
        self.spice = rng.choice((0.3, 0.7, 1.3))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share * self.spice

    def expression(self, kind: str, *reads: str) -> Expression:
        self._expressions += 1
        return Expression(f"{kind}.{self._expressions}", reads)

    # -- commands ----------------------------------------------------------------------------------------------------

    def action(self) -> Action:
        kinds = _KINDS if self._calls < CALLS_MAX else _KINDS[:-1]
        # Workflows that are called are plain: the tree grows wide, not deep.
        kind = self.rng.choice(kinds if self._often != "calls" else (*kinds, *("workflow",) * 9 * (not self._calls)))
        if kind == "wait":
            return self._wait()
        if kind == "approve":
            timeout = {"timeout": self.rng.choice((5, 60))} if self.chance(0.6) else {}
            default = {"default": self.rng.choice(("approve", "refuse"))} if self.chance(0.6) else {}
            return Action("approve", {"message": "go on?", **timeout, **default})
        if kind == EVENT:
            timeout = {"timeout": self.rng.choice((5, 60))} if self.chance(0.6) else {}
            other: dict[str, Any] = {"default": self.rng.choice((None, 7))} if timeout and self.chance(0.4) else {}
            schema = {"schema": {"type": "integer"}} if self.chance(0.3) else {}
            return Action(EVENT, {"event": self.rng.choice(EVENTS), **timeout, **other, **schema})
        if kind == "workflow":
            self._calls_child = True
            return Action("workflow", {"file": CHILD})
        self._agents += kind == "agent"
        bindings = self._bindings()
        # Where results are reused, the values count: so they are used.
        text = {"${}": next(iter(bindings))} if bindings and self._often == "cached" else "do it"
        return Action(kind, {"text": text}, bindings)

    def _wait(self) -> Action:
        if self.chance(0.3):
            return Action("wait", {"seconds": {"${}": "V1"}}, {"V1": Template((self.expression("seconds", "inputs"),))})
        if self.chance(0.2):
            return Action("wait", {"until": self.rng.choice(("2026-01-01T00:01:00Z", "2025-01-01T00:00:00Z"))})
        return Action("wait", {"seconds": self.rng.choice((0, 1, 5, 40))})

    def _bindings(self) -> dict[str, Template]:
        found = {}
        if self.chance(0.2):
            found["V1"] = Template((self.expression("text", "inputs", "error", "failure"),))
        if self.chance(0.1):
            secret = self.expression("secrets", "secrets.token")
            found["V2"] = Template(("Bearer ", secret, self.expression("text", "run")))
        return found

    def backoff(self) -> Backoff:
        if not self.chance(0.5):
            return Backoff()
        return Backoff(
            delay=self.rng.choice((0.5, 2.0, 15.0)),
            factor=self.rng.choice((1.0, 2.0)),
            max_delay=self.rng.choice((None, 5.0)),
            jitter=self.rng.choice((0.0, 0.3)),
        )

    def rule(self, depth: int) -> Rule:
        kinds: tuple[dict[str, Any], ...] = ({"any": True}, {"exit_codes": (1, 7)}, {"pattern": "tail"})
        matcher = self.rng.choice((*kinds, {"codes": self._codes()}))
        more = Adjust(memory=1.5, max_memory=2**30, timeout=2.0, cpus=2.0, max_cpus=4)
        max_retries = self.rng.choice((0, 1, 1, 2))
        return Rule(
            **matcher,
            max_retries=max_retries,
            # With a limit of attempts, one of the many retries is one too many.
            max_attempts=2 if max_retries == 2 and self.rng.random() < 0.5 else None,
            backoff=_named_delays(self.backoff()),
            recovery_script=self.command(depth + 1) if depth < HANDLER_DEPTH_MAX and self.chance(0.3) else None,
            adjust=more if self.chance(0.3) else None,
        )

    def _codes(self) -> tuple[str, ...]:
        return tuple(self.rng.sample(CODES, self.rng.randint(1, 3)))

    def rules(self, depth: int) -> tuple[Rule, ...]:
        return tuple(self.rule(depth) for _ in range(self.rng.randint(1, 3))) if self.chance(0.5) else ()

    def handler(self, depth: int) -> Handler | None:
        if depth >= HANDLER_DEPTH_MAX or not self.chance(0.4 / (depth + 1)):
            return None
        strategies: tuple[Strategy, ...] = ("recovery", "recovery", "fallback", "cleanup", "custom")
        strategy = self.rng.choice(strategies)
        return Handler(
            commands=tuple(self.command(depth + 1) for _ in range(self.rng.choice((1, 1, 2)))),
            strategy=strategy,
            timeout=self.rng.choice((3.0, 60.0)) if self.chance(0.3) else None,
            capture={"found": self.expression("text", "output", "error")} if self.chance(0.2) else {},
            rerun=self.rng.randint(1, 2) if strategy == "recovery" and self.chance(0.4) else 0,
        )

    def command_fields(self, depth: int) -> dict[str, Any]:
        """Return what a step and a command have in common, except for the action."""
        fields: dict[str, Any] = {"rules": self.rules(depth), "on_failure": self.handler(depth)}
        choices: dict[str, tuple[float, Callable[[], Any]]] = {
            "max_attempts": (0.15, lambda: self.rng.randint(1, 3)),
            "timeout": (0.2, lambda: self.rng.choice((5.0, 30.0))),
            "deadline": (0.15, lambda: self.rng.choice((4.0, 30.0, 120.0))),
            "handler_failure_fatal": (0.15, lambda: True),
            "continue_on_error": (0.15, lambda: True),
            "env": (0.1, lambda: {"A": Template(("x", self.expression("text", "inputs")))}),
            "cwd": (0.05, lambda: Template((self.expression("text", "inputs"),))),
            "resources": (0.2, lambda: Resources(cpus=self.rng.choice((1, 1, 2)), memory=2**20)),
            "on_lost": (0.3, lambda: "fail"),
            "affinity": (0.1, lambda: "any"),
        }
        fields.update({name: make() for name, (share, make) in choices.items() if self.chance(share)})
        if depth < HANDLER_DEPTH_MAX:
            fields.update(self._checks(depth))
        return fields

    def _checks(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance(0.15):
            found["on_success"] = tuple(self.command(depth + 1) for _ in range(self.rng.randint(1, 2)))
        if self.chance(0.1):
            found["validate"] = self.expression("bool", "output", "inputs")
        elif self.chance(0.1):
            found["validator"] = self.command(depth + 1)
        return found

    def command(self, depth: int) -> Command:
        return Command(**self._what(), **self.command_fields(depth))

    def _agent_with_tools(self) -> dict[str, Any]:
        """Return an agent whose model asks for tools, which have their own rules and handlers."""
        self._is_in_tool = True
        tools = tuple(
            StepTool(name, self.command(HANDLER_DEPTH_MAX - 1), inputs={"word": Input()})
            for name in ("look", "note")[: self.rng.randint(1, 2)]
        )
        self._is_in_tool = False
        self._agents += 1
        return {
            "action": Action("agent", {"prompt": "do it"}),
            "tools": AgentTools(
                steps=tools,
                max_turns=self.rng.choice((2, 4, 20)),
                max_calls=self.rng.choice((None, 1, 3)),
                on_failure=self.rng.choice(("report", "fail")),
            ),
            "session": self.rng.choice(("", "chat")),
        }

    def _what(self) -> dict[str, Any]:
        """Return the action; sometimes behind a breaker, if a worker runs it."""
        if self._often == "tools" and not self._is_in_tool and self.rng.random() < 0.5:
            return self._agent_with_tools()
        action = self.action()
        if action.kind in _ENGINES_OWN or not self.chance(3.0 if self._often == "breakers" else 0.2):
            return {"action": action}
        name = self.rng.choice(BREAKERS)
        self.breakers.setdefault(name, self.breaker())
        return {"action": action, "breaker": name}

    def breaker(self) -> Breaker:
        return Breaker(
            failures=self.rng.choice((1, 1, 2)),
            reset=self.rng.choice((5.0, 60.0)),
            ignore=("HTTP_4XX",) if self.chance(0.3) else (),
            when_open=self.rng.choice(("wait", "fail")),
            max_parallel=self.rng.choice((None, 1, 2)),
        )

    def item_command(self) -> Command:
        """Return a command of an item; every second one has a condition."""
        self._item_commands += 1
        when = self.expression("bool", "inputs", "output", "outputs") if self._item_commands % 2 == 0 else None
        return Command(**self._what(), when=when, **self.command_fields(1))

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self, index: int, count: int) -> Step:
        what = self._what()
        if self.chance(0.2):
            what = {"map": self.map(), "do": tuple(self.item_command() for _ in range(self.rng.choice((1, 1, 2))))}
        return Step(
            name=f"s{index}",
            needs=self.needs(index),
            edges=self.edges(index, count),
            take=self.rng.choice(("all", "all", "first")),
            no_match="fail" if self.chance(0.2) else "record",
            join=self.rng.choice(("any", "all", "first", "each")),
            when=self.expression("bool", "inputs", f"steps.s{self.rng.randrange(count)}") if self.chance(0.2) else None,
            triage=self.triage() if self.chance(0.25) else None,
            undo=self.command(1) if self.chance(3.0 if self._often == "undo" else 0.25) else None,
            max_visits=self.rng.choice((1, 2, 2, 3)),
            is_start=self.chance(0.1),
            **what,
            **self.command_fields(0),
            **self._cache_fields(),
        )

    def _cache_fields(self) -> dict[str, Any]:
        """Return whether a step may take an earlier result; where no theme is about that, no step says so."""
        if self._often != "cached":
            return {}
        key = Template((self.expression("bool", "inputs"),)) if self.rng.random() < 0.2 else None
        return {"cache": self.rng.choice((True, True, True, None, False)), "cache_key": key}

    def triage(self) -> Triage:
        self._triages += 1
        return Triage(
            when=self.rng.choice(("unmatched", "exhausted", "always")),
            timeout=self.rng.choice((None, 10.0, 50.0)),
            default=self.rng.choice(("retry", "fail")),
            # Counted instead of drawn, so that earlier seeds give the same workflows otherwise.
            agent=_TRIAGERS[self._triages % len(_TRIAGERS)],
        )

    def map(self) -> Map:
        lister = self.command(2) if self.chance(0.3) else None
        return Map(
            over=None if lister else self.expression("list", "inputs"),
            lister=lister,
            max_parallel=self.rng.choice((None, 1, 2)),
            filter=self.expression("bool", "item", "index") if self.chance(0.2) else None,
            sort_by=self.expression("key", "item") if self.chance(0.2) else None,
            sort_descending=self.chance(0.1),
            distinct=self.expression("key", "item") if self.chance(0.2) else None,
            offset=1 if self.chance(0.1) else 0,
            max_items=2 if self.chance(0.2) else None,
            on_item_failure=self.rng.choice(("fail", "stop", "collect")),
            max_failures=self.rng.randint(0, 2) if self.chance(0.2) else None,
            failure_threshold=self.rng.choice((0.0, 0.34, 0.5)) if self.chance(0.2) else None,
        )

    def needs(self, index: int) -> tuple[Need, ...]:
        """Return needs of earlier steps, or of the group of the first two."""
        if index == 0 or not self.rng.random() < 0.5:
            return ()
        names = self.rng.sample(range(index), min(index, self.rng.choice((1, 1, 2))))
        conditions: tuple[NeedOn, ...] = ("success", "success", "success_or_skipped", "always")
        found = [Need(f"s{other}", self.rng.choice(conditions)) for other in names]
        if index > 2 and self.chance(0.3):
            found.append(Need("first", self.rng.choice(conditions), is_group=True))
        return tuple(found)

    def edges(self, index: int, count: int) -> tuple[Edge, ...]:
        made = [self.edge(index, count) for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3)))]
        priorities = self.rng.sample(range(10), len(made))
        return tuple(
            _replace(edge, index=i, priority=None if edge.priority is None else priorities[i])
            for i, edge in enumerate(made)
        )

    def edge(self, index: int, count: int) -> Edge:
        conditions: tuple[On, ...] = ("success", "success", "failure", "failure", "always")
        on = self.rng.choice(conditions)
        to = self._target(index, count)
        return Edge(to, 0, on, **(self._failure_fields(to) if on == "failure" else self._when()))

    def _target(self, index: int, count: int) -> str:
        """Return a target: usually a later step; sometimes an earlier one, which makes a loop; sometimes `end`."""
        if self.chance(0.25):
            return f"s{self.rng.randint(0, index)}"
        return f"s{self.rng.randint(index + 1, count - 1)}" if index + 1 < count and self.rng.random() < 0.95 else END

    def _when(self) -> dict[str, Any]:
        return {"when": self.expression("bool", "output")} if self.chance(0.3) else {}

    def _failure_fields(self, to: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"priority": 0} if self.chance(0.4) else {}
        if self.chance(0.25):
            fields["codes"] = (*self._codes(), "HANDLER_FAILED")
        elif self.chance(0.2):
            fields["exit_codes"] = (1, 7)
        if self.chance(0.2):
            fields["handles"] = False
        elif to != END and self.rng.random() < 0.6:
            fields["then"] = self.rng.choice(("rerun", "continue"))
        return fields

    # -- the whole ---------------------------------------------------------------------------------------------------

    def workflow(self) -> Workflow:
        count = self.rng.choice((1, 1, 2) if self._calls else (1, 2, 3, 3, 4, 4, 5, 6, 8))
        made = self._with_steps(count)
        children = {CHILD: random_workflow(self.rng, self._calls + 1, self._often)} if self._calls_child else {}
        notify = _NOTIFY if count % 2 else ()
        return _replace(made, breakers=self.breakers, children=children, budget=self._budget(), notify=notify)

    def _budget(self) -> Budget | None:
        """Return budgets for every second workflow with agents, low enough to be reached."""
        if self._often == "tools":
            # Few runs would get as far as a tool with the low limits of others.
            return Budget(calls=12, tool_calls=self._agents + 2) if self._agents % 2 else None
        return Budget(calls=self._agents, tokens=25) if self._agents % 2 else None

    def _with_steps(self, count: int) -> Workflow:
        return Workflow(
            name="random",
            steps=tuple(self.step(index, count) for index in range(count)),
            end=self.end(),
            groups={"first": tuple(f"s{index}" for index in range(min(count, 2)))},
            outputs={"result": Template((self.expression("text", "steps.s0", "run"),))} if self.chance(0.2) else {},
            secrets={"token": Secret(env="TOKEN")},
            fail_fast=self.rng.choice(("on_critical", "always", "never", "never")),
            timeout=self.rng.choice((20.0, 90.0, 400.0)) if self.chance(0.3) else None,
            cancel_grace=self.rng.choice((10.0, 0.0, None)),
        )

    def end(self) -> Step:
        if not self.chance(0.35):
            return Step(name=END)
        fields = self.command_fields(0)
        kept = {name: fields[name] for name in ("rules", "on_failure", "validate", "validator") if name in fields}
        return Step(name=END, **self._what(), timeout=300.0, **kept)


_NOTIFY = (
    NoticeRule(on=("needs_person", "failed", "degraded", "late"), to=("ops",), late_after=30.0),
    NoticeRule(on=("completed", "recovered", "late"), to=("ops", "team"), late_after=90.0),
)
_ENGINES_OWN = frozenset({"wait", "approve", "workflow", EVENT})
_ASKED = Command(action=Action("agent", {"provider": "triager"}), timeout=60.0, deadline=60.0)
_TRIAGERS = (
    None,
    TriageAgent("triager", _ASKED, may=("retry",), max_per_run=1),
    TriageAgent("triager", _ASKED, max_per_run=2, memory_max=2**22),
)
_KINDS = ("shell",) * 8 + ("python", "http", "agent", "wait", "wait", "approve", EVENT, "workflow")


# -- only valid ones -------------------------------------------------------------------------------------------------


def random_workflow(rng: Random, calls: int = 0, often: str = "") -> Workflow:
    """Return a valid workflow, with those that it calls, determined by `rng`. `often`: what it has more of."""
    author = WorkflowGenerator(rng, calls, often)
    if often == "programs" and not calls:
        steps = tuple(author.step(index, STEPS_COUNT) for index in range(STEPS_COUNT))
        return with_program(rng, _replace(author.workflow(), breakers=author.breakers), steps)
    workflow = without_waiting_remediations(author.workflow())
    if has_cycle_of_needs(Graph(workflow)):
        workflow = _replace(workflow, steps=tuple(_replace(step, needs=()) for step in workflow.steps))
    made = _with_delays(workflow, author)
    if often != "worktrees" or calls:
        return made
    return with_workspace(made, WorkspaceDraft(merge=rng.choice(("merge", "merge", "none"))))


def is_allowed(workflow: Workflow) -> bool:
    """Whether the core accepts it: for workflows that were shrunk."""
    return not has_cycle_of_needs(Graph(workflow)) and without_waiting_remediations(workflow) == workflow


def has_cycle_of_needs(graph: Graph) -> bool:
    """Whether a cycle is left without the loop edges: then a need closes it."""
    links = {vertex: set(graph.after(vertex)) for vertex in (*graph.nodes, *graph.barriers)}
    for name, node in graph.nodes.items():
        hops = [arc.to for arc in node.arcs if not arc.is_loop and arc.to != END]
        links[name] = {*hops, *(target for target, _ in node.dependents), *(b.key for b in node.barriers)}
    while True:
        leaves = [vertex for vertex, targets in links.items() if not targets & links.keys()]
        if not leaves:
            return bool(links)
        for vertex in leaves:
            del links[vertex]


def without_waiting_remediations(workflow: Workflow) -> Workflow:
    """Whether no remediation needs what it repairs, or what follows that."""
    graph = Graph(workflow)
    refused: dict[str, set[str]] = {}
    for name, node in graph.nodes.items():
        for arc in node.arcs:
            if arc.edge.on == "failure" and arc.to != END:
                refused.setdefault(arc.to, set()).update(graph.region(name))
    steps = tuple(_needing_less(step, refused.get(step.name, ()), graph) for step in workflow.steps)
    return _replace(workflow, steps=steps)


def _needing_less(step: Step, refused: Iterable[str], graph: Graph) -> Step:
    groups = graph.workflow.groups
    bad = set(refused)
    kept = tuple(n for n in step.needs if not bad.intersection(groups[n.of] if n.is_group else (n.of,)))
    return step if len(kept) == len(step.needs) else _replace(step, needs=kept)


def _named_delays(backoff: Backoff) -> Backoff:
    """Give equal delays different names."""
    return _replace(backoff, delays=(backoff.delay, 0.0, 7.0)) if backoff.delay and backoff.factor == 1.0 else backoff


def _with_delays(workflow: Workflow, author: WorkflowGenerator) -> Workflow:
    """Remove delays from edges that do not close a loop."""
    graph = Graph(workflow)
    steps = []
    for step in workflow.steps:
        arcs = graph.nodes[step.name].arcs
        edges = tuple(_replace(a.edge, backoff=author.backoff()) if a.is_loop else a.edge for a in arcs)
        steps.append(_replace(step, edges=edges))
    return _replace(workflow, steps=tuple(steps))
