"""`mulligan.run` and `mulligan.open`: starting runs, and finding those that there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mulligan.client.driving import WAIT, DrivingOptions, drive, read_options
from mulligan.client.inputs import plain_inputs
from mulligan.client.loading import Runnable, find_workflow, source_file
from mulligan.client.run import Run, Runs
from mulligan.client.session import ExplainedErrors, Session
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import InputInvalid, KeyUsed

if TYPE_CHECKING:
    from mulligan.core.model.event_types import HostCapacity
    from mulligan.service.decisions.pending import PendingEntry
    from mulligan.service.driving.workers import WorkerLine
    from mulligan.service.runs.changes.event_receivers import SentEvents
    from mulligan.service.runs.changes.prepared_runs import Prepared
    from mulligan.service.server.catalogue.catalogue import Publication
    from mulligan.service.service import Service

Status = Literal["running", "paused", "completed", "failed", "cancelled", "open", "ended"]
# What `home.runs(status=…)` accepts, and the statuses in the store that each means.
_STATUSES: dict[str, tuple[str, ...]] = {
    "running": ("running", "new"),
    "paused": ("paused",),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
    "open": ("running", "new", "paused"),
    "ended": tuple(sorted(RUN_ENDED)),
}


class _PublishedRun(NamedTuple):
    """A run of what is published on a server."""

    workflow: str
    version: int | None
    inputs: dict[str, Any]
    labels: Mapping[str, str]

    def start(self, service: Service, key: str) -> int:

        asked = (self.workflow, self.version, self.inputs, self.labels)
        from mulligan.service.server.server_client import start_published

        return start_published(service.home, *asked, key=key).run_id


class Home:
    """The runs of one folder or server. `mulligan.open` gives it.

    Inside a `with` it keeps one connection open; without, each call opens its own.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, by: str = "", token: str = "") -> None:
        self._session = Session(folder, by, token)

    def __enter__(self) -> Home:
        self._session.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The home and its runs can still be used: each call then opens its own."""
        self._session.close()

    @property
    def folder(self) -> Path:
        """The folder with the logs and, unless a server has it, the database."""
        return Path(self._session.folder)

    # -- starting ----------------------------------------------------------------------------------------------------

    def run(
        self,
        flow: Runnable,
        /,
        *,
        inputs: Mapping[str, Any] | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
        parallel: int | None = None,
        memory: str | int | None = None,
        gpus: int | None = None,
        on: str | None = None,
        wait: str | float | timedelta = WAIT,
        changed_only: bool = False,
        force: Iterable[str] = (),
        show: bool | None = None,
        check: bool = False,
        **given: Any,
    ) -> Run:
        """Run a workflow to its end in this process. Returns the run, also if it failed: see `mulligan.run`."""
        with ExplainedErrors():
            options = read_options(parallel, memory, gpus, wait, show, on=on)
            if self._session.is_remote and options.capacity is not None:
                raise InputInvalid(
                    "parallel, memory, gpus and on say where steps run here, and the workers of a server run the steps",
                    hint="leave them out",
                )
            checked_key, asked = self._read_request(
                flow, inputs, given, key, labels, changed_only=changed_only, force=force, capacity=options.capacity
            )
        if isinstance(asked, _PublishedRun):
            start = asked.start
            run_id = drive(self._session, lambda service, _: start(service, checked_key), options)
        else:
            run_id = self._run(asked, checked_key, options)
        found = Run(self._session, run_id, options, is_driven_here=True)
        return found.raise_for_status() if check else found

    def publish(
        self,
        flow: Runnable,
        /,
        *,
        name: str = "",
        note: str = "",
        labels: Mapping[str, str] | None = None,
        include: Iterable[str] = (),
        dry_run: bool = False,
    ) -> Publication:
        """Publish a workflow with the files of its project that it needs: `mulligan publish` of its file.

        `include` has patterns of further files. With `dry_run` nothing is written; `workflow.files` lists what would
        be published.
        """
        from mulligan.service.authoring.workflow_files import finding_published
        from mulligan.service.runs.changes.script_guard import refuse_publication_while_loading
        from mulligan.service.server.publishing.parts import read_publishable

        with ExplainedErrors(), self._session.service() as service:
            refuse_publication_while_loading()
            with finding_published(service.catalogue.load):
                found = read_publishable(source_file(flow), include=tuple(include))
            return service.catalogue.publish_files(found, name=name, note=note, labels=labels or {}, dry_run=dry_run)

    def _read_request(
        self,
        flow: Runnable,
        inputs: Mapping[str, Any] | None,
        given: Mapping[str, Any],
        key: str | None,
        labels: Mapping[str, str] | None,
        *,
        changed_only: bool,
        force: Iterable[str],
        capacity: HostCapacity | None = None,
    ) -> tuple[str, Prepared | _PublishedRun]:
        """The key, and what is to be run, checked: a workflow, or the name of one that the server has."""
        checked_key = _read_key(key)
        published = self._published(flow, changed_only=changed_only, force=force)
        if published is not None:
            return checked_key, _PublishedRun(*published, _all_inputs(inputs, given), labels or {})
        for option, one in (("inputs", inputs), ("labels", labels)):
            if one is not None and not isinstance(one, Mapping):
                raise InputInvalid(
                    f"{option} must be a mapping, not {one!r}", hint=f"write {option}={{'name': 'value'}}"
                )
        for label, text in (labels or {}).items():
            if not isinstance(label, str) or not isinstance(text, str):
                raise InputInvalid(
                    f"label {label!r}: {text!r} is not a text", hint="labels are texts: {'year': '2026'}"
                )
        workflow, file = find_workflow(flow, {**(inputs or {}), **given})
        every = _all_inputs(inputs, given)
        from mulligan.service.runs.changes.prepared_runs import prepare

        try:
            return checked_key, prepare(
                workflow,
                every,
                Path.cwd(),
                file=file,
                labels=labels or {},
                changed_only=changed_only,
                forced=_words(force),
                capacity=capacity,
                has_files=not self._session.is_remote,
            )
        except InputInvalid as error:
            wrong = error.data.get("input")
            if wrong in workflow.inputs and wrong not in every:
                error.hint = f"give it as a keyword: {wrong}=…"
            elif wrong not in workflow.inputs and wrong in _OPTIONS:
                error.hint = f"'{wrong}' is an option of mulligan.run: mulligan.run({workflow.name}, …, {wrong}=…)"
            raise

    def _published(self, flow: Runnable, *, changed_only: bool, force: Iterable[str]) -> tuple[str, int | None] | None:
        """The name and the version of what is published on the server: `nightly`, `nightly@3`. None for a workflow."""
        if not self._session.is_remote or not isinstance(flow, str) or Path(flow).exists():
            return None
        is_bare = not Path(flow).suffix and Path(flow).name == flow
        from mulligan.service.server.catalogue.texts import published_reference

        found = published_reference(flow) or ((flow, None) if is_bare else None)
        if found is not None and (changed_only or _words(force)):
            raise InputInvalid(
                "changed_only and force are for a file: a server runs every step of a published workflow",
                hint="leave them out",
            )
        return found

    def _run(self, prepared: Prepared, key: str, options: DrivingOptions) -> int:
        try:
            return drive(
                self._session, lambda service, driver: service.changes.create(prepared, driver, key=key)[0], options
            )
        except KeyUsed as used:
            with self._session.service() as service:
                run_id = service.starts.find_existing_run(prepared, key, used).run_id
                record = (
                    service.runs.record(run_id) if self._session.is_remote else service.driving.wait_for_driver(run_id)
                )
        if record.status in (*RUN_ENDED, "paused"):
            return run_id
        return drive(self._session, lambda service, driver: run_id, options, like_run=run_id)

    def start(
        self,
        flow: Runnable,
        /,
        *,
        inputs: Mapping[str, Any] | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
        changed_only: bool = False,
        force: Iterable[str] = (),
        **given: Any,
    ) -> Run:
        """Start a run that workers drive (`mulligan worker`), and return at once.

        With a `key` the run is started once: the same key gives the same run.

            handle = home.start(flow, key="2026-11-16", target="prod")
            handle.wait(timeout="1h")
        """
        with ExplainedErrors():
            checked_key, asked = self._read_request(
                flow, inputs, given, key, labels, changed_only=changed_only, force=force
            )
        with self._session.service() as service:
            if isinstance(asked, _PublishedRun):
                return Run(self._session, asked.start(service, checked_key))
            try:
                (run_id,) = service.changes.create(asked, key=checked_key)
            except KeyUsed as used:
                run_id = service.starts.find_existing_run(asked, checked_key, used).run_id
        return Run(self._session, run_id)

    # -- finding -----------------------------------------------------------------------------------------------------

    def get(self, run: int | str) -> Run:
        """The run with this number; "latest" is the newest. `UnknownRun` if there is none."""
        with self._session.service() as service:
            return Run(self._session, service.runs.find(str(run)))

    def runs(
        self,
        *,
        status: Status | Iterable[Status] = (),
        workflow: str | Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        since: str | datetime | timedelta | None = None,
        until: str | datetime | timedelta | None = None,
        who: str | Iterable[str] = (),
        text: str = "",
        failure: str | Iterable[str] = (),
        children: bool = False,
        before: int | None = None,
        limit: int = 50,
    ) -> Runs:
        """The newest runs first, at most `limit`; with `before` only those with a lower number, for the next page.

            home.runs(status="failed", since="7d", limit=20)

        `status` may also be "open" or "ended". `since` and `until` are a `datetime`, a text such as "2026-11-01", or
        how long ago: "7d", a `timedelta`. `who` started them; `failure` is the code that they failed with, such as
        "TIMEOUT"; `text` are words of their names, labels, inputs or failures. `children`: also the runs that other
        runs called.
        """
        now = datetime.now(UTC)
        with self._session.service() as service:
            if not isinstance(limit, int) or limit < 1:
                raise InputInvalid(f"limit must be a whole number, at least 1, not {limit!r}")
            from mulligan.service.runs.views.run_list import RunQuery

            query = RunQuery(
                statuses=_read_statuses(status),
                workflows=_words(workflow),
                since=_read_time(since, now),
                until=_read_time(until, now),
                inputs={name: str(value) for name, value in (inputs or {}).items()},
                labels=dict(labels or {}),
                starters=_words(who),
                failure_codes=_words(failure),
                text=text,
                with_children=children,
                limit=limit,
                before=before,
            )
            found = service.runs.page(query).runs
        return Runs(Run(self._session, line.run_id) for line in found)

    def pending(self) -> list[PendingEntry]:
        """What waits for a person, over all runs: parked steps, approvals, pauses."""
        with self._session.service() as service:
            return service.decisions.list_pending()

    def workers(self) -> list[WorkerLine]:
        """The workers of the store: what each can take, what is in use, what it runs now."""
        with self._session.service() as service:
            return service.machine.list_workers()

    # -- decisions ---------------------------------------------------------------------------------------------------

    def send(
        self,
        run: int | str | None,
        name: str,
        value: Any = None,
        *,
        key: str = "",
        run_key: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> SentEvents:
        """Send an event to a run, to the run that was started with `run_key`, or to all open runs with these labels.

        A second event with the same `key` is the same. Returns the runs that have got it, and of several those that
        have refused it.
        """
        from mulligan.service.runs.changes.event_receivers import SentEvents, send_to_all

        plain = plain_inputs({"value": value})["value"]
        with self._session.service() as service:

            def send_to(run_id: int) -> None:
                service.changes.send_event(run_id, name, plain, key=key)

            if labels and run is None:
                return send_to_all(service.runs.find_receivers(key=run_key, labels=labels), send_to)
            if run is not None and (run_key or labels):
                raise InputInvalid("an event is for a run, for a key or for labels", hint="name one of them")
            run_id = service.runs.find(str(run)) if run is not None else service.runs.find_receivers(key=run_key)[0]
            send_to(run_id)
            return SentEvents([run_id], [])

    def classify(self, run: int | str, step: str, verdict: Literal["retry", "fail"], reason: str) -> Run:
        """Decide about a parked step of a run: retry it, or let it fail."""
        return self.get(run).classify(step, verdict, reason)

    def approve(self, run: int | str, step: str, reason: str) -> Run:
        """Give an approval that a run waits for."""
        return self.get(run).approve(step, reason)

    def refuse(self, run: int | str, step: str, reason: str) -> Run:
        """Refuse an approval that a run waits for."""
        return self.get(run).refuse(step, reason)

    def __repr__(self) -> str:
        return f"<Home {self._session.place}>"


def connect(url: str, *, token: str | None = None) -> Home:
    """The runs of a server, as `mulligan.open` gives those of a folder. Its workers drive them.

    `token` is by default $MULLIGAN_TOKEN, or what `mulligan login URL` has stored.

        with mulligan.connect("https://mulligan.example:8642") as home:
            run = home.run("nightly.yaml", target="prod")
            print(run.status, run.outputs)

    A file is sent as it is: its steps find the files of the server, and work in a folder there.
    """
    with ExplainedErrors():
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InputInvalid(f"{url!r} is not the URL of a server", hint="write it like https://HOST:8642")
        home = Home(url, token=token or "")
        # Asked now, so that a wrong address or token is known at once.
        with home._session.service() as service:
            service.machine.ping()
    return home


def open(home: str | os.PathLike[str] | None = None, *, by: str = "") -> Home:
    """The runs of a folder: `home`, by default `$MULLIGAN_HOME` or `.mulligan`; or those of a server.

    The server is `$MULLIGAN_SERVER` (see `connect`), or a database server, `$MULLIGAN_STORE`.

    `by` is the name under which changes are recorded, by default `$MULLIGAN_BY` or your user name.

        with mulligan.open() as home:
            for run in home.runs(status="failed", limit=20):
                print(run.id, run.failures)
    """
    return Home(home, by=by)


def run(
    flow: Runnable,
    /,
    *,
    inputs: Mapping[str, Any] | None = None,
    home: Home | str | os.PathLike[str] | None = None,
    key: str | None = None,
    labels: Mapping[str, str] | None = None,
    parallel: int | None = None,
    memory: str | int | None = None,
    gpus: int | None = None,
    on: str | None = None,
    wait: str | float | timedelta = WAIT,
    changed_only: bool = False,
    force: Iterable[str] = (),
    by: str = "",
    show: bool | None = None,
    check: bool = False,
    **given: Any,
) -> Run:
    """Run a workflow to its end in this process, durably, and return the run.

        run = mulligan.run("nightly.yaml", target="prod")
        print(run.status, run.outputs)

    `flow` is the path of a file, what `mulligan.load` gives, a `mulligan.Workflow`, or a function with
    `@mulligan.flow`. Inputs are given as keywords; those with the name of an option go into `inputs`.

    A run that fails raises nothing: look at `run.status`, or call `run.raise_for_status()`; with `check=True` that is
    done here. If only a person can move it, the run is returned with the status "waiting"; `run.pending` says what it
    waits for, and `run.approve` or `run.classify` continue it. Ctrl-C leaves the run in order and raises
    `KeyboardInterrupt`; `mulligan.open().get(id).resume()` continues it, as after a crash.

    - `home`: the folder of the runs, by default `$MULLIGAN_HOME` or `.mulligan`; or an open `Home`.
    - `key`: start the run only once. The same key gives the same run, which is waited for or continued.
    - `labels`: to find the run with `home.runs(labels=…)`.
    - `parallel`: how many steps run at once, by default one per processor.
    - `memory` ("64GiB") and `gpus`: what steps may use, by default all of this machine.
    - `on`: the Dask cluster whose workers run the steps, like "dask://HOST:8786". The run remembers all four.
    - `wait`: how long to wait for a timer if everything else waits for a person.
    - `changed_only`: steps that are up to date take their results from earlier runs, except those in `force`.
    - `by`: the name that is recorded.
    - `show`: whether progress is shown; by default on a terminal and in a notebook.
    """
    found = home if isinstance(home, Home) and not by else open(home.folder if isinstance(home, Home) else home, by=by)
    return found.run(
        flow,
        inputs=inputs,
        key=key,
        labels=labels,
        parallel=parallel,
        memory=memory,
        gpus=gpus,
        on=on,
        wait=wait,
        changed_only=changed_only,
        force=force,
        show=show,
        check=check,
        **given,
    )


# -- what a program gives, checked -----------------------------------------------------------------------------------


# What a program may give beside inputs. `Flow.run` takes inputs only.
_OPTIONS = frozenset(run.__kwdefaults__ or ())


def _all_inputs(inputs: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of both kinds, none of them twice."""
    if twice := (inputs or {}).keys() & given.keys():
        raise InputInvalid(f"input '{min(twice)}' is given twice", hint="give it as a keyword or in inputs, not both")
    return plain_inputs({**(inputs or {}), **given})


def _read_key(key: str | None) -> str:
    """The key as the service has it: "" for none. An empty one is refused, since it was meant to be a key."""
    if key is None:
        return ""
    if not isinstance(key, str):
        hint = "if 'key' is an input of the workflow, give it as inputs={'key': …}"
        raise InputInvalid(f"key must be a text, not {key!r}", hint=hint)
    if not key:
        raise InputInvalid("key is empty", hint="leave it out to start a run without a key")
    from mulligan.service.runs.changes.starting import check_key

    return check_key(key)


def _read_statuses(given: str | Iterable[str]) -> tuple[str, ...]:
    words = _words(given)
    for word in words:
        if word not in _STATUSES:
            from mulligan.language.text.suggestions import did_you_mean

            hint = did_you_mean(word, _STATUSES) or f"give {', '.join(_STATUSES)}"
            if word in ("waiting", "pending"):
                hint = "a run that waits counts as running; what waits for a person: home.pending()"
            raise InputInvalid(f"'{word}' is not a status of a run", hint=hint)
    return tuple(dict.fromkeys(status for word in words for status in _STATUSES[word]))


def _words(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _read_time(given: str | datetime | timedelta | None, now: datetime) -> datetime | None:
    if isinstance(given, timedelta):
        return now - given
    if isinstance(given, str):
        from mulligan.service.authoring.values import parse_time

        return parse_time(given, now)
    # A time without a zone is local.
    return given if given is None else given.astimezone(UTC)
