"""A question is a run of `ask.yaml`: it is started, continued after an interruption, and stopped at its deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mulligan import Home, Run, StepError
from mulligan_nl2sql.asking.answers import Answer
from mulligan_nl2sql.asking.run_answers import read_answer
from mulligan_nl2sql.database_urls import SERVER, give_passwords, parse_url, split_name, url_to_keep
from mulligan_nl2sql.indexing.kept_indexes import FOLDER
from mulligan_nl2sql.planning.find_planner import DEFAULT, find_agent, find_planner
from mulligan_nl2sql.policy import read_policies
from mulligan_nl2sql.workflows import ASK

WORKFLOW = "nl2sql-ask"
SCAN_WORKFLOW = "nl2sql-scan"
QUESTION_CHARS_MAX = 10_000
DATABASES_MAX = 16


class QuestionInvalid(StepError):
    """What the user gave cannot be asked. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__("QUESTION_INVALID", message, retryable=False)


class Interrupted(Exception):
    """Somebody has pressed Ctrl-C. The run can go on."""

    def __init__(self, run: int | None) -> None:
        super().__init__("interrupted")
        self.run = run


class AskedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database to ask. `password` and `given_url`, which may have it, are kept nowhere."""

    name: str
    url: str
    password: str
    given_url: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, checked as far as that is possible before anything runs."""

    text: str
    databases: tuple[AskedDatabase, ...]
    policy: str
    planner: str
    # The agent of the engine that is asked, if the planner is one.
    agent: str
    model: str
    today: str
    execute: bool
    strict: bool


def read_question(
    text: str,
    databases: Sequence[str],
    *,
    policy: str = "",
    planner: str = DEFAULT,
    execute: bool = True,
    strict: bool = False,
    today: date | None = None,
) -> Question:
    """Check what a user gave: each database is `URL` or `NAME=URL`.

    StepError with a code if a URL, the policy or a setting of the planner is wrong.
    """
    if not text.strip():
        raise QuestionInvalid("the question is empty")
    if len(text) > QUESTION_CHARS_MAX:
        raise QuestionInvalid(f"the question has {len(text):,} characters, and may have {QUESTION_CHARS_MAX:,}")
    asked = read_databases(databases, policy)
    if planner != DEFAULT:
        find_planner(planner, os.environ)
    return Question(
        text=text.strip(),
        databases=asked,
        policy=os.path.abspath(policy) if policy else "",
        planner=planner,
        agent=find_agent(planner, os.environ),
        model=_model(planner),
        today=(today or date.today()).isoformat(),
        execute=execute,
        strict=strict,
    )


def read_databases(given: Sequence[str], policy: str = "") -> tuple[AskedDatabase, ...]:
    """Check URLs and names. Of several files some may be missing: then the others are asked."""
    if not given:
        raise QuestionInvalid("no database is given")
    if len(given) > DATABASES_MAX:
        raise QuestionInvalid(f"{len(given)} databases are given, and a question may have {DATABASES_MAX}")
    policies = read_policies(Path(policy)) if policy else None
    asked: dict[str, AskedDatabase] = {}
    for one in given:
        name, given_url = split_name(one)
        database = parse_url(given_url, name=name, must_exist=False)
        if (earlier := asked.get(database.name.casefold())) is not None:
            raise QuestionInvalid(
                f"two databases are called '{earlier.name}': name them, as in --db {database.name}_2=URL"
            )
        if policies is not None:
            policies.for_database(database.name)
        url, password = url_to_keep(database)
        asked[database.name.casefold()] = AskedDatabase(
            name=database.name, url=url, password=password, given_url=given_url
        )
    if all(_is_missing(one) for one in asked.values()):
        parse_url(split_name(given[0])[1])
    return tuple(asked.values())


def _is_missing(asked: AskedDatabase) -> bool:
    database = parse_url(asked.url, must_exist=False)
    return database.dialect != SERVER and not os.path.isfile(database.location)


def ask(question: Question, home: Home, *, deadline: float | None = None) -> Answer:
    """Ask, and wait for the answer until `deadline`, a time of `time.monotonic`."""
    keep_passwords(question)
    inputs = {
        "question": question.text,
        "databases": [{"name": one.name, "url": one.url} for one in question.databases],
        "policy": question.policy,
        "planner": question.planner,
        "agent": question.agent,
        "model": question.model,
        "today": question.today,
        "execute": question.execute,
        "strict": question.strict,
        "index": index_folder(home),
    }
    run = home.start(ASK, inputs=inputs)
    drive(run, deadline)
    return read_answer(run)


def keep_passwords(question: Question) -> None:
    """Put its passwords into the environment: the steps run in processes of this one, and find them there."""
    give_passwords({one.name: one.password for one in question.databases if one.password}, os.environ)


def index_folder(home: Home) -> str:
    """The folder with the kept indexes of this home; empty if there is none."""
    folder = home.folder.absolute() / FOLDER
    return str(folder) if folder.is_dir() else ""


def resume(run: Run, *, deadline: float | None = None) -> Answer:
    """Let a question go on that was interrupted, and wait for the answer. If it has ended, this is its answer."""
    if run.workflow == SCAN_WORKFLOW and (parent := run.parent) is not None:
        raise QuestionInvalid(f"run {run.id} is a part of the question of run {parent.id}: nl2sql resume {parent.id}")
    if run.workflow != WORKFLOW:
        raise QuestionInvalid(f"run {run.id} is no question, but a run of '{run.workflow}'")
    if run.status in ("completed", "failed", "cancelled"):
        return read_answer(run)
    drive(run, deadline)
    return read_answer(run)


def drive(run: Run, deadline: float | None) -> None:
    """Drive the run to its end, or to the deadline. Interrupted if somebody presses Ctrl-C.

    At the deadline it is interrupted as Ctrl-C does it: the engine then leaves a run so that it can go on.
    """
    has_passed = threading.Event()

    def interrupt() -> None:
        has_passed.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    timer = None if deadline is None else threading.Timer(max(0.0, deadline - time.monotonic()), interrupt)
    try:
        with _heard_if_ignored(has_passed) if timer is not None else nullcontext():
            try:
                if timer is not None:
                    timer.daemon = True
                    timer.start()
                run.resume()
            finally:
                if timer is not None:
                    timer.cancel()
    except KeyboardInterrupt:
        if not has_passed.is_set():
            raise Interrupted(run.id) from None


@contextmanager
def _heard_if_ignored(has_passed: threading.Event) -> Iterator[None]:
    """Let the deadline interrupt a program that ignores Ctrl-C, too: one that a script runs in the background."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        yield
        return

    def interrupt(*_: object) -> None:
        if has_passed.is_set():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _model(planner: str) -> str:
    """What the breaker of the planner is called: one for each model of each service."""
    if planner != "openai":
        return planner
    host = urlsplit(os.environ.get("OPENAI_BASE_URL", "")).netloc.rpartition("@")[2]
    return f"{os.environ['NL2SQL_MODEL']} at {host or 'openai'}"
