"""Events as bytes and back, for every kind of event and every version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

from mulligan.core.model import events as e
from mulligan.core.model.codec import VERSION, decode, decode_all, decode_log, encode, encode_all, encode_log
from mulligan.core.model.event_types import Adjusted, Kept, Passed, Route
from mulligan.core.model.events import FACTS, Entry
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Step
from mulligan.core.model.workflow import decode as decode_workflow
from mulligan.core.turn import fold
from mulligan.errors import CodecError
from mulligan.testing.history import History, edge, handler, retry, step, workflow

T0 = datetime(2026, 11, 15, 3, 12, tzinfo=UTC)


def test_an_entry_is_one_line_of_json_with_its_version_first():
    entry = Entry(8, T0, 7, e.StepCompleted("build", 1, 2, {"ok": True}))

    data = encode(entry)

    assert data == (
        b'{"v":1,"seq":8,"at":"2026-11-15T03:12:00Z","caused_by":7,'
        b'"fact":{"type":"step.completed","step":"build","visit":1,"attempt":2,"output":{"ok":true}}}'
    )


def test_facts_are_named_by_noun_and_participle():
    names = {kind.__name__: kind.__struct_config__.tag for kind in FACTS}

    assert names["StepPutBack"] == "step.put_back"
    assert names["RunCompleted"] == "run.completed"
    assert len(set(names.values())) == len(FACTS)


SAMPLES: dict[str, Any] = {
    "failure": failure("TIMEOUT", "slow", step="build", at=T0, cause=(failure("CONNECTION", "gone"),)),
    "due": T0,
    "definition": {"name": "test", "steps": [{"name": "a", "timeout": 1.5}], "end": {"name": "end"}},
    "changed": {"a": ("shell", "timeout")},
    "items": [1, {"a": None}, "ä"],
    "adjusted": Adjusted(memory=2**33),
    "kept": (Kept("a", "completed", 1, ("b",)),),
    "route": Route("selected", 1, "fix", 2, passed=(Passed(0, "end", "codes_do_not_match"),)),
    "held": (("retry", "build", 2),),
    "output": {"nested": [1.5, "ü", None, True]},
    "value": {"nested": [1.5, "ü", None, True]},
    "messages": [{"role": "user", "text": "ü"}],
}


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_every_fact_survives_being_written_and_read(kind: type[e.Fact]):
    required = {f.name: _sample(f) for f in msgspec.structs.fields(kind)}
    entry = Entry(1, T0, 0, kind(**required))  # type: ignore[arg-type]

    assert decode(encode(entry)) == entry


def _sample(field: msgspec.structs.FieldInfo) -> Any:
    plain: dict[Any, Any] = {int: 3, float: 1.5, str: "build", bool: True, Step: Step(name="build")}
    if field.name in SAMPLES and field.type not in (str, Step):
        return SAMPLES[field.name]
    if field.type in plain:
        return plain[field.type]
    if not field.required:
        return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return get_args(field.type)[0]


def test_a_whole_log_folds_to_the_same_state_after_a_round_trip():
    flow = workflow(
        step("a", rules=retry(1)),
        step("b", needs=["a"], on_failure=handler()),
        step("c", next=[edge("d", "failure", then="rerun")]),
        step("d"),
    )
    run = History(flow).start().fail("a").ok("a").fail("b").ok("b.on_failure@1.0").fail("c").ok("d").ok("c")

    again = fold(flow, decode_log(encode_log(run.log)))

    assert run.status == "completed"
    assert again == run.state


def test_an_old_version_is_lifted_step_by_step_to_the_present_one():
    old = b'{"v":1,"seq":1,"at":"2026-11-15T03:12:00Z","caused_by":0,"fact":{"type":"step.gone_by","name":"a"}}'

    def to_2(plain: dict[str, Any]) -> dict[str, Any]:
        return {**plain, "v": 2, "fact": {"type": "step.skipped", "name": plain["fact"]["name"]}}

    def to_3(plain: dict[str, Any]) -> dict[str, Any]:
        return {**plain, "v": 3, "fact": {"type": "step.skipped", "step": plain["fact"]["name"], "reason": "old"}}

    entry = decode(old, upcasts={1: to_2, 2: to_3}, version=3)

    assert entry == Entry(1, T0, 0, e.StepSkipped("a", "old"))


def test_a_version_that_nobody_can_lift_is_refused():
    old = b'{"v":0,"seq":1}'

    with pytest.raises(CodecError) as refused:
        decode(old)

    assert refused.value.message == "an event of version 0 cannot be upcast to 1"


def test_an_event_of_a_newer_mulligan_is_refused_with_what_to_do():
    newer = b'{"v":%d,"seq":1}' % (VERSION + 1)

    with pytest.raises(CodecError) as refused:
        decode(newer)

    assert refused.value.render() == (
        "error[codec]: an event was written by a newer Mulligan (version 2, this one reads up to 1)\n"
        "  use the Mulligan that wrote it, or a newer one"
    )


BAD = {
    "not json": b"nonsense",
    "cut short": b'{"v":1,"seq":8,"at":"2026-11-15T03:12:00Z"',
    "no version": b'{"seq":1}',
    "a list": b"[]",
    "unknown fact": b'{"v":1,"seq":8,"at":"2026-11-15T03:12:00Z","caused_by":7,"fact":{"type":"step.exploded"}}',
    "wrong type": b'{"v":1,"seq":"8","at":"2026-11-15T03:12:00Z","caused_by":7,"fact":{"type":"run.paused"}}',
    "not utf-8": b'{"v":1,"seq":8,"at":"\xff"}',
    "empty": b"",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read_is_a_codec_error_and_nothing_else(data: bytes):
    with pytest.raises(CodecError):
        decode(data)


def test_an_event_that_is_nested_too_deep_is_refused_in_words():
    deep = encode(Entry(8, T0, 7, e.StepCompleted("build", 1, 2, "HERE"))).replace(b'"HERE"', b"[" * 5000)

    with pytest.raises(CodecError) as refused:
        decode(deep)

    assert refused.value.message == "an event cannot be read: it is nested too deeply"


def test_a_workflow_that_was_kept_and_is_damaged_is_refused_in_words():
    with pytest.raises(CodecError) as refused:
        decode_workflow(b'{"name": 1}')

    assert refused.value.message == "a stored workflow cannot be read: Expected `str`, got `int` - at `$.name`"


def test_many_lines_are_written_and_read_as_each_of_them_alone():
    log = History(workflow(step("a"))).start().ok("a").log

    lines = [encode(entry) for entry in log]

    assert encode_all(log) == lines
    assert decode_all(lines) == log


@pytest.mark.parametrize("bad", [b"", b'{"v":1,"seq":', b'{"v":99}', "text", None])
def test_among_many_lines_the_one_that_cannot_be_read_is_refused_as_if_it_were_alone(bad: Any):
    good = encode(History(workflow(step("a"))).start().log[0])

    with pytest.raises(CodecError) as alone:
        decode(bad)
    with pytest.raises(CodecError) as among:
        decode_all([good, bad, good])

    assert (among.value.message, among.value.hint) == (alone.value.message, alone.value.hint)
