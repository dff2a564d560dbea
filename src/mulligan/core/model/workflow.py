"""The definition: a checked workflow, as the core reads it. Immutable plain data that converts to JSON and back.

The language builds it, the store pins it, the core and the worker read it. Everything is resolved: defaults are
merged, policies and handlers are inlined, durations are seconds, sizes are bytes. Only the language creates one
(tests use `mulligan.testing`).
"""

# Annotations are values here, not texts: each text would be compiled when a workflow is decoded.
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Literal, dataclass_transform

import msgspec

from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.core.model.schedule import Schedule
from mulligan.errors import CodecError

On = Literal["success", "failure", "always"]
NeedOn = Literal["success", "success_or_skipped", "always"]
Join = Literal["any", "all", "first", "each"]
Take = Literal["all", "first"]
Then = Literal["rerun", "continue"]
Strategy = Literal["recovery", "fallback", "cleanup", "custom"]
Capture = Literal["text", "json", "lines"]
FailFast = Literal["on_critical", "always", "never"]
MergeKind = Literal["none", "fast-forward", "merge", "squash"]
Verdict = Literal["retry", "fail"]
NoticeKind = Literal["needs_person", "failed", "degraded", "completed", "recovered", "late"]

END = "end"
MAX_VISITS_DEFAULT = 10
MAX_RETRIES_DEFAULT = 3
RERUNS_AFTER_LOSS_MAX = 3
END_TIMEOUT_SECONDS = 300.0
SCRIPT_TIMEOUT_SECONDS = 300.0
# How many labels a run may have, and how long their names and their values may be.
LABELS_MAX, LABEL_NAME_CHARS_MAX, LABEL_CHARS_MAX = 50, 63, 200
CANCEL_GRACE_SECONDS = 10.0
VERDICTS: tuple[Verdict, ...] = ("retry", "fail")
MIN_CONFIDENCE_DEFAULT, MAX_PER_RUN_DEFAULT, TRIAGER_TIMEOUT_SECONDS = 0.8, 3, 300.0
# A workflow with `max_parallel` has at most this many steps: all are examined whenever one ends.
MAX_PARALLEL_STEPS = 1_000


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class _Frozen(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Plain immutable data."""


class Expression(_Frozen):
    """A checked CEL expression and the names it reads, dotted: `inputs`, `steps.build`, `pkg`, `error`, `run`."""

    source: str
    reads: tuple[str, ...] = ()
    # In a path: the author allows this value to lead anywhere.
    any_path: bool = False


class Template(_Frozen):
    """Text with expressions in it. A single expression without text keeps the type of its value."""

    parts: tuple[str | Expression, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        if len(self.parts) == 1:
            only = self.parts[0]
            return () if isinstance(only, str) else only.reads
        return tuple(name for part in self.parts if isinstance(part, Expression) for name in part.reads)


class Action(_Frozen):
    """What a place does: the program, and separately the values that go in.

    `params` is a JSON value without expressions. A value goes into a hole, `{"${}": NAME}`, or, for shell, into an
    environment variable NAME. `bindings` has the template of each NAME. So a value never becomes part of a program.
    """

    kind: str
    params: dict[str, Any] = {}
    bindings: dict[str, Template] = {}
    # Bindings that are paths relative to `cwd`: name of the parameter or variable → name of the binding.
    paths: dict[str, str] = {}


# The variable with the file that the lister of a map reads: `over: {file: …}`.
ITEMS_FILE = "_items_file"
MERGE_KINDS: tuple[MergeKind, ...] = ("none", "fast-forward", "merge", "squash")
NOTICE_KINDS: tuple[NoticeKind, ...] = ("needs_person", "failed", "degraded", "completed", "recovered", "late")
# Before the name of an agent, in the name of whoever decided.
AGENT_PREFIX = "agent:"
# The bindings of a command that calls a tool of an MCP server: the name of the tool, and the arguments.
MCP_CALL = ("_tool", "_arguments")
MAX_TURNS_DEFAULT = 20


class Backoff(_Frozen):
    """min(max_delay, delay * factor**(n-1)), spread by jitter (a fraction of it).

    With `delays` the n-th of them replaces the product; the last one applies to all further retries.
    """

    delay: float = 0.0
    factor: float = 1.0
    max_delay: float | None = None
    jitter: float = 0.0
    delays: tuple[float, ...] = ()


class Adjust(_Frozen):
    """What the next attempt gets more of: factors, with caps."""

    memory: float | None = None
    max_memory: int | None = None
    cpus: float | None = None
    max_cpus: float | None = None
    timeout: float | None = None
    max_timeout: float | None = None


class Rule(_Frozen):
    """Matches a failure and grants a retry. Exactly one of codes, exit_codes, exceptions, pattern, any."""

    codes: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    pattern: str | None = None
    any: bool = False
    max_retries: int = MAX_RETRIES_DEFAULT
    backoff: Backoff = Backoff()
    recovery_script: "Command | None" = None
    adjust: Adjust | None = None
    # It grants no retry after the visit has had this many attempts, by any rule.
    max_attempts: int | None = None
    # For an agent with tools or a session: the retry begins again with the prompt. Otherwise it continues.
    restarts_conversation: bool = False
    # The retry avoids the hosts on which the visit has failed.
    avoids_hosts: bool = False
    # Classes of exceptions, which their subclasses match too: see `Failure.exceptions`.
    exceptions: tuple[str, ...] = ()


class Handler(_Frozen):
    """The `on_failure` commands of a place."""

    commands: "tuple[Command, ...]"
    strategy: Strategy = "recovery"
    timeout: float | None = None
    capture: dict[str, Expression] = {}
    rerun: int = 0


class Resources(_Frozen):
    """What an attempt may use. Memory in bytes."""

    cpus: float | None = None
    memory: int | None = None
    gpus: int | None = None
    labels: tuple[str, ...] = ()
    # An allocation of so many nodes, all of it for the one attempt.
    nodes: int | None = None


class Budget(_Frozen):
    """What agents may spend: calls of models and of tools, tokens (input and output together), US dollars.

    At least one is set.
    """

    tokens: int | None = None
    cost: Decimal | None = None
    calls: int | None = None
    tool_calls: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that are set, by name."""
        found = {"calls": self.calls, "tokens": self.tokens, "cost": self.cost, "tool_calls": self.tool_calls}
        return {what: limit for what, limit in found.items() if limit is not None}


class Input(_Frozen):
    """A typed input. Required unless `has_default`."""

    type: Literal["string", "integer", "number", "boolean", "array", "object", "any"] = "string"
    default: Any = None
    has_default: bool = False
    enum: tuple[Any, ...] = ()
    description: str = ""


class StepTool(_Frozen):
    """A step of the file that is not part of the graph: agents call it, with its inputs as arguments."""

    name: str
    command: "Command"
    description: str = ""
    inputs: dict[str, Input] = {}


class ToolServer(_Frozen):
    """An MCP server, and which of its tools an agent may call. `command` calls the tool that the place names.

    `prefix` stands before the names of its tools, for two servers whose tools have the same names.
    """

    command: "Command"
    allow: tuple[str, ...]
    prefix: str = ""


class AgentTools(_Frozen):
    """What an agent may call, and how often. A failed tool is reported to the agent unless `on_failure` is "fail".

    The limits are those of one attempt.
    """

    steps: tuple[StepTool, ...] = ()
    servers: tuple[ToolServer, ...] = ()
    max_turns: int = MAX_TURNS_DEFAULT
    max_calls: int | None = None
    on_failure: Literal["report", "fail"] = "report"

    @property
    def commands(self) -> "tuple[Command, ...]":
        """What runs when a tool is called, by the position of the tool or of its server."""
        return (*(tool.command for tool in self.steps), *(server.command for server in self.servers))


class Command(_Frozen):
    """The definition of a place: a step, a command of an item or a handler, a script, a validator, an undo."""

    action: Action | None = None
    rules: tuple[Rule, ...] = ()
    max_attempts: int | None = None
    timeout: float | None = None
    deadline: float | None = None
    on_failure: Handler | None = None
    handler_failure_fatal: bool = False
    on_success: "tuple[Command, ...]" = ()
    # A condition over `output`, or a command that checks it: at most one of the two.
    validate: Expression | None = None
    validator: "Command | None" = None
    continue_on_error: bool = False
    capture: Capture = "text"
    env: dict[str, Template] = {}
    cwd: Template | None = None
    resources: Resources | None = None
    on_lost: Literal["rerun", "fail"] = "rerun"
    affinity: Literal["host", "any"] = "host"
    breaker: str | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    # Steps and commands of items only: skipped unless this is true.
    when: Expression | None = None
    # Paths that lead to the logs of an attempt: for `stdout`, for `stderr`.
    logs: dict[str, Template] = {}
    # The templated paths among `reads` and `writes`.
    file_paths: dict[str, Template] = {}
    # Whether an earlier result may be reused; None if the file does not say. `cache_key`: what else must be the same.
    cache: bool | None = None
    cache_key: Template | None = None
    # For an agent: what it may call, and the name under which the run keeps its messages for the next agent.
    tools: AgentTools | None = None
    session: str = ""
    # Its breaker is one of several, one per value of this.
    breaker_key: Template | None = None
    # Whether a result may be reused only if the code of its function is the same.
    cache_code: bool = True

    @property
    def retries_max(self) -> int:
        """The most retries that its rules can grant in one visit, within the bounds on attempts."""
        granted = 0
        # A rule with a low bound on attempts grants the most if it comes first.
        for rule in sorted(self.rules, key=lambda rule: rule.max_attempts or math.inf):
            bound = granted + rule.max_retries
            granted = max(granted, min(bound, rule.max_attempts - 1) if rule.max_attempts else bound)
        return min(granted, self.max_attempts - 1) if self.max_attempts else granted


class Need(_Frozen):
    """A need: `of` is a step, or a group in `Workflow.groups` (one barrier for the whole group)."""

    of: str
    on: NeedOn = "success"
    is_group: bool = False


class Edge(_Frozen):
    """A `next` edge. `index` is its position in the step's list, in file order."""

    to: str
    index: int
    on: On = "success"
    when: Expression | None = None
    priority: int | None = None
    codes: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    handles: bool = True
    then: Then | None = None
    backoff: Backoff = Backoff()


class TriageAgent(_Frozen):
    """The agent that is asked before a person, the *triager*, and what it may decide."""

    provider: str
    # Runs the agent, within its own time. It has no rules and no handler: if it fails, a person decides.
    command: Command
    may: tuple[Verdict, ...] = VERDICTS
    min_confidence: float = MIN_CONFIDENCE_DEFAULT
    # How many of its decisions are applied in a run, over all steps and rounds.
    max_per_run: int = MAX_PER_RUN_DEFAULT
    # The most memory (bytes) and time (seconds) that it may give the next attempt; None: it may not change them.
    memory_max: int | None = None
    timeout_max: float | None = None


class Triage(_Frozen):
    """When a failed step is parked for a person or an agent, and what happens if it is not classified in time."""

    when: Literal["unmatched", "exhausted", "always"] = "unmatched"
    # The time of a person. With an agent it begins when the agent has left the decision to a person.
    timeout: float | None = None
    default: Verdict = "fail"
    agent: TriageAgent | None = None


class Map(_Frozen):
    """`over` evaluates to the list of items (also for a literal list), or the command `lister` prints it."""

    over: Expression | None = None
    lister: Command | None = None
    name: str = "item"
    max_parallel: int | None = None
    # In place of the number: evaluated whenever an item may be entered.
    parallel: Expression | None = None
    filter: Expression | None = None
    sort_by: Expression | None = None
    sort_descending: bool = False
    distinct: Expression | None = None
    offset: int = 0
    max_items: int | None = None
    on_item_failure: Literal["fail", "stop", "collect"] = "fail"
    max_failures: int | None = None
    failure_threshold: float | None = None
    # How long an item may take, with all of its commands.
    item_timeout: float | None = None
    # Whether critical failures of items are collected and tolerated like others.
    collect_critical: bool = False
    # What people call an item: a text over the item and its index.
    item_name: Template | None = None


class Step(Command):
    """A step of the graph. With `map` it has `do` instead of an action."""

    name: str = msgspec.field(default="")
    needs: tuple[Need, ...] = ()
    edges: tuple[Edge, ...] = ()
    take: Take = "all"
    no_match: Literal["record", "fail"] = "record"
    join: Join = "any"
    map: Map | None = None
    do: tuple[Command, ...] = ()
    triage: Triage | None = None
    undo: Command | None = None
    max_visits: int = MAX_VISITS_DEFAULT
    is_start: bool = False
    matrix: dict[str, Any] = {}
    # For a step of a matrix: the name of the matrix.
    sweep: str = ""
    # Which failures of this step stop the run; None: those that the workflow says.
    fail_fast: FailFast | None = None
    # What the agents of the step, its items, handlers and scripts may spend in all visits.
    budget: Budget | None = None
    # Each item works in its own worktree: its first command opens it, and its last one merges it into that of the run.
    has_worktrees: bool = False
    # Failures and findings of coverage that its author accepts, each with the reason. A run does not read it.
    accepts: dict[str, str] = {}
    # What the visit beyond `max_visits` fails with: LOOP_LIMIT, or the failure that led to it.
    at_max_visits: Literal["loop_limit", "last_failure"] = "loop_limit"

    @property
    def matrix_name(self) -> str:
        """The matrix that it is shown and read with; "" for none, also for `end_{i}`, since `end` is the last step."""
        return "" if self.sweep == END else self.sweep


class Secret(_Frozen):
    """Where a worker finds a secret. Exactly one is set. The value is never in a workflow, an event or the store."""

    env: str | None = None
    file: str | None = None
    command: str | None = None


class Breaker(_Frozen):
    failures: int = 5
    reset: float = 60.0
    ignore: tuple[str, ...] = ()
    when_open: Literal["wait", "fail"] = "wait"
    # How many tasks may run at once while it is closed; None: any number.
    max_parallel: int | None = None


class Workspace(_Frozen):
    """A run works in a Git worktree. Two steps are added for it: one opens it first, the other ends it last."""

    opens: str
    closes: str
    merge: MergeKind = "none"


class NoticeRule(_Frozen):
    """Which events of a run are sent to which targets. A target is a name in the configuration of the sender."""

    on: tuple[NoticeKind, ...]
    to: tuple[str, ...]
    # A round of the run that lasts longer than this is late. Set if `on` has "late".
    late_after: float | None = None


class Workflow(_Frozen):
    """A checked workflow. `steps` are in file order, without `end`, which always exists."""

    name: str
    steps: tuple[Step, ...]
    end: Step
    inputs: dict[str, Input] = {}
    outputs: dict[str, Template] = {}
    groups: dict[str, tuple[str, ...]] = {}
    files: dict[str, str] = {}
    secrets: dict[str, Secret] = {}
    breakers: dict[str, Breaker] = {}
    fail_fast: FailFast = "on_critical"
    timeout: float | None = None
    # None is `finish`: running attempts may finish.
    cancel_grace: float | None = CANCEL_GRACE_SECONDS
    description: str = ""
    # Workflows called by `workflow` actions, by file name as written: pinned with this one.
    children: "dict[str, Workflow]" = {}
    # The system whose file it was translated from; "" for our own format.
    origin: str = ""
    # How many steps may be active at a time.
    max_parallel: int | None = None
    # Whether text that looks like a credential is hidden in failure contexts and from agents.
    hide_credentials: bool = True
    # Where to find the secrets of calling workflows: it cannot read them, and its output is redacted.
    callers_secrets: tuple[Secret, ...] = ()
    # What the agents of a run may spend in all rounds and in its child runs.
    budget: Budget | None = None
    # The data of a run when it starts.
    data: dict[str, Any] = {}
    workspace: Workspace | None = None
    # Labels of its runs, unless a run is started with others of the same names.
    labels: dict[str, str] = {}
    # Who is notified about its runs. For a child run the rules of the run that called it count instead.
    notify: tuple[NoticeRule, ...] = ()
    # When a server starts runs of it, once it is published. Runs do not have them.
    schedules: dict[str, Schedule] = {}
    # As `accepts` of a step, for all steps.
    accepts: dict[str, str] = {}
    # How jobs are submitted in which workers for it run. A run does not read them.
    slurm: dict[str, SlurmProfile] = {}
    # The digest of the bundle with the files that it was published with; "" if it is a text alone.
    source: str = ""

    def __reduce__(self) -> "tuple[Callable[[bytes], Workflow], tuple[bytes]]":
        """By its canonical JSON: otherwise what is a default here would be written there, as another version."""
        return decode, (encode(self),)


def with_callers_secrets(child: Workflow, caller: Workflow) -> Workflow:
    """The workflow of a child run, with the secrets of its callers: its steps may print them, so they are redacted.

    They are declared with the child, so that a worker that ran nothing of the caller knows them too.
    """
    above = dict.fromkeys((*caller.callers_secrets, *caller.secrets.values()))
    found = tuple(secret for secret in above if secret not in child.secrets.values())
    return msgspec.structs.replace(child, callers_secrets=found) if found else child


def all_commands(found: Iterable[Command | None]) -> Iterator[Command]:
    """These commands and all below them: handlers, scripts, validators, undos, commands of items, tools, triagers."""
    for command in filter(None, found):
        yield command
        # Most commands have nothing below them, and a workflow may have a hundred thousand.
        if command.on_success or command.validator is not None:
            yield from all_commands((*command.on_success, command.validator))
        if command.rules:
            yield from all_commands(rule.recovery_script for rule in command.rules)
        if command.on_failure is not None:
            yield from all_commands(command.on_failure.commands)
        if command.tools is not None:
            yield from all_commands(command.tools.commands)
        if isinstance(command, Step):
            if command.do or command.undo is not None or command.map is not None:
                yield from all_commands((*command.do, command.undo, command.map.lister if command.map else None))
            if command.triage is not None:
                yield from all_commands([triager_of(command)])


def expressions_in(part: Any) -> Iterator[Expression]:
    """The expressions in a part of a workflow, at any depth."""
    if isinstance(part, Expression):
        yield part
    elif isinstance(part, msgspec.Struct):
        for field in part.__struct_fields__:
            yield from expressions_in(getattr(part, field))
    elif isinstance(part, dict | tuple | list):
        for one in part.values() if isinstance(part, dict) else part:
            yield from expressions_in(one)


def triager_of(step: Step) -> Command | None:
    """The command of the agent that decides about failures of the step, if one does."""
    return step.triage.agent.command if step.triage is not None and step.triage.agent is not None else None


def encode(workflow: Workflow) -> bytes:
    """The workflow as canonical JSON: equal workflows give equal bytes."""
    return msgspec.json.encode(workflow, order="sorted")


def version(data: bytes) -> str:
    """The version of a workflow: the hash of its canonical JSON."""
    return hashlib.sha256(data).hexdigest()[:16]


def decode(data: bytes) -> Workflow:
    """The workflow from its stored bytes. Raises CodecError if they are not valid."""
    try:
        return msgspec.json.decode(data, type=Workflow)
    except RecursionError as error:
        raise CodecError("a stored workflow cannot be read: it is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise CodecError(f"a stored workflow cannot be read: {error}") from error
