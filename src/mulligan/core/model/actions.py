"""The one table in which kinds of actions differ: where they run, how they fail, what they ask for, how they are drawn.

No other module compares kinds, except those that read an action from a file (`language/action*`) and those that carry
it out (`worker/actions`). An action of a package has the traits that its plugin gives, which are pinned with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from mulligan.core.model.workflow import Action, Command, Workflow, decode

Shape = Literal["action", "map", "workflow", "wait", "approve", "triage", "group", "end"]
Colour = Literal["slate", "blue", "teal", "cyan", "purple", "indigo", "grey"]

SHELL, APPROVE, WAIT, PYTHON, CHILD_RUN = "shell", "approve", "wait", "python", "workflow"
# Waits for an event that is sent to the run. In files it is `wait` with `event`.
EVENT = "wait_for_event"
# The action that gets the context of earlier failures and outputs.
AGENT = "agent"
# Replaces an action that is not carried out; `params` say how it ends. Not available in files.
FAKE = "fake"
# Opens, merges and removes Git worktrees. Not available in files: `workspace` adds steps with it.
WORKSPACE = "workspace"
# A Python function that calls steps. In files it is `python` with `program: true`.
PROGRAM = "program"
# Lists the tools of an MCP server, or calls one. Not available in files: `tools` of an agent adds it.
MCP = "mcp"
# In the parameters of a call of a program by another one: its workflow, as canonical JSON.
CARRIED = "workflow_text"
# In the parameters of an action of a package: that it waits, and the traits that its plugin gives.
WAITS, TRAITS = "waits", "traits"

# Ten requests fit where one computation does. An agent is a larger process, and runs commands.
REQUEST_CPUS, AGENT_CPUS, DEFAULT_CPUS = 0.1, 0.25, 1.0
WAITING_CPUS = (REQUEST_CPUS, AGENT_CPUS)
# Databases that are files: a query computes here, and a second writer would only wait for the first.
_LOCAL_DATABASES = ("sqlite:", "duckdb:")
# How a call names a function for a command that a reader of another system's files added to the commands of an item.
# What opens and merges the worktree of an item is added by `workspace`.
_ADDED_CALLS = ".runtime.added:"


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is the same for all steps with one kind of action."""

    # Its steps in a sentence: `noun` has no exit code.
    noun: str = ""
    # The engine carries it out itself; a worker starts a process for it; or a warm child calls a function.
    runs_in: Literal["engine", "process", "child"] = "child"
    # The four that the engine carries out: a child run, a person, a timer, an event that is sent to the run.
    calls_run: bool = False
    asks_person: bool = False
    is_timer: bool = False
    awaits_event: bool = False
    is_agent: bool = False
    is_fake: bool = False
    # It runs Python code of the file, which may need packages.
    runs_python: bool = False
    # It calls steps while it runs.
    is_program: bool = False
    # It opens and merges the worktrees of a run: no step of the file, and never the same result twice.
    opens_worktrees: bool = False
    # It is leased ahead of a free slot: the time of one says how long the next takes.
    is_short: bool = False

    # What it asks for by default, while it waits for another machine most of the time.
    waits: bool = False
    cpus: float = DEFAULT_CPUS
    # The parameter with the address of what it waits for: it does not wait for a database that is a file.
    address: str = ""

    # The parameter with a shell script, with SQL; whether its parameters are an HTTP request.
    script: str = ""
    query: str = ""
    is_request: bool = False
    # What doing it twice does twice, whatever its parameters are; what another visit does. "" if nothing is known.
    effect: str = ""
    visit_effect: str = ""
    # Why no result of an earlier run takes its place; "" if one may. `has_result`: what follows depends on it.
    why_not_cached: str = ""
    has_result: bool = True

    # Why no failure of it has one of these codes; its code may report any other.
    never: Mapping[str, str] = {}
    # Codes that it has only if a key of its step asks for them, and what is said without that key.
    only_if_asked: Mapping[str, str] = {}
    # What usually happens to it; an exit code if empty.
    usual_codes: tuple[str, ...] = ()
    has_exit_code: bool = True
    # Whether it may fail with an exception of the user's code, whose class a retry rule can name.
    has_exceptions: bool = True
    # It runs in a process whose memory is limited and measured.
    has_memory: bool = True

    shape: Shape = "action"
    colour: Colour = "grey"
    # The words for an open attempt.
    activity: Literal["task", "approval", "timer", "child", "event"] = "task"
    # More forms of a fake: the keys that belong together.
    fakes: tuple[tuple[str, ...], ...] = ()

    @property
    def runs_nothing(self) -> bool:
        """Whether an attempt of it only waits: for a time, a person or an event."""
        return self.is_timer or self.asks_person or self.awaits_event


_APPROVALS = dict.fromkeys(("APPROVAL_REFUSED", "APPROVAL_EXPIRED"), "it asks nobody for an approval")
_HTTP = ("HTTP_4XX", "HTTP_5XX", "HTTP_429")
_PROCESSES = ("EXIT_NONZERO", "SIGNALED", "OUT_OF_MEMORY", "NO_CAPACITY")
_NO_OUTPUT = {"OUTPUT_MISSING": "it declares no files with 'writes'"}
_NOT_VALIDATED = {"VALIDATION_FAILED": "it has no 'validate'"}
_NO_TIMEOUT = {"TIMEOUT": "it has no 'timeout'"}


def _task(noun: str, *others: str) -> dict[str, str]:
    """Why a task of ours that runs no Python code has none of these codes; `others`: those of further groups."""
    what = {
        "CHILD_FAILED": "has no child run",
        "ITEMS_FAILED": "has no items",
        "REQUIREMENTS_FAILED": "has no requirements",
        "PERMISSION": "raises no PermissionError",
        "TOOL_FAILED": "has no tools",
        "TURN_LIMIT": "has no tools",
        "BUDGET_EXCEEDED": "spends no budget: it is for agents",
        "EXIT_NONZERO": "has no exit code",
        "CONNECTION": "fails with an exit code",
        **dict.fromkeys(_HTTP, "makes no HTTP request"),
    }
    codes = ("CHILD_FAILED", "ITEMS_FAILED", "REQUIREMENTS_FAILED", "PERMISSION", *others)
    return {**{code: f"{noun} {what[code]}" for code in codes}, **_APPROVALS}


def _engine(noun: str, why: str, *codes: str) -> dict[str, str]:
    found = dict.fromkeys((*_HTTP, *_PROCESSES, "CONNECTION", "PERMISSION", "ITEMS_FAILED", *codes), why)
    return {**found, "WORKER_LOST": f"no worker runs {noun}"}


_AGENTS_OWN = ("TOOL_FAILED", "TURN_LIMIT", "BUDGET_EXCEEDED")
TABLE: dict[str, Traits] = {
    SHELL: Traits(
        noun="a shell step",
        has_exceptions=False,
        runs_in="process",
        is_short=True,
        script="text",
        never={
            **_task("a shell step", *_AGENTS_OWN, "CONNECTION"),
            **dict.fromkeys(_HTTP, "a shell step makes no HTTP request that mulligan sees"),
        },
        only_if_asked={**_NO_OUTPUT, **_NOT_VALIDATED, **_NO_TIMEOUT},
        colour="slate",
    ),
    PYTHON: Traits(
        noun="a step with 'python'",
        runs_python=True,
        is_short=True,
        never=_APPROVALS,
        usual_codes=("EXCEPTION",),
        colour="blue",
        fakes=(("returns",), ("raises", "details")),
    ),
    "http": Traits(
        noun="an http step",
        has_exceptions=False,
        waits=True,
        cpus=REQUEST_CPUS,
        is_request=True,
        never=_task("an http step", *_AGENTS_OWN, "EXIT_NONZERO"),
        only_if_asked=_NO_OUTPUT,
        usual_codes=("HTTP_5XX", "HTTP_4XX", "CONNECTION"),
        has_exit_code=False,
        has_memory=False,
        colour="teal",
        fakes=(("status", "headers", "body"),),
    ),
    "sql": Traits(
        noun="an sql step",
        has_exceptions=False,
        waits=True,
        cpus=REQUEST_CPUS,
        address="connection",
        query="query",
        never=_task("an sql step", *_AGENTS_OWN, "EXIT_NONZERO", *_HTTP),
        only_if_asked={**_NO_OUTPUT, **_NOT_VALIDATED},
        usual_codes=("CONNECTION",),
        has_exit_code=False,
        has_memory=False,
        colour="cyan",
        fakes=(("rows",), ("rowcount",)),
    ),
    AGENT: Traits(
        noun="an agent",
        has_exceptions=False,
        runs_in="process",
        is_agent=True,
        waits=True,
        cpus=AGENT_CPUS,
        visit_effect="asks an agent",
        never=_task("an agent"),
        only_if_asked=dict.fromkeys(("TOOL_FAILED", "TURN_LIMIT"), "an agent has no tools"),
        colour="purple",
    ),
    CHILD_RUN: Traits(
        noun="a child run",
        has_exceptions=False,
        runs_in="engine",
        calls_run=True,
        never={
            **_engine("a child run", "a child run that fails is CHILD_FAILED, whatever failed in it", "EXCEPTION"),
            **_APPROVALS,
        },
        only_if_asked=_NO_TIMEOUT,
        has_exit_code=False,
        shape="workflow",
        why_not_cached="each of its steps is cached by itself",
        colour="indigo",
        activity="child",
    ),
    WAIT: Traits(
        noun="a wait",
        has_exceptions=False,
        runs_in="engine",
        is_timer=True,
        why_not_cached="waiting has no result",
        has_result=False,
        never={**_engine("a wait", "a wait runs nothing that could fail so", "CHILD_FAILED"), **_APPROVALS},
        has_exit_code=False,
        shape="wait",
        activity="timer",
    ),
    EVENT: Traits(
        noun="a wait for an event",
        has_exceptions=False,
        runs_in="engine",
        awaits_event=True,
        visit_effect="takes another event",
        why_not_cached="each event is delivered once",
        never={
            **_engine("a wait for an event", "a wait for an event runs nothing that could fail so", "CHILD_FAILED"),
            **_APPROVALS,
        },
        only_if_asked={**_NO_TIMEOUT, "OUTPUT_INVALID": "it has no 'schema'"},
        has_exit_code=False,
        shape="wait",
        activity="event",
        fakes=(("returns",),),
    ),
    APPROVE: Traits(
        noun="an approval",
        has_exceptions=False,
        runs_in="engine",
        asks_person=True,
        visit_effect="asks a person",
        why_not_cached="a person is asked each time",
        has_result=False,
        never=_engine("an approval", "an approval runs nothing that could fail so", "CHILD_FAILED"),
        only_if_asked={"TIMEOUT": "an approval without an answer fails with APPROVAL_EXPIRED"},
        has_exit_code=False,
        shape="approve",
        activity="approval",
    ),
    PROGRAM: Traits(
        noun="a program",
        runs_python=True,
        is_program=True,
        # Between two calls it computes little.
        waits=True,
        cpus=REQUEST_CPUS,
        why_not_cached="each of its steps is cached by itself",
        has_memory=False,
        never=_APPROVALS,
        usual_codes=("EXCEPTION",),
        colour="blue",
    ),
    FAKE: Traits(runs_in="engine", is_fake=True),
    WORKSPACE: Traits(opens_worktrees=True),
    MCP: Traits(waits=True, cpus=REQUEST_CPUS, has_memory=False),
}
# The traits that an action of a package may give; the others are of those that we carry out.
PACKAGED_TRAITS = frozenset(
    {
        "noun",
        "waits",
        "cpus",
        "effect",
        "is_reusable",
        "never",
        "usual_codes",
        "has_exit_code",
        "has_exceptions",
        "has_memory",
    }
)
# A step without an action of its own: it has items.
_NONE = Traits(runs_in="engine")


def traits_of(action: Action | None) -> Traits:
    """The traits of an action; those of no action if there is none."""
    if action is None:
        return _NONE
    known = TABLE.get(action.kind)
    return traits(action.kind, action.params) if known is None else known


def traits(kind: str, params: Mapping[str, Any]) -> Traits:
    """The traits of a kind; of an action of a package, those that its plugin gave when the workflow was read."""
    if (known := TABLE.get(kind)) is not None:
        return known
    given = params.get(TRAITS)
    return _packaged(kind, params.get(WAITS) is True, msgspec.json.encode(given, order="sorted") if given else b"{}")


@lru_cache(maxsize=256)
def _packaged(kind: str, waits: bool, given: bytes) -> Traits:
    found = {"noun": f"a step with '{kind}'", **msgspec.json.decode(given)}
    if waits or found.get("waits"):
        found = {"cpus": REQUEST_CPUS, **found, "waits": True}
    return msgspec.convert(found, Traits)


def traits_problem(given: Mapping[str, Any]) -> str:
    """Why a package cannot give these traits to its action, as the end of a sentence; "" if it can."""
    if other := next((name for name in given if name not in PACKAGED_TRAITS), ""):
        return f"gives the trait '{other}'; an action of a package may give {', '.join(sorted(PACKAGED_TRAITS))}"
    try:
        msgspec.convert(given, Traits)
    except msgspec.ValidationError as error:
        return f"gives a trait of a wrong type: {error}"
    return ""


# Actions that the engine carries out itself, without a worker, in a file.
ENGINE_ACTIONS = frozenset(kind for kind, one in TABLE.items() if one.runs_in == "engine") - {FAKE}


def is_group(action: Action | None) -> bool:
    """Whether it is a group of steps: a child workflow within the file of its caller."""
    return traits_of(action).calls_run and action is not None and action.params.get("group") is True


def is_carried(action: Action | None) -> bool:
    """Whether it calls a workflow whose text it carries: a program calls what no file includes, and perhaps itself."""
    return action is not None and CARRIED in action.params


def called_workflow(action: Action | None, workflow: Workflow) -> Workflow | None:
    """The workflow that an action of this one calls; None if it calls none."""
    if action is None or not traits_of(action).calls_run:
        return None
    if (carried := action.params.get(CARRIED)) is not None:
        return _carried(str(carried))
    return workflow.children.get(str(action.params.get("file")))


@lru_cache(maxsize=64)
def _carried(text: str) -> Workflow:
    return decode(text.encode())


def shell_command(text: str) -> Action:
    """The action that runs a shell text without values."""
    return Action(SHELL, {"text": text})


def is_added(command: Command) -> bool:
    """Whether the command is not one of the file's own: attempts of the item are counted without it."""
    found = traits_of(command.action)
    if found.runs_python and command.action is not None:
        call = str(command.action.params.get("call", ""))
        # Not every module with such a name: a user's command counts.
        return call.startswith("mulligan.") and _ADDED_CALLS in call
    return found.opens_worktrees


def waits(kind: str, params: Mapping[str, Any]) -> bool:
    """Whether an action waits for another machine. A parameter that is not known yet counts as remote."""
    found = traits(kind, params)
    address = params.get(found.address) if found.address else None
    return found.waits and not (isinstance(address, str) and address.strip().lower().startswith(_LOCAL_DATABASES))


def default_cpus(kind: str, params: Mapping[str, Any]) -> float:
    """The processors that an action asks for if its file does not say so."""
    return traits(kind, params).cpus if waits(kind, params) else DEFAULT_CPUS
