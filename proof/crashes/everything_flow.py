"""The flow of the trials: the same climb as `workflow.EVERYTHING`, with Python functions for steps.

It is copied to the stage of each trial, where `mulligan run flow.py` runs it. It has no secret, so that its steps share
warm children.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from mulligan import Failure, Retry, StepError, approve, flow, step

# What becomes an artifact: more than a log keeps.
LARGE = 70_000


# As `act.sh` writes it.
NAMES = ("RUN_ID", "STEP", "ITEM", "VISIT", "ATTEMPT", "FENCE")


def act(name: str, seconds: float = 0) -> None:
    """Say in the journal when this begins and ends."""
    known = [os.environ.get(f"MULLIGAN_{name}", "-") for name in NAMES]
    said = " ".join((name, *known, str(os.getpid()), os.environ["MULLIGAN_IDEMPOTENCY_KEY"]))
    for verb in ("start", "end"):
        with open(os.environ["JOURNAL"], "a", encoding="utf-8") as journal:
            print(verb, said, file=journal)
        if verb == "start":
            time.sleep(seconds)


def clear() -> None:
    act("clear")
    Path("cleared").touch()


@step(retry=Retry(codes=["STALE"], max_retries=1, delay="5ms", recovery_script=clear))
def fetch() -> str:
    act("fetch")
    if not os.path.exists("cleared"):
        raise StepError("STALE")
    return "fetched"


@step
def build(fetched: str) -> str:
    act("build")
    raise StepError("BROKEN")


@build.handler
def rebuild(failure: Failure) -> str:
    act("rebuild")
    return f"built after {failure.code}"


@step
def check(n: int, built: str) -> str:
    act("check", 0.01)
    if n == 2:
        raise StepError("ODD")
    return f"{built}, {n}"


@step
def gather(fetched: str) -> str:
    act("gather")
    return "x" * LARGE


@step
def count(word: str) -> int:
    act("count")
    return len(word)


@step(breaker="api", retry=Retry(max_retries=2, delay="1ms"))
def call(fetched: str) -> str:
    act("call")
    if not os.path.exists("called"):
        Path("called").touch()
        raise StepError("UNAVAILABLE")
    return "answered"


def decide() -> str:
    act("decide")
    return "decided"


@step
def pack(letters: int) -> int:
    act("pack")
    return letters


@step
def load(packed: int) -> str:
    act("load")
    return "loaded"


@load.undo
def unload(output: str) -> None:
    act("unload")


@step
def sail(loaded: str) -> None:
    act("sail")
    raise StepError("SUNK")


@flow
def voyage(letters: int) -> None:
    sail(load(pack(letters)))


def reship() -> str:
    act("reship")
    return "shipped"


@step
def deploy(checked: int, called: str, asked: str) -> str:
    act("deploy")
    if not os.path.exists("repaired"):
        raise StepError("BROKEN")
    return "deployed"


@step
def repair(failure: Failure) -> None:
    act("repair")
    Path("repaired").touch()


deploy.on_failure(repair, then="rerun")


@flow(breakers={"api": {"failures": 1, "reset": "20ms"}})
def everything() -> dict[str, object]:
    fetched = fetch()
    built = build(fetched)
    checked = check.map([1, 2, 3], built, on_item_failure="collect", max_parallel=2)
    letters = count(gather(fetched))
    called = call(fetched)
    asked = approve("ask", "may it?", timeout="30ms", on_failure=decide, after=[fetched])
    shipped = voyage.options(on_failure=reship, retry=1)(letters)
    deployed = deploy.options(after=[shipped])(checked.succeeded, called, asked)
    return {"letters": letters, "deployed": deployed}


@everything.end
def end() -> None:
    act("end")
