"""A proof that cannot fail proves nothing: of deliberate defects in stores, engine and core each is found."""

from __future__ import annotations

import pytest
from tests.support.nightly import examples

from mulligan.core.model.actions import EVENT
from mulligan.core.model.workflow import Action, Breaker, Command, Map, Need, Step, Triage, TriageAgent, Workflow
from mulligan.testing.history import command, expression, handler, retry, step, workflow
from proof.simulator.fault_budget import STORE_KINDS, FaultBudget, StoreKind
from proof.simulator.shrinking import complaint
from proof.simulator.simulation import Simulation
from proof.simulator.themes import (
    CACHED,
    FORKS,
    GUESTS,
    HOLDS,
    OUTAGES,
    PROGRAMS,
    RACING_SERVERS,
    REMOTE,
    SERVERS,
    TOOLS,
    WORKTREES,
    Theme,
)

from . import sabotage_agents as sabotage_agents
from . import sabotage_cache as sabotage_cache
from . import sabotage_core as sabotage_core
from . import sabotage_events as sabotage_events
from . import sabotage_programs as sabotage_programs
from . import sabotage_remote as sabotage_remote
from . import sabotage_servers as sabotage_servers
from . import sabotage_worktrees as sabotage_worktrees
from .sabotage import DEFECTS

pytestmark = pytest.mark.one_by_one

# From the seed that is known to show it; others do too, should that one tell another story some day.
# By day not many: a table that a change of what the simulator draws has left behind would make every run slow.
HISTORIES_MAX, HISTORIES_BY_DAY = 4000, 200

# Where random workflows seldom have what it takes: everything behind one breaker that opens at once,
GUARDED = workflow(
    *(step(f"s{number}", breaker="net", rules=retry(4, delay=1)) for number in range(5)),
    breakers={"net": Breaker(failures=1, reset=1.0)},
)
# or that lets two tasks run at once,
COUNTED = workflow(
    *(step(f"s{number}", breaker="net", rules=retry(4, delay=1)) for number in range(5)),
    breakers={"net": Breaker(failures=2, reset=1.0, max_parallel=2)},
)
# runs that call others and do not wait for long,
CALLED = workflow(step("x", rules=retry(1, delay=3)), step("y", needs=["x"]))
CALLING = workflow(
    *(step(f"s{number}", action=Action("workflow", {"file": "child.yaml"}), timeout=20.0) for number in range(2)),
    step("z"),
    children={"child.yaml": CALLED},
)
# runs that are tried again with those that they have called,
_AGAIN = Action("workflow", {"file": "child.yaml"})
RETRIED = workflow(
    *(step(f"s{number}", action=_AGAIN, rules=retry(3, delay=2)) for number in range(2)),
    step("z"),
    step("s2", needs=["z"], action=_AGAIN),
    children={"child.yaml": CALLED},
)
# and many tasks at once.
PLAIN = workflow(
    step("a", undo=command("un")),
    step("b", undo=command("un")),
    step("c", rules=retry(2, delay=30)),
    step("d", on_failure=handler("fix", rerun=2), rules=retry(1, delay=2)),
    step("f"),
)

# A step that runs whatever became of the one before it, and one that is built on that.
BEHIND = workflow(step("a"), step("b", needs=[Need("a", "always")]), step("c", needs=["b"]), step("d"))

# Steps that a person has to approve, and that read what the run is started with.
APPROVED = workflow(
    step("ask", action=Action("approve", {"message": "go on?"})),
    step("go", needs=["ask"], when="bool.1"),
    step("on", needs=["ask"]),
)

# Runs whose time is soon up, with retries that come due around that time, and more steps than workers have slots;
TIMED = workflow(*(step(f"s{number}", rules=retry(3, delay=8)) for number in range(8)), timeout=20.0)
# and runs that call others, which have to undo what they did.
UNDOING = workflow(
    *(step(f"s{n}", action=Action("workflow", {"file": "child.yaml"}), rules=retry(3, delay=1)) for n in range(2)),
    children={"child.yaml": workflow(step("x", undo=command("un")), step("y", needs=["x"]))},
)

# Steps that wait for events of one name, early and late, and fail with some of them.
_PAID = {"event": "paid"}
WAITING = workflow(
    step("a"),
    step("b", needs=["a"], action=Action(EVENT, {**_PAID, "schema": {"type": "integer"}}), rules=retry(1, delay=2)),
    step("c", needs=["b"], action=Action(EVENT, _PAID)),
    step("d", needs=["c"]),
    step("e", action=Action(EVENT, {**_PAID, "timeout": 20.0})),
)
_NUMBER = Action(EVENT, {**_PAID, "schema": {"type": "integer"}})
WAITING_ITEMS = workflow(
    step("a"), step("m", needs=["a"], map=Map(over=expression("list.1")), do=(Command(action=_NUMBER),))
)
WAITING_UNDONE = workflow(step("a", action=Action(EVENT, _PAID), undo=command("un")), step("b", needs=["a"]))

# Steps about which an agent is asked, which may retry one of them.
_ASKED = Command(action=Action("agent", {"provider": "triager"}), timeout=60.0, deadline=60.0)
_TRIAGE = Triage("always", agent=TriageAgent("triager", _ASKED, may=("retry",), max_per_run=1))
TRIAGED = workflow(*(step(f"s{number}", triage=_TRIAGE) for number in range(3)))

# or steps that are in a group which others wait for.
GROUPED = workflow(
    *(step(f"s{number}") for number in range(3)),
    Step(name="last", action=Action("shell", {"text": "true"}), needs=(Need("all", is_group=True),)),
    groups={"all": ("s0", "s1", "s2")},
)

# What is broken, in which workflow (random: None) and kind of store, from which seed on, and the promise that says so.
FOUND: list[tuple[str, Workflow | None, StoreKind, int, str]] = [
    ("a fork works in the worktree of the run that it was forked from", None, "memory", 2, "promise 14"),
    ("a fork at an event goes on in the worktree of the other run", None, "memory", 5, "promise 14"),
    ("the steps of a fork do not wait until its worktree is open", None, "memory", 14, "promise 10"),
    ("a triager decides whatever it likes", TRIAGED, "memory", 1, "promise 3"),
    ("a commit forgets its timers", None, "shared", 1, "promise 10"),
    ("a commit forgets what it queues", None, "shared", 3, "promise 10"),
    ("a commit forgets to tell another run", None, "memory", 8, "promise 10"),
    ("a commit forgets what it stops", None, "memory", 67, "promise 7"),
    ("a commit writes the log and not the rows", None, "memory", 2, "promise 8"),
    ("the last commit of a round is none", None, "sqlite", 5, "promise 7"),
    ("a commit starts no child runs that it was to start", None, "sqlite", 8, "promise 10"),
    ("a message is drained, and who asked gets no answer", None, "memory", 0, "promise 10"),
    ("on SQLite a row that goes is kept", None, "sqlite", 6, "promise 8"),
    ("on SQLite a message that came meanwhile goes with those that were read", None, "sqlite", 18, "promise 10"),
    ("on SQLite the fence does not grow", None, "sqlite", 1, "promise 2"),
    ("on SQLite the dead keep their turns", None, "sqlite", 8, "promise 7"),
    ("on SQLite the timers of a round outlive it", None, "sqlite", 8, "promise 7"),
    ("every second token is that of the lease before", None, "shared", 0, "promise 2"),
    ("a task is handed out that somebody has", None, "shared", 1, "promise 4"),
    ("a new holder has the old fence", None, "memory", 0, "promise 2"),
    ("who is buried keeps one of its leases", None, "memory", 2, "promise 7"),
    ("who is buried keeps its turns", None, "memory", 0, "promise 7"),
    ("a lease ends, and its run is not told", None, "memory", 2, "promise 10"),
    ("a timer is taken down, and nobody is told", None, "shared", 1, "promise 10"),
    ("others pass a breaker while its probe is under way", GUARDED, "memory", 3, "promise 7"),
    ("a breaker whose probe was lost is never probed again", GUARDED, "memory", 8, "promise 10"),
    ("a breaker that opens already waits for a probe", GUARDED, "memory", 3, "promise 7"),
    ("more tasks run behind a breaker than may fail before it opens", COUNTED, "memory", 1, "promise 7"),
    ("a commit forgets what its breakers count", GUARDED, "shared", 13, "promise 7"),
    ("on SQLite a breaker does not count", GUARDED, "sqlite", 1, "promise 7"),
    ("a commit forgets to tell the child runs", CALLING, "memory", 5, "promise 6"),
    ("a turn is believed that is another's by now", PLAIN, "shared", 873, "promise 8"),
    ("who takes a run up forgets the tasks that wait", PLAIN, "memory", 13, "promise 10"),
    ("who was kept from his work for long takes it for his own", PLAIN, "shared", 2128, "promise 6"),
    ("after the store was away what runs is started again", PLAIN, "shared", 40, "promise 4"),
    (
        "after the store was away what a commit without an answer gave is not started",
        PLAIN,
        "memory",
        893,
        "promise 10",
    ),
    ("an engine never asks the store for tasks", None, "shared", 11, "promise 10"),
    (
        "a worker that was alone when it last looked takes what belongs to the host of another",
        PLAIN,
        "shared",
        73,
        "promise 15",
    ),
    ("a timer that has passed already is not fired", None, "memory", 10, "promise 10"),
    ("a child run ends and tells nobody", None, "memory", 8, "promise 10"),
    ("a rule grants more retries than it has", None, "memory", 16, "promise 3"),
    ("an agent is called though its budget is spent", None, "memory", 20, "promise 3"),
    ("a retry is reserved twice", None, "memory", 14, "promise 10"),
    ("a retry starts when its script has ended, whatever its delay", None, "memory", 189, "promise 5"),
    ("a stopped run goes on with a retry whose script has ended", None, "memory", 109, "promise 5"),
    ("a run with a failure that nobody handled has completed", None, "memory", 3, "promise 1"),
    ("a step that can never start waits for ever", None, "memory", 6, "promise 10"),
    ("a reserved retry has no timer", None, "memory", 17, "promise 10"),
    ("a secret is written into what a task is told", None, "shared", 10, "promise 9"),
    ("on SQLite only the first of the child runs is told", CALLING, "sqlite", 27, "promise 6"),
    ("a report counts whose lease is void", PLAIN, "shared", 756, "promise 2"),
    ("a turn that could not be written has forgotten what it was told", PLAIN, "memory", 175, "promise 4"),
    ("what our own tasks came to goes with a turn that is another's", PLAIN, "shared", 676, "promise 10"),
    ("a task is started though its turn has ended it before", None, "memory", 816, "promise 6"),
    ("a task is started though its turn has asked it to stop", PLAIN, "memory", 5, "promise 6"),
    ("what a run was told when the store went away is forgotten", PLAIN, "memory", 116, "promise 4"),
    ("what ends while the store is away is forgotten", PLAIN, "memory", 67, "promise 4"),
    ("the dead are not buried", None, "memory", 0, "promise 7"),
    ("after an outage the first one back buries all others", PLAIN, "shared", 24, "promise 7"),
    ("an old heartbeat says nothing to anybody", PLAIN, "shared", 0, "promise 7"),
    ("who is buried leaves its tasks running", PLAIN, "memory", 0, "promise 4"),
    ("timers follow the steps of the wall clock", PLAIN, "memory", 211, "promise 7"),
    ("a run whose log is ahead of the clock waits for it", PLAIN, "sqlite", 288, "promise 10"),
    ("a retry does not wait", PLAIN, "memory", 3, "promise 5"),
    ("a handler runs as often as there are failures", PLAIN, "memory", 550, "promise 3"),
    ("a run that stops keeps the retries that it has reserved", PLAIN, "memory", 54, "promise 6"),
    ("a fork keeps what failed", PLAIN, "memory", 40, "promise 8"),
    ("a new round keeps a result of which something that it depends on runs again", BEHIND, "memory", 2, "promise 4"),
    ("a fork keeps a result of which something that it depends on runs again", BEHIND, "memory", 1, "promise 4"),
    ("end returns a status that no run has, and completes", None, "memory", 144, "promise 1"),
    ("a step runs in the visit after its last", None, "memory", 20, "promise 3"),
    ("a step that is resumed is not queued again", PLAIN, "memory", 3, "promise 10"),
    ("an event is announced to nobody", None, "memory", 0, "promise 11"),
    ("what was done first is undone first", PLAIN, "memory", 21, "promise 4"),
    ("a round runs again unasked what could not be undone", PLAIN, "memory", 23, "promise 4"),
    ("a child run is tried again although it could not undo what it did", UNDOING, "memory", 1, "promise 4"),
    ("what came due before the time of a run was up still starts after it", TIMED, "memory", 1, "promise 6"),
    (
        "who takes a run up starts what was queued, although the time of the run is up",
        TIMED,
        "memory",
        22,
        "promise 6",
    ),
    ("a task is handed out although the time of its run is up", TIMED, "shared", 7, "promise 6"),
    ("what was undone is found by later runs", None, "shared", 253, "promise 12"),
    ("a result is found before its step has completed", None, "shared", 70, "promise 12"),
    ("a result is taken over that its run may still undo", None, "shared", 101, "promise 12"),
    ("steps with other values have one fingerprint", None, "shared", 26, "promise 12"),
    ("a step that is forced to run takes an earlier result", None, "shared", 60, "promise 12"),
    ("a step that runs again on purpose takes an earlier result", None, "shared", 51, "promise 12"),
    ("a result that has set data of the run is found by later runs", None, "memory", 68, "promise 12"),
    ("a request that is repeated is carried out again", PLAIN, "shared", 1118, "promise 10"),
    ("a server that was started again carries out a repeated request", PLAIN, "shared", 172, "promise 10"),
    ("what a remote worker has sent is forgotten before the server has it", PLAIN, "shared", 473, "promise 4"),
    ("a server expires workers whose heartbeats it could not take", PLAIN, "shared", 34, "promise 7"),
    ("the ends of tasks that come with a heartbeat are lost", PLAIN, "shared", 473, "promise 4"),
    ("a lost request of a remote worker counts as answered by the one before", PLAIN, "shared", 98, "promise 10"),
    ("the run of an instant has a key that no other server finds", None, "memory", 22, "promise 13"),
    ("a server writes over what another server has decided meanwhile", None, "shared", 47, "promise 13"),
    ("what a schedule has decided to start is taken for done", None, "memory", 1, "promise 13"),
    ("an instant starts a run though the one before has not ended", None, "memory", 1, "promise 13"),
    ("instants that were missed are not written down", None, "memory", 1, "promise 13"),
    ("instants that would have to wait are dropped", None, "memory", 1, "promise 13"),
    ("the inputs of a run are of an instant after its own", None, "memory", 1, "promise 13"),
    ("a schedule takes every run for one that has ended", None, "memory", 5, "promise 13"),
    ("a schedule misses an instant at which a server looks a second late", None, "memory", 5, "promise 13"),
    ("a notice that a target has refused counts as sent", None, "memory", 1, "promise 11"),
    ("what came of sending notices is not written", None, "memory", 0, "promise 11"),
    ("a notice that was claimed and not tried counts as sent", None, "memory", 63, "promise 11"),
    ("a task that its worker has interrupted has failed", None, "memory", 58, "promise 3"),
    ("a task fails when the time of its first worker is over", None, "memory", 58, "promise 3"),
    ("what an agent has spent is counted twice", None, "memory", 26, "promise 2"),
    ("a tool is called though the calls of its agent are spent", None, "memory", 416, "promise 3"),
    ("a tool that has answered is called again", None, "memory", 0, "promise 2"),
    ("a child run that is retried starts from nothing", RETRIED, "memory", 0, "promise 2"),
    ("a child run is continued though a step before it has run again", RETRIED, "memory", 18, "promise 2"),
    (
        "a further round of a child run ends for the attempt that called the first one",
        RETRIED,
        "memory",
        0,
        "promise 10",
    ),
    ("a child run is not asked for the round that its caller waits for", RETRIED, "memory", 0, "promise 10"),
    ("a round of a child run does not say who asked for it", RETRIED, "memory", 0, "promise 2"),
    ("a child run that is continued is not stopped with its caller", RETRIED, "memory", 11, "promise 6"),
    ("a pause does not reach a child run that has not opened its round yet", RETRIED, "shared", 50, "promise 6"),
    ("a fork continues a child run of the run that it was forked from", RETRIED, "memory", 250, "promise 2"),
    ("an output that is too large to be kept is null", None, "memory", 43, "promise 2"),
    ("a run that lacks an output completes as if nothing had happened", None, "memory", 43, "promise 1"),
    ("a fork keeps an approval that was given for other inputs", APPROVED, "memory", 5, "promise 12"),
    ("a run takes up whatever it is asked for", None, "memory", 133, "promise 10"),
    # Found because such a turn is taken both ways.
    (
        "an ordinary end leaves the steps behind the first that is not ordinary as they are",
        None,
        "memory",
        27,
        "promise 10",
    ),
    ("an ordinary end does not count for the groups that its step is in", GROUPED, "memory", 0, "promise 10"),
    ("an ordinary end forgets what its attempt has given", None, "memory", 12, "promise 10"),
    ("the event that came last is taken first", WAITING, "memory", 5, "promise 17"),
    ("an event that came early is not given to the step that waits for it later", WAITING, "memory", 2, "promise 17"),
    ("an event for which nothing waits is accepted and not kept", WAITING, "memory", 0, "promise 17"),
    ("an event that is sent again with its key is another one", WAITING, "memory", 41, "promise 17"),
    ("a run that is loaded has forgotten the keys of its events", WAITING, "memory", 21, "promise 17"),
    ("a step that runs again waits for another event", WAITING, "memory", 2, "promise 17"),
    ("a step that has failed with an event gets it again", WAITING_ITEMS, "memory", 21, "promise 17"),
    ("a step that was undone gets its event again", WAITING_UNDONE, "memory", 0, "promise 17"),
    ("a replay does not know the last call, and makes it again", None, "memory", 0, "promise 16"),
    ("a call of a program is added twice", None, "memory", 0, "promise 16"),
    ("an inline step that is recorded at once is told to its program again", None, "memory", 49, "promise 10"),
    ("the next task of a program is the last one, with what that was told", None, "memory", 25, "promise 10"),
    ("a program is told of the last end of a call first", None, "memory", 5, "promise 16"),
    ("a process that lives is told in another order than a replay", None, "memory", 533, "promise 16"),
    ("a replay is told that what has failed was cancelled", None, "memory", 5, "promise 16"),
    ("a call outlives a turn that was rolled back", None, "memory", 413, "promise 16"),
    ("a run that is loaded has forgotten its last call", None, "memory", 9, "promise 8"),
    ("what a round of a program drops is not undone", None, "memory", 58, "promise 16"),
    (
        "a retry keeps what a program did since it knew the end of a call that is made again",
        None,
        "memory",
        24,
        "promise 16",
    ),
    ("a program ends before its open calls have", None, "memory", 453, "promise 16"),
    ("the open calls of a program that has failed go on", None, "memory", 26, "promise 16"),
    ("a program that waits is not told that a call has ended", None, "memory", 1, "promise 10"),
    ("a program that waits takes a slot of its run", None, "memory", 3, "promise 10"),
    ("an edited program keeps a call that it makes in another way", None, "memory", 58, "promise 16"),
    ("an inline step that has ended runs again in a replay", None, "memory", 0, "promise 16"),
]
# Where it takes more of one kind of thing than histories have.
THEMES: dict[str, Theme] = {
    "who was kept from his work for long takes it for his own": OUTAGES,
    "what our own tasks came to goes with a turn that is another's": GUESTS,
    "a task is started though its turn has ended it before": FORKS,
    "after an outage the first one back buries all others": OUTAGES,
    "a step that is resumed is not queued again": HOLDS,
    "a fork keeps an approval that was given for other inputs": FORKS,
    **dict.fromkeys(sabotage_cache.SENTENCES, CACHED),
    **dict.fromkeys(sabotage_worktrees.SENTENCES, WORKTREES),
    **dict.fromkeys(sabotage_remote.SENTENCES, REMOTE),
    **dict.fromkeys(sabotage_servers.SENTENCES, SERVERS),
    "a server writes over what another server has decided meanwhile": RACING_SERVERS,
    "a task that its worker has interrupted has failed": Theme(),
    "a task fails when the time of its first worker is over": Theme(),
    "what an agent has spent is counted twice": Theme(),
    "a tool is called though the calls of its agent are spent": TOOLS,
    "a tool that has answered is called again": TOOLS,
    **dict.fromkeys(sabotage_programs.SENTENCES, PROGRAMS),
}


def first_that_shows(
    sentence: str, of: Workflow | None, store: StoreKind, seed: int, promise: str, histories: int = HISTORIES_MAX
) -> tuple[int | None, str]:
    """The first seed from this one on that shows the defect, and what the broken promise says."""
    budget, theme = FaultBudget(store=store), THEMES.get(sentence)
    with DEFECTS[sentence].at_work():
        for one in range(seed, seed + histories):
            found = complaint(Simulation(one, of, budget=budget, theme=theme))
            if found.startswith(f"{promise}: "):
                return one, found
    return None, "nothing"


@pytest.mark.parametrize(("sentence", "of", "store", "seed", "promise"), FOUND, ids=[row[0] for row in FOUND])
def test_a_defect_is_found(sentence: str, of: Workflow | None, store: StoreKind, seed: int, promise: str) -> None:
    _, found = first_that_shows(sentence, of, store, seed, promise, examples(HISTORIES_BY_DAY, HISTORIES_MAX))

    assert found.startswith(promise), "write from which seed it shows now with: python -m tests.simulator.seeds"


def test_every_defect_is_looked_for() -> None:
    assert {row[0] for row in FOUND} == DEFECTS.keys()


@pytest.mark.parametrize("store", STORE_KINDS)
@pytest.mark.parametrize("of", [COUNTED, CALLING, RETRIED, PLAIN, TRIAGED, TIMED, UNDOING])
def test_without_a_defect_nothing_is_found(of: Workflow, store: StoreKind) -> None:
    told = [complaint(Simulation(seed, of, budget=FaultBudget(store=store))) for seed in range(examples(1, 4))]

    assert [one for one in told if one] == []


@pytest.mark.parametrize(
    "theme", [CACHED, WORKTREES, REMOTE, SERVERS, RACING_SERVERS, PROGRAMS], ids=lambda theme: theme.name
)
def test_without_a_defect_nothing_is_found_where_there_is_more_of_something(theme: Theme) -> None:
    told = [complaint(Simulation(seed, theme=theme)) for seed in range(examples(2, 6))]

    assert [one for one in told if one] == []
