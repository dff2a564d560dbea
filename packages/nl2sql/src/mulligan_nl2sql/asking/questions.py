"""A question is a run of `scan.yaml`: it is started, continued after an interruption, and stopped at its deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mulligan import Home, Run, StepError
from mulligan_nl2sql.asking.answers import Answer, read_answer
from mulligan_nl2sql.database_urls import parse_url, password_variable, url_to_keep
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_planner
from mulligan_nl2sql.policy import read_policies
from mulligan_nl2sql.workflows import SCAN

WORKFLOW = "nl2sql-scan"
QUESTION_CHARS_MAX = 10_000


class QuestionInvalid(StepError):
    """What the user gave cannot be asked. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__("QUESTION_INVALID", message, retryable=False)


class Interrupted(Exception):
    """Somebody has pressed Ctrl-C. The run can go on."""

    def __init__(self, run: int | None) -> None:
        super().__init__("interrupted")
        self.run = run


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, checked as far as that is possible before anything runs. `password` is kept nowhere."""

    text: str
    url: str
    database: str
    password: str
    policy: str
    planner: str
    model: str
    today: str
    execute: bool


def read_question(
    text: str, url: str, *, policy: str = "", planner: str = DEFAULT, execute: bool = True, today: date | None = None
) -> Question:
    """Check what a user gave. StepError with a code if the URL, the policy or a setting of the planner is wrong."""
    if not text.strip():
        raise QuestionInvalid("the question is empty")
    if len(text) > QUESTION_CHARS_MAX:
        raise QuestionInvalid(f"the question has {len(text):,} characters, and may have {QUESTION_CHARS_MAX:,}")
    database = parse_url(url)
    kept_url, password = url_to_keep(database)
    if policy:
        read_policies(Path(policy)).for_database(database.name)
    if planner != DEFAULT:
        find_planner(planner, os.environ)
    return Question(
        text=text.strip(),
        url=kept_url,
        database=database.name,
        password=password,
        policy=os.path.abspath(policy) if policy else "",
        planner=planner,
        model=_model(planner),
        today=(today or date.today()).isoformat(),
        execute=execute,
    )


def ask(question: Question, home: Home, *, deadline: float | None = None) -> Answer:
    """Ask, and wait for the answer until `deadline`, a time of `time.monotonic`."""
    if question.password:
        # The steps run in processes of this one, and find it there.
        os.environ[password_variable(question.database)] = question.password
    inputs = {
        name: value for name, value in msgspec.structs.asdict(question).items() if name not in ("text", "password")
    }
    run = home.start(SCAN, inputs={"question": question.text, **inputs})
    return _drive(run, run.resume, deadline)


def resume(run: Run, *, deadline: float | None = None) -> Answer:
    """Let a question go on that was interrupted, and wait for the answer. If it has ended, this is its answer."""
    if run.workflow != WORKFLOW:
        raise QuestionInvalid(f"run {run.id} is no question, but a run of '{run.workflow}'")
    if run.status in ("completed", "failed", "cancelled"):
        return read_answer(run)
    return _drive(run, run.resume, deadline)


def _drive(run: Run, go_on: Callable[[], Run], deadline: float | None) -> Answer:
    """Drive the run to its end, or to the deadline.

    At the deadline it is interrupted as Ctrl-C does it: the engine then leaves a run so that it can go on.
    """
    has_passed = threading.Event()

    def interrupt() -> None:
        has_passed.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = None if deadline is None else threading.Timer(max(0.0, deadline - time.monotonic()), interrupt)
    try:
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            go_on()
        finally:
            if timer is not None:
                timer.cancel()
    except KeyboardInterrupt:
        if not has_passed.is_set():
            raise Interrupted(run.id) from None
    return read_answer(run)


def _model(planner: str) -> str:
    """What the breaker of the planner is called: one for each model of each service."""
    if planner != "openai":
        return planner
    host = urlsplit(os.environ.get("OPENAI_BASE_URL", "")).netloc.rpartition("@")[2]
    return f"{os.environ['NL2SQL_MODEL']} at {host or 'openai'}"
