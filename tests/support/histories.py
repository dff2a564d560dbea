"""Generated runs: with known regularities, or with nothing but noise."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta

from mulligan.analysis.suggest.evidence import Evidence
from mulligan.analysis.suggest.propose import Proposed, propose
from mulligan.core.model import events as e
from mulligan.core.model.workflow import Triage, Workflow
from mulligan.testing.history import T0, History, handler, step, workflow

# A step that is parked whenever no rule matches.
PARKS = Triage()


def learn(definition: Workflow, runs: Iterable[list[e.Entry]]) -> Proposed:
    """What is proposed for the workflow from these logs."""
    return propose([(gather(definition, runs), definition)])


def gather(definition: Workflow, runs: Iterable[list[e.Entry]]) -> Evidence:
    evidence = Evidence(definition.name)
    for run_id, entries in enumerate(runs, 1):
        evidence.add_run(run_id, definition, entries)
    return evidence


def begun(definition: Workflow, number: int, every: timedelta = timedelta(hours=1)) -> History:
    """The run of that number, so long after the one before."""
    run = History(definition)
    run.clock = T0 + number * every
    return run.start()


def decided(
    definition: Workflow,
    number: int,
    *,
    name: str = "fetch",
    exit_code: int = 11,
    message: str = "",
    wait: float = 240,
    retries: int = 1,
    works: bool = True,
    verdict: str = "retry",
) -> list[e.Entry]:
    """A run in which a step fails and is parked, and people retry it so often or let it fail."""
    run = begun(definition, number).fail(name, exit_code, stderr_tail=message)
    for count in range(1, retries + 1):
        run.wait(wait).classify(name, verdict)
        if verdict == "fail":
            break
        if works and count == retries:
            run.ok(name)
        else:
            run.fail(name, exit_code, stderr_tail=message)
    return run.log


def in_rounds(definition: Workflow, number: int, *, wait: float = 60, works: bool = True) -> list[e.Entry]:
    """A run that fails and is given another round."""
    run = begun(definition, number).fail("fetch", 7).wait(wait).retry()
    return (run.ok("fetch") if works else run.fail("fetch", 7)).log


NOISY = workflow(
    step("fetch", triage=PARKS),
    step("load", triage=PARKS, on_failure=handler("mend", strategy="recovery")),
    step("send", triage=PARKS),
)
_MESSAGES = ("could not reach 10.0.0.{n}", "disk /dev/sd{n} is full", "permission denied: '/srv/{n}'", "row {n} is bad")


def noise(seed: int, runs: int) -> list[list[e.Entry]]:
    """Runs whose failures, decisions and outcomes are all thrown by a coin: nothing can be learnt from them."""
    dice = random.Random(seed)
    return [_noisy_run(dice, number) for number in range(runs)]


def _noisy_run(dice: random.Random, number: int) -> list[e.Entry]:
    run = begun(NOISY, number, timedelta(minutes=dice.randint(1, 90)))
    for _ in range(40):
        if not (run.queued or any(place.status == "pending_failed" for place in run.state.steps())):
            break
        run.wait(dice.expovariate(1 / 200))
        for place in run.state.steps():
            if place.status == "pending_failed":
                run.classify(place.key, dice.choice(("retry", "fail")))
        for key in run.queued:
            usage = {"peak_memory": dice.randint(2**27, 2**30), "wall_seconds": dice.uniform(1, 60), "cpu_seconds": 1.0}
            if dice.random() < 0.5:
                run.ok(key, usage=usage)
            else:
                message = dice.choice(_MESSAGES).format(n=dice.randint(1, 99))
                exit_code = dice.choice((1, 7, 11))
                run.fail(key, exit_code, stderr_tail=message, usage=usage)
    return run.log
