"""Logs written by every release still fold to the state noted beside them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.support.golden_logs import noted

from mulligan.core.model.codec import decode_log, encode_log
from mulligan.core.model.events import FACTS
from mulligan.core.model.workflow import decode
from mulligan.core.turn import fold

HERE = Path(__file__).parent
LOGS = sorted(HERE.glob("v*/*.log.jsonl"))


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_an_old_log_folds_to_the_state_noted_beside_it(log: Path):
    stem = log.name.removesuffix(".log.jsonl")
    workflow = decode((log.parent / f"{stem}.workflow.json").read_bytes())

    state = fold(workflow, decode_log(log.read_bytes()))

    then = msgspec.json.decode((log.parent / f"{stem}.state.json").read_bytes())
    assert msgspec.to_builtins(noted(state)) == then


def test_the_present_version_has_golden_logs_of_every_kind_of_fact():
    entries = [entry for log in HERE.glob("v1/*.log.jsonl") for entry in decode_log(log.read_bytes())]

    assert {type(entry.fact) for entry in entries} == set(FACTS)


@pytest.mark.parametrize("log", sorted(HERE.glob("v1/*.log.jsonl")), ids=lambda path: path.stem[:2])
def test_what_this_version_reads_it_writes_again_byte_for_byte(log: Path):
    assert encode_log(decode_log(log.read_bytes())) == log.read_bytes()
