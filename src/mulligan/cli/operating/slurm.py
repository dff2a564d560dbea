"""`mulligan slurm`: workers of a store as jobs of Slurm, the pilots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

from mulligan.cli.output.tables import length, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.effects.run_lists import QueuedShape
from mulligan.service.authoring.values import parse_duration
from mulligan.service.host.slurm.draining import Drained
from mulligan.service.host.slurm.overview import PilotLine, SlurmStatus
from mulligan.service.host.slurm.profiles import Profiles
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.service import Service

_WORDS = ("submit", "auto", "status", "drain")
# Which options belong to which words.
_OPTIONS = {
    "N": ("submit",),
    "--profile": ("submit", "auto", "drain"),
    "--file": ("submit", "auto", "status"),
    "--tasks": ("submit",),
    "--max": ("auto",),
    "--every": ("auto",),
    "--once": ("auto",),
    "--now": ("drain",),
}
# How many ids of jobs are shown.
IDS_MAX = 10
HEADS = ("PILOT", "PROFILE", "STATE", "NODE", "SIZE", "LEFT", "TASKS", "WORKER")


def slurm(
    word: Annotated[str, Argument("submit|auto|status|drain", "What to do.")],
    count: Annotated[
        int | None, Argument("N", "For 'submit': how many pilots (default: 'pilots' of the profile).")
    ] = None,
    profile: Annotated[
        str | None, Option("NAME", "The profile (default: 'default' for 'submit', otherwise all).")
    ] = None,
    file: Annotated[Path | None, Option("FILE", "A workflow file whose profiles count as well.")] = None,
    tasks: Annotated[int | None, Option("N", "For 'submit': each pilot ends after so many tasks.")] = None,
    most: Annotated[int | None, Option("N", "For 'auto': how many pilots there may be at a time.", "--max")] = None,
    every: Annotated[str | None, Option("DURATION", "For 'auto': how often it looks (default 10s).")] = None,
    is_once: Annotated[bool, Flag("For 'auto': look a single time, for cron.", "--once")] = False,
    now: Annotated[bool, Flag("For 'drain': interrupt the tasks of running pilots; they run again elsewhere.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Submit workers as Slurm jobs, show them, and end them.

    A pilot is a Slurm job in which 'mulligan worker' runs: it takes tasks of the store that $MULLIGAN_STORE or
    $MULLIGAN_SERVER names until its time is over, or until it has had no task for 90 seconds. 'submit' submits N pilots
    in one job array. 'auto' submits pilots while tasks wait for a worker, at most --max at a time, until it is stopped.
    'status' lists the pilots of the store, and what the queue asks for. 'drain' ends every 'auto' of the store, cancels
    pilots that wait, and lets those that run end after their tasks. A profile says how pilots are submitted (partition,
    account, walltime, cpus, memory ...): the tables [slurm.NAME] of mulligan.toml in this folder, of the file that
    $MULLIGAN_SLURM_PROFILES names, or of ~/.config/mulligan/slurm.toml; and the key 'slurm' of a workflow file.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of slurm", hint="write submit, auto, status or drain")
    given = {"N": count, "--profile": profile, "--file": file, "--tasks": tasks, "--max": most, "--every": every}
    given |= {"--once": is_once or None, "--now": now or None}
    for option, words in _OPTIONS.items():
        if given[option] is not None and word not in words:
            raise UsageRefused(f"'slurm {word}' has no {option}", hint=f"it is for 'slurm {words[0]}'")
    with service_at(home) as service:
        if word == "submit":
            profiles = _profiles(service, file)
            count = count if count is not None else profiles.get(profile or "default").pilots
            if count is None:
                hint = "write: mulligan slurm submit 4; or 'pilots' into the profile"
                raise UsageRefused("'slurm submit' needs the number of pilots", hint=hint)
            _submit(service, count, profile or "default", profiles, tasks, as_json=as_json)
        elif word == "auto":
            if most is None:
                hint = "write: mulligan slurm auto --max 10"
                raise UsageRefused("'slurm auto' needs to know how many pilots there may be", hint=hint)
            _auto(service, most, profile or "", _profiles(service, file), every, is_once=is_once)
        elif word == "drain":
            _show_drained(service.machine.slurm_drain(profile or "", now=now), as_json=as_json)
        else:
            _show_status(service.machine.slurm_status(_profiles(service, file)), as_json=as_json)
    return 0


def _profiles(service: Service, file: Path | None) -> Profiles:
    if file is None:
        return service.machine.slurm_profiles(Path.cwd())
    return service.machine.slurm_profiles(Path.cwd(), service.workflows.load_workflow(file).slurm, str(file))


def _submit(
    service: Service, count: int, profile: str, profiles: Profiles, tasks: int | None, *, as_json: bool
) -> None:
    found = service.machine.slurm_submit(count, profile, profiles, tasks=tasks)
    _note_local(service)
    if as_json:
        show_result(found)
        return
    show(f"submitted {pluralize(count, 'pilot')} with profile '{profile}': Slurm job {found.job_id}")
    complain(f"  output: {found.output}")
    complain("  how they are: mulligan slurm status")


def _note_local(service: Service) -> None:
    if local := service.machine.slurm_only_here():
        complain(f"note: the store is at {local}, which pilots on other hosts cannot reach")


def _auto(service: Service, most: int, profile: str, profiles: Profiles, every: str | None, *, is_once: bool) -> None:
    seconds = None if every is None else parse_duration(every)
    if seconds is not None and seconds < 1:
        raise UsageRefused(f"--every {every} is too often", hint="a controller has many users: 10s is usual")

    def say_start() -> None:
        _note_local(service)
        if not is_once:
            complain(f"submitting pilots while tasks wait, at most {most} at a time; to end it: Ctrl-C, or slurm drain")

    reason = service.machine.slurm_auto(
        profiles,
        most,
        profile=profile,
        every_seconds=seconds,
        is_once=is_once,
        say=_say_with_time,
        say_start=say_start,
    )
    if reason:
        complain(f"slurm auto has ended: {reason}")


def _say_with_time(text: str) -> None:
    complain(f"{datetime.now():%H:%M:%S} {text}")


def _show_drained(found: Drained, *, as_json: bool) -> None:
    if as_json:
        show_result(found)
        return
    if not (found.cancelled or found.asked or found.interrupted):
        show("there is no pilot to drain")
    if found.cancelled:
        show(f"cancelled {pluralize(len(found.cancelled), 'pilot')} before the start: {_ids(found.cancelled)}")
    if found.asked:
        whose = "its" if len(found.asked) == 1 else "their"
        show(f"asked {pluralize(len(found.asked), 'pilot')} to end after {whose} tasks: {_ids(found.asked)}")
    if found.interrupted:
        show(f"ended {pluralize(len(found.interrupted), 'pilot')} at once: {_ids(found.interrupted)}")


def _ids(found: Sequence[str]) -> str:
    more = f" and {len(found) - IDS_MAX} more" if len(found) > IDS_MAX else ""
    return ", ".join(found[:IDS_MAX]) + more


def _show_status(found: SlurmStatus, *, as_json: bool) -> None:
    if as_json:
        show_result(found)
        return
    if not found.pilots:
        complain("there is no pilot of this store; to submit some: mulligan slurm submit N")
    show_table(HEADS, [_row(one) for one in found.pilots])
    reasons = {one.shape: one.reason for one in found.unmet}
    for shape in found.demand:
        each = ", each" if shape.count > 1 else " with"
        show(f"queued: {pluralize(shape.count, 'task')}{each} {', '.join(_asked(shape))}")
        if reason := reasons.get(shape):
            show(f"  without pilots: {reason}")
    for breaker in found.breakers:
        until = f" until {breaker.retry_at.astimezone():%H:%M:%S}" if breaker.retry_at else ""
        show(f"breaker '{breaker.name}' is open{until}: {pluralize(breaker.failures, 'pilot')} in a row have failed")
    for one in found.failed:
        show(f"{one}")
        show(f"  output: {one.output}")


def _asked(shape: QueuedShape) -> Iterator[str]:
    yield f"{shape.cpus:g} {'cpu' if shape.cpus == 1 else 'cpus'}"
    if shape.memory:
        yield format_size(shape.memory)
    if shape.gpus:
        yield pluralize(shape.gpus, "gpu")
    if shape.nodes > 1:
        yield pluralize(shape.nodes, "node")
    if shape.labels:
        yield f"{'label' if len(shape.labels) == 1 else 'labels'} {', '.join(shape.labels)}"
    if shape.timeout is not None:
        yield f"timeout {length(shape.timeout)}"


def _row(one: PilotLine) -> tuple[str, ...]:
    left = length(one.seconds_left) if one.seconds_left is not None else ""
    worker = one.worker or ("no worker yet" if one.state == "RUNNING" else "")
    return one.job_id, one.profile, one.state.lower(), one.node, ", ".join(_size(one)), left, str(one.tasks), worker


def _size(one: PilotLine) -> Iterator[str]:
    if one.nodes > 1:
        yield pluralize(one.nodes, "node")
    if one.cpus is not None:
        yield pluralize(one.cpus, "cpu")
    if one.memory is not None:
        yield format_size(one.memory)
    if one.gpus:
        yield pluralize(one.gpus, "gpu")
