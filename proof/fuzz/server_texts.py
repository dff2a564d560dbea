"""Targets that people write for a server: when runs start, whom notices reach, and the file that configures it."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from itertools import islice, pairwise

import apprise
import msgspec

from mulligan.errors import InputInvalid
from mulligan.language.readers.schedule_inputs import check_schedule_inputs
from mulligan.ports import NoticeRecord
from mulligan.service.server.notices.messages import make_digest, make_message
from mulligan.service.server.notices.targets import Target, signing_key
from mulligan.service.server.schedules.cron import check_cron, cron_instants
from mulligan.service.server.schedules.forms import CRON_CHARS_MAX, ScheduleForm, instants, read_schedule
from mulligan.service.server.schedules.instant_inputs import inputs_at, inputs_by_instant
from mulligan.service.server.schedules.timing_words import describe_timing
from mulligan.service.server.server_config import parse_config

from .sentences import Wrong, refusing, require

# Before a change of the clock in Europe, and after one.
MOMENTS = (datetime(2026, 3, 28, 23, 30, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
INSTANTS = 30
# What no message may show. No seed has it, so no mutation puts it elsewhere.
SECRET = "x7hunter2x"


# -- schedules -------------------------------------------------------------------------------------------------------


def cron(data: bytes) -> None:
    """An expression and a time zone, a line each: refused, or instants that come one after the other, both ways."""
    text, _, zone = data.decode("utf-8", "replace").partition("\n")
    text, zone = text[: CRON_CHARS_MAX + 1], zone.strip() or "UTC"
    describe_timing(text, None)
    for at in MOMENTS:
        with refusing():
            check_cron(text, zone, at)
            later = [*islice(cron_instants(text, zone, at), INSTANTS)]
            earlier = [*islice(cron_instants(text, zone, at, backwards=True), INSTANTS)]
            require(all(one < two for one, two in pairwise([at, *later])), f"instants out of order: {later}")
            require(all(one > two for one, two in pairwise(earlier)), f"instants out of order: {earlier}")
            require(not earlier or earlier[0] <= at, "an instant of the past that lies in the future")
            if later:
                # The way back passes the same instants, for what asks what was missed.
                back = [*islice(cron_instants(text, zone, later[-1], backwards=True), len(later))]
                require(back[::-1] == later, f"the way back differs: {back[::-1]} and {later}")


def schedule(data: bytes) -> None:
    """A schedule as a client sends it: refused, or one whose instants come one after the other."""
    try:
        form = msgspec.json.decode(data, type=ScheduleForm)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        form = ScheduleForm("nightly", every=data.decode("utf-8", "replace"))
    with refusing():
        found = read_schedule(form, MOMENTS[0])
        describe_timing(found.cron, found.every)
        later = [*islice(instants(found, MOMENTS[0]), INSTANTS)]
        require(all(one < two for one, two in pairwise([MOMENTS[0], *later])), f"instants out of order: {later}")
        check_schedule_inputs(found.inputs)
        each = inputs_by_instant("nightly", found, later[:3])
        for instant, some in zip(later, each, strict=False):
            made = inputs_at("nightly", found, instant) if some else {}
            require(all(made[name] == value for name, value in some.items()), "an instant has two kinds of inputs")


# -- notices ---------------------------------------------------------------------------------------------------------


def notice_target(data: bytes) -> None:
    """Whom a notice is for, an address a line: taken or refused, by us and by apprise, without showing an address."""
    lines = [f"{line}{SECRET}" for line in data.decode("utf-8", "replace").split("\n")[:4]]
    for given in ({"urls": lines}, {"webhook": lines[0]}, {"urls": lines, "give_up_after": lines[-1]}):
        try:
            target = msgspec.convert(given, Target)
        except msgspec.ValidationError as error:
            _require_hidden(str(error))
            continue
        try:
            with warnings.catch_warnings():
                # Of the modules that it imports for an address.
                warnings.simplefilter("ignore")
                for address in target.addresses():
                    apprise.Apprise().add(address)
        except InputInvalid as error:
            _require_hidden(error.render())
    for line in lines:
        with refusing():
            try:
                signing_key(line)
            except InputInvalid as error:
                _require_hidden(error.render())
                raise


def server_file(data: bytes) -> None:
    """`server.toml`: a configuration, or a refusal with the line. It never shows the address of a target."""
    with refusing():
        config = parse_config(data.decode("utf-8", "replace"))
        for target in config.targets.values():
            require(target.give_up_seconds > 0, "a target that is given up before it is tried")


def notice(data: bytes) -> None:
    """The body of a notice as the store has it: words for people and JSON for programs, also for several at once."""
    found = NoticeRecord("n_1", "ops", data, MOMENTS[0], run_id=1)
    try:
        one = make_message(found, "https://runs.example.org")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    both = make_digest([found, found], MOMENTS[0])
    for message in (one, both):
        msgspec.json.decode(message.event)
        require(bool(message.key), "a message without a key")


def _require_hidden(text: str) -> None:
    if SECRET in text:
        raise Wrong(f"an address in a message: {text[:300]!r}")
