"""A run that a client of a server starts through the store over HTTP: what it says is checked, or filled in here.

The client compiles its workflow and prepares its run as for a home of its own. So the server gets what a home would
store, and believes none of it:

| field | what the server does |
|---|---|
| `workflow`, `version`, `name` | reads the definition, checks it as the language does, and computes the other two |
| `project` | is that of the token; only a token of all projects names one |
| `key` | begins as the client's own keys do: it is never one of a schedule or of the API |
| `parent_place`, `parent_attempt`, `parent_run_id`, `callers_budget` | refuses them: only a step starts a child run |
| `decision` | refuses it: a decision is a call of its own, with a scope of its own |
| `at`, `by`, `uid`, `cwd`, `run_id`, `version` of the request | fills them in |
| `inputs` | checks them against the definition; a reference to an artifact only as the forked run has it |
| `labels` | checks them; those that the server gives only as the forked run has them |
| `notify` | checks the rules, and adds those of the project |
| `forked_from` | has to be a run that the caller sees, of a workflow that the token is for |
| `history`, `worktree`, `kept`, `data`, `sessions` | reads them from its own log, at the event where the fork begins |
| the definition, with a `history` | is that of the forked run |
| `forced` | have to be steps |
| `file` | a path on the client's host: shown, and never opened here, since its `digest` is dropped |
| `capacity` | without the address of a cluster |
| `changed_only`, `stale`, `reason`, `has_inputs`, `forked_at` | the client's to say |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.model.reports import RunRequested
from mulligan.core.model.workflow import Workflow, decode, version
from mulligan.core.state.state import State
from mulligan.errors import InputInvalid
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_recorded_inputs, refuse_references
from mulligan.language.python.definitions import read_definition
from mulligan.language.readers.notices import rules_problem
from mulligan.ports import NewRun
from mulligan.service.runs.changes.changes import UID_BYTES
from mulligan.service.runs.changes.preflight import check_labels, refuse_reserved_labels
from mulligan.service.runs.stored.run_reader import RunReader

KEY_CHARS_MAX, PROJECT_CHARS_MAX = 500, 100
# Of a run without a key of its user: so the client may ask again for it.
CLIENT_KEY = "http: "
_encode = msgspec.json.Encoder(order="sorted").encode
# How the keys of runs begin that the API and schedules start.
_SERVER_KEYS = ("request: ", "schedule:")


def check_received(reader: RunReader, runs: Iterable[NewRun], refuse_workflow: Callable[[str], None]) -> list[NewRun]:
    """The runs as the server would have prepared them. `refuse_workflow` knows what the caller may run."""
    # Many runs of one workflow may be started at once.
    read = cache(read_definition)
    return [_checked(reader, run, read, refuse_workflow) for run in runs]


def _checked(
    reader: RunReader,
    run: NewRun,
    read: Callable[[bytes], tuple[Workflow, bytes]],
    refuse_workflow: Callable[[str], None],
) -> NewRun:
    request, old = run.request, None
    if run.parent_place or run.parent_attempt or request.parent_run_id is not None or request.callers_budget:
        raise InputInvalid("only a step starts a child run", hint="leave the parent out")
    if request.forked_from is not None:
        # `UnknownRun` for a run of another project.
        refuse_workflow(reader.record(request.forked_from).workflow)
        old = reader.state(request.forked_from)
    if old is None or not request.history:
        workflow, data = read(run.workflow)
    else:
        data = reader.store.load(old.run.run_id).workflow
        workflow = decode(data)
    refuse_workflow(workflow.name)
    checked = replace(
        request,
        run_id=0,
        version=version(data),
        uid=os.urandom(UID_BYTES).hex(),
        inputs=_inputs(reader, workflow, request, old),
        labels=_labels(reader, request),
        digest="",
        capacity=None if request.capacity is None else replace(request.capacity, on=""),
    )
    if old is None and (request.kept or request.data or request.sessions or request.stale):
        raise InputInvalid("only a fork keeps results", hint="say which run it is a fork of")
    if len({one.step for one in request.kept}) != len(request.kept):
        raise InputInvalid("a fork keeps one result of a step", hint="fork it again")
    known = {name for step in workflow.steps for name in (step.name, step.sweep)}
    if unknown := next((name for name in request.forced if name not in known), None):
        raise InputInvalid(f"'{unknown[:100]}' is not a step of '{workflow.name}'", hint="leave it out")
    if problem := rules_problem(request.notify):
        raise InputInvalid(problem, hint="send what 'mulligan run' sends")
    if len(run.project) > PROJECT_CHARS_MAX or not run.project.isprintable():
        raise InputInvalid("this is not the name of a project", hint=f"at most {PROJECT_CHARS_MAX} characters")
    return NewRun(data, checked.version, workflow.name, checked, key=_key(run, workflow), project=run.project)


def _inputs(reader: RunReader, workflow: Workflow, request: RunRequested, old: State | None) -> dict[str, Any]:
    """The inputs, of the right types. Those that a child run was called with may be artifacts, also in a fork of it."""
    had = old.run.inputs if old is not None else {}
    refuse_references({name: value for name, value in request.inputs.items() if name not in had or had[name] != value})
    return check_recorded_inputs(workflow, request.inputs, Cel(os.environ, reader.store.artifacts.fetch))


def _labels(reader: RunReader, request: RunRequested) -> dict[str, str]:
    had = reader.labels(request.forked_from) if request.forked_from is not None else {}
    refuse_reserved_labels({name: value for name, value in request.labels.items() if had.get(name) != value})
    return check_labels(request.labels)


def _key(run: NewRun, workflow: Workflow) -> str:
    if not run.key:
        return ""
    is_own = run.key.startswith((CLIENT_KEY, f"{workflow.name}: ")) and not run.key.startswith(_SERVER_KEYS)
    if not is_own or len(run.key) > KEY_CHARS_MAX or not run.key.isprintable():
        raise InputInvalid(
            f"'{run.key[:KEY_CHARS_MAX]}' is not a key of a run of '{workflow.name}'",
            hint=f"write it like '{workflow.name}: KEY', in one line of at most {KEY_CHARS_MAX} characters",
        )
    return run.key
