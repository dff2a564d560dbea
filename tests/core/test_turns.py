"""Turns: all or nothing, depth first, and the log alone rebuilds the state."""

from __future__ import annotations

import copy
from datetime import timedelta
from itertools import pairwise
from typing import Any, Self

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import EVENT, PROGRAM
from mulligan.core.model.failure import Failure
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import ProgramCall, TurnEnd
from mulligan.core.model.workflow import (
    Action,
    AgentTools,
    Backoff,
    Command,
    Input,
    Map,
    Need,
    NoticeRule,
    StepTool,
    Template,
    Triage,
    TriageAgent,
    Workflow,
)
from mulligan.core.state.state import State
from mulligan.core.turn import fold, follow, turn
from mulligan.errors import MulliganError
from mulligan.testing.history import (
    T0,
    Answers,
    History,
    command,
    edge,
    expression,
    handler,
    retry,
    shell,
    step,
    workflow,
)


def everything() -> Workflow:
    """A workflow in which a run can meet whatever there is."""
    return workflow(
        step("build", rules=retry(1, recovery_script=command("clean")), on_failure=handler("fix"), undo=command("rm")),
        step(
            "check",
            needs=["build"],
            map=Map(over=expression("list"), max_parallel=2),
            do=(command("one"), command("two")),
        ),
        step("deploy", needs=["check"], validator=command("probe"), next=[edge("repair", "failure", then="rerun")]),
        step("repair"),
        step("again", next=[edge("again", when="more", backoff=Backoff(delay=5))], undo=command("un-again")),
        step("ask", action=Action("approve", {"message": "ok?"}), needs=["deploy"]),
        step("nap", action=Action("wait", {"seconds": 5}), needs=["deploy"]),
        step("sub", action=Action("workflow", {"file": "c.yaml"}), needs=["nap"]),
        step("park", triage=Triage(timeout=900)),
        step("all", needs=[Need("builders", is_group=True), Need("park", "always")]),
        step("last", needs=["sub", "ask"], continue_on_error=True, on_failure=handler("sweep", strategy="cleanup")),
        end=step("end", action=shell("report"), rules=retry(1)),
        groups={"builders": ("build", "check")},
        outputs={"n": Template((expression("n", "steps.check"),))},
        timeout=5000,
    )


ANSWERS = {"inputs": {}, "list": ["x", "y", "z"], "more": lambda names: names["output"] == "more", "n": 3, "no": False}


class Told(History):
    """A history that remembers what it was told, so that it can be told again elsewhere."""

    def __init__(self, definition: Workflow) -> None:
        super().__init__(definition, ANSWERS)
        self.reports: list[r.Report] = []
        # Of the definition that it was started with: a corrected one may have taken its place.
        self.first = self.state.graph

    def report(self, report: r.Report) -> Self:
        self.reports.append(report)
        return super().report(report)


def long_history() -> Told:
    """Almost everything happens at least once, in three rounds: cancelled, failed, completed."""
    run = Told(everything()).start()
    run.started("build").fail("build").fail("build.script@1").fail("build").ok("build.on_failure@2.0", output=["a"])
    run.ok("again", output="more").fail("park").started("check[0].0").lose("check[0].0")
    run.ok("check[0].0").ok("check[0].1").fail("check[1].0").ok("check[2].0").ok("check[2].1").wait(5).ok("again")
    run.pause().wait(10).resume().cancel().ok("again.undo@2").fail("again.undo@1").ok("build.undo@1").ok("end")

    # What could not be undone runs again only by force, and is undone again later.
    run.retry(force=True).ok("build").ok("again").interrupt("park").ok("park")
    # Behind the undone build, items that were done run again as well.
    run.ok("check[0].0", "check[1].0", "check[0].1", "check[1].1", "check[2].0", "check[2].1")
    run.fail("deploy", 3).ok("repair").ok("deploy").fail("deploy.validator@2").ok("repair").ok("deploy")
    run.ok("deploy.validator@3").wait(5).approve("ask").child_ended("sub", "failed").ok("all")
    run.ok("again.undo@3").ok("build.undo@2").ok("again.undo@1").fail("end").ok("end", output={"status": "completed"})

    # What lies behind the undone build runs again as well.
    run.retry().ok("build").ok("again").ok("check[0].0", "check[1].0", "check[0].1", "check[1].1")
    run.ok("check[2].0", "check[2].1", "deploy", "deploy.validator@4").wait(5).approve("ask").child_ended("sub")
    run.ok("all").fail("last").ok("last.on_failure@1.0").ok("end")
    return run


def stopped_history() -> Told:
    """What is cut short: by deadlines, by an operator in the middle of cleanup, by late and wrong reports."""
    flow = workflow(
        step("slow", map=Map(over=expression("list")), do=(command("one"),), deadline=30),
        step("passed", map=Map(over=expression("list")), do=(command("one", when=expression("no")),)),
        step("fixed", on_failure=handler("fix", timeout=10), on_success=(command("tell"),)),
        step("told", on_success=(command("tell"),)),
        step("stood", next=[edge("stand-in", "failure", then="continue"), edge("after")]),
        step("stand-in"),
        step("after"),
        step("vain", next=[edge("repair", "failure", then="rerun")]),
        step("repair"),
        step("round", next=[edge("side", when="more"), "body"]),
        step("side"),
        step("body", next=[edge("round", when="more")]),
        step("parked", triage=Triage("exhausted", timeout=900), rules=retry(1, delay=20)),
        step("runs", on_failure=handler("sweep", "mop", strategy="cleanup")),
    )
    run = Told(flow).start()
    run.started("slow[0].0").fail("fixed").started("fixed.on_failure@1.0").ok("told").fail("told.on_success@1.0")
    run.fail("stood").ok("stand-in").fail("vain").fail("repair").ok("round", output="more").ok("side")
    run.ok("body", output="more").ok("round")
    run.fail("parked").pause().wait(20).resume().fail("parked").classify("parked", "retry").started("runs")
    run.fail("fixed.on_failure@1.0", signal=15).wait(20).fail("slow[0].0", signal=15)
    run.report(r.TaskEnded(run.clock, "told", 1)).report(r.TaskStarted(run.clock, "nobody", 1))
    run.ok("body").cancel().fail("runs", signal=15).started("runs.on_failure@1.0").cancel(now=True)
    return run.fail("runs.on_failure@1.0", signal=15)


def revised_history() -> Told:
    """A run that goes on twice under corrected definitions: a step comes and goes, and a map starts over."""
    mapped = step("each", map=Map(over=expression("list")), do=(command("one"),))
    load = step("load", needs=["fetch"], when="yes")
    run = Told(workflow(step("fetch"), load, mapped)).start()
    run.ok("fetch", data={"rate": 0.5, "tried": [1]}).ok("each[0].0", "each[1].0", data={"rate": 1})
    run.ok("each[2].0").fail("load")
    fixed = step("load", needs=["fetch"], when="yes", action=shell("load --fixed"))
    run.retry_with(workflow(step("fetch"), step("new"), fixed)).ok("new").fail("load")
    run.retry_with(workflow(step("fetch"), load, mapped)).ok("load", "each[0].0", "each[1].0", "each[2].0")
    return run


def held_history() -> Told:
    """Steps that somebody holds: queued, waiting, in a map, under a pause of the run; late, and cancelled."""
    flow = workflow(
        step("fetch", rules=retry(1, delay=5), when="n"),
        step("check", map=Map(over=expression("list")), do=(command("one"), command("two")), when="n"),
        step("ask", needs=["fetch"], action=Action("approve", {"message": "go?"}), when="n"),
        step("last", needs=["ask"], when="n"),
        notify=(NoticeRule(on=("late",), to=("ops",), late_after=1),),
    )
    run = Told(flow).start()
    run.pause_step("fetch", reason="the mirror is down").pause_step("check").pause_step("ask").started("check[0].0")
    run.ok("check[0].0").resume_step("fetch").started("fetch").pause_step("fetch").fail("fetch").wait(5)
    run.pause().resume_step("check").resume().resume_step("fetch").ok("fetch").pause().resume_step("ask").resume()
    return run.approve("ask").pause_step("last").cancel()


def agents_history() -> Told:
    """An agent calls a tool, keeps a session, fails, and another one is not sure what to do about it."""
    triager = Command(action=Action("agent", {"provider": "claude"}), timeout=300.0)
    asked = Action("agent", {"provider": "scripted", "prompt": "Which city is warmer?"})
    tools = AgentTools(steps=(StepTool("weather", command("weather"), inputs={"city": Input()}),))
    ask = step(
        "ask", action=asked, tools=tools, session="chat", triage=Triage(agent=TriageAgent("claude", triager)), when="n"
    )
    last, after = step("last", needs=["ask"], when="n"), step("after", needs=["last"], when="n")
    run = Told(workflow(ask, last, after)).start().fail("ask.model@1.0")
    unsure = {"json": {"verdict": "retry", "confidence": 0.1, "reason": "perhaps"}}
    run.ok("ask.triager@1", output=unsure).classify("ask", "retry")
    call = {"id": "c0", "name": "weather", "arguments": {"city": "Rome"}}
    run.ok("ask.model@2.0", output={"content": "", "tool_calls": [call]}).ok("ask.tool@2.0", output="20 degrees")
    return run.ok("ask.model@2.1", output={"content": "Rome", "decision": None, "tokens": None}).ok("last", "after")


def forked_history() -> Told:
    """A run goes on from an event of another one, in which a step was parked, and decides otherwise."""
    deploy = step("deploy", needs=["fetch"], triage=Triage(timeout=900))
    names = ("deploy", "announce", "archive", "clean")
    later = [step(name, needs=[before], when="n") for before, name in pairwise(names)]
    definition = workflow(step("fetch"), deploy, *later)
    other = Told(definition).start().ok("fetch").fail("deploy")
    run = Told(definition).wait(60)
    kept = pack_history(other.log)
    run.report(r.RunRequested(run.clock, run_id=2, history=kept, forked_from=1, forked_at=len(other.log), uid="new"))
    return run.classify("deploy", "retry").ok(*names)


def program_history() -> Told:
    """A program calls steps in several turns, does not want one of them, and fails; the next round keeps a result."""
    args = {"args": Template((expression("inputs", "inputs"),))}
    load = step("load", action=Action("python", {"call": "m:load", "args": {"${}": "args"}}, args))
    action = Action(PROGRAM, {"call": "m:nightly", "args": {"${}": "args"}}, args)
    run = Told(workflow(step("nightly", action=action))).start()

    def say(*calls: ProgramCall, **said: Any) -> Told:
        attempt, progress = run["nightly"].attempt, run["nightly"].program
        number = 1 if progress is None else progress.turn
        run.report(r.TaskStarted(run.clock, "nightly", attempt, "w1", "h1", number))
        end = TurnEnd(number, {"d": load}, calls, **said)
        return run.report(r.TaskEnded(run.clock, "nightly", attempt, turn=end))

    def call(ordinal: int, **fields: Any) -> ProgramCall:
        return ProgramCall("", ordinal, "load", definition="d", arguments={"n": ordinal}, digest=str(ordinal), **fields)

    ran = ProgramCall("", 1, "note", kind="inline", definition="d", output=5)
    say(ProgramCall("", 0, "now", kind="value", output=7.5), ran, call(2), call(3))
    say().started("load#2").fail("load")
    say(call(4), cancelled=(("", 3),)).report(r.TaskEnded(run.clock, "load#2", 1, Outcome(None, is_stopped=True)))
    run.ok("load#3", output=[4])
    say(how="raised", failure=Failure("EXIT_NONZERO"), call="load", at="nightly.py:9")
    run.retry()
    say(call(2), call(4)).ok("load")
    say(how="returned", at="nightly.py:12")
    return run


def events_history() -> Told:
    """One event comes early and cannot be used, one in time, and one twice."""
    names = {"name": Template(("is", expression("the rest")))}
    waiting = Action(EVENT, {"event": {"${}": "name"}, "schema": {"type": "integer"}}, names)
    paid = step("pay", needs=["order"], action=waiting, rules=retry(1), validate=expression("enough"))
    order = step("order", validate=expression("ordered"))
    run = Told(workflow(order, paid, step("ship", needs=["pay"]), step("close", needs=["ship"], when="now")))
    run.start().report(r.EventSent(run.clock, "isTrue", "nothing", "ann")).ok("order")
    run.report(r.EventSent(run.clock, "isTrue", 40, "ann", key="7"))
    run.report(r.EventSent(run.clock, "isTrue", 40, "ann", key="7"))
    return run.report(r.EventSent(run.clock, "shipped", None)).ok("ship").ok("close")


HISTORIES = [
    long_history,
    stopped_history,
    revised_history,
    held_history,
    agents_history,
    forked_history,
    program_history,
    events_history,
]
by_name = pytest.mark.parametrize("tell", HISTORIES, ids=lambda tell: tell.__name__)


def test_the_histories_are_worth_their_name() -> None:
    facts = [fact for tell in HISTORIES for fact in tell().facts()]

    assert {kind.__name__ for kind in e.FACTS} - {type(fact).__name__ for fact in facts} == set()
    assert [fact.round for fact in long_history().facts(e.RunCompleted, e.RunFailed, e.RunCancelled)] == [1, 2, 3]


def again(run: Told) -> Any:
    """The same reports once more, to a fresh state: each with the state as it is before."""
    state, evaluator, log = State(run.first.workflow, run.first), Answers(ANSWERS), list[e.Entry]()
    for report in run.reports:
        yield state, report, evaluator, log
        log.extend(turn(state, report, evaluator))
        state.commit()


# -- the log is the truth --------------------------------------------------------------------------------------------


@by_name
def test_after_every_turn_the_log_folds_to_the_state(tell: Any) -> None:
    run = tell()

    for state, _, _, log in again(run):
        assert fold(run.first.workflow, log, run.first) == state


@by_name
def test_the_same_reports_give_the_same_log(tell: Any) -> None:
    run = tell()

    *_, (_, _, _, log) = again(run)

    assert log == run.log


@by_name
def test_whoever_takes_a_run_over_from_its_log_goes_on_as_if_nothing_had_been(tell: Any) -> None:
    run = tell()

    for _, report, evaluator, log in again(run):
        heir = fold(run.first.workflow, log, run.first)
        entries = turn(heir, report, evaluator)
        assert entries == run.log[len(log) : len(log) + len(entries)]


@by_name
def test_entries_are_numbered_dated_and_caused_by_earlier_ones(tell: Any) -> None:
    log = tell().log

    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    assert all(0 <= entry.caused_by < entry.seq for entry in log)
    assert [entry.at for entry in log] == sorted(entry.at for entry in log)


def test_the_clock_of_the_log_never_goes_back() -> None:
    run = History(workflow(step("a"))).wait(60).start()

    run.report(r.TaskEnded(T0 - timedelta(days=1), "a", 1))

    assert {entry.at for entry in run.log} == {T0 + timedelta(seconds=60)}


def test_what_follows_from_a_fact_is_true_before_its_cause_goes_on() -> None:
    run = History(workflow(step("a"), step("b", needs=["a"]), step("c", needs=["a"]))).start().ok("a")

    told = [(entry.caused_by, type(entry.fact).__name__) for entry in run.last]
    first = run.last[0].seq
    assert told == [
        (0, "AttemptSucceeded"),
        (first, "StepCompleted"),
        (first + 1, "StepEntered"),
        (first + 1, "AttemptScheduled"),
        (first + 1, "StepEntered"),
        (first + 1, "AttemptScheduled"),
    ]


# -- all or nothing --------------------------------------------------------------------------------------------------


@by_name
def test_any_turn_can_be_taken_back_and_told_again(tell: Any) -> None:
    run = tell()

    for state, report, evaluator, log in again(run):
        before = copy.deepcopy(state)
        entries = turn(state, report, evaluator)
        assert state != before or not entries
        state.rollback()
        assert state == before
        assert turn(state, report, evaluator) == entries
        state.rollback()
        assert fold(run.first.workflow, log, run.first) == state


class Breaks(Answers):
    """An evaluator with a bug: it breaks at the n-th question."""

    def __init__(self, at_question: int, error: BaseException) -> None:
        super().__init__(ANSWERS)
        self.left = at_question
        self.error = error

    def evaluate(self, asked: Any, names: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().evaluate(asked, names)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()], ids=["a bug", "a signal"])
@by_name
def test_an_error_in_the_middle_of_a_turn_leaves_no_trace(tell: Any, error: BaseException) -> None:
    run, broken = tell(), 0

    for state, report, _, log in again(run):
        before = fold(run.first.workflow, log, run.first)
        try:
            turn(state, report, Breaks(1, error))
        except (RuntimeError, KeyboardInterrupt):
            broken += 1
        else:
            state.rollback()
        assert state == before

    assert broken > 2


@pytest.mark.parametrize("question", range(1, 7))
def test_an_error_at_any_question_of_a_turn_leaves_no_trace(question: int) -> None:
    mapped = step(
        "m", map=Map(over=expression("list"), filter=expression("keep", "item"), sort_by=expression("key", "item"))
    )
    state = State(workflow(step("first", when="yes"), mapped))

    with pytest.raises(RuntimeError):
        turn(state, r.RunRequested(T0, 1), Breaks(question, RuntimeError("a bug")))

    assert state == State(state.workflow)


@pytest.mark.parametrize(
    "report",
    [
        r.RunRequested(T0, 1),
        r.Classified(T0, "a", "retry", "someone", "why"),
        r.Classified(T0, "nobody", "retry", "someone", "why"),
        r.ApprovalGiven(T0, "a", True, "someone", "why"),
        r.RetryRequested(T0, "someone"),
    ],
    ids=["started twice", "not parked", "unknown step", "no approval", "not finished"],
)
def test_a_verb_that_is_refused_changes_nothing_and_writes_nothing(report: r.Report) -> None:
    run = History(workflow(step("a"))).start()
    before = copy.deepcopy(run.state)

    with pytest.raises(MulliganError):
        run.report(report)

    assert run.state == before


def test_a_report_that_is_refused_is_written_down_and_changes_nothing_else() -> None:
    run = History(workflow(step("a"))).start()
    before = copy.deepcopy(run.state.places)

    run.report(r.TaskEnded(T0, "a", 7, Outcome(1)))

    assert run.follows == [e.ReportRefused("a", 7, "stale_attempt")]
    assert run.state.places == before


def test_a_timer_that_nobody_waits_for_is_nothing_at_all() -> None:
    run = History(workflow(step("a"))).start()

    for kind in ("retry", "attempt", "handler", "triage", "deadline", "loop", "run"):
        run.report(r.TimerFired(T0, kind, "a", 1)).report(r.TimerFired(T0, kind, "nobody", 1))  # type: ignore[arg-type]

    assert [entry.fact for entry in run.log if entry.caused_by == 0] == [e.RunStarted(1, "test")]


def test_a_turn_can_be_written_in_pieces() -> None:
    flow = workflow(*(step(f"s{i}") for i in range(50)))
    pieces, whole = State(flow), State(flow)

    written = []
    for entry in follow(pieces, r.RunRequested(T0, 1), Answers()):
        written.append(entry)
        assert pieces.run.seq == entry.seq

    assert written == turn(whole, r.RunRequested(T0, 1), Answers())
    assert fold(flow, written) == pieces


def test_a_step_that_does_nothing_completes_by_itself() -> None:
    run = History(workflow(step("a", action=None), step("b", needs=["a"]))).start()

    assert (run["a"].status, run["a"].output, run.queued) == ("completed", None, ["b"])


def test_the_first_attempt_of_a_visit_says_that_the_step_was_entered() -> None:
    run = History(workflow(step("a"))).start()

    assert run.follows[1:] == [e.StepEntered("a", 1), e.AttemptScheduled("a", 1, "entered")]
