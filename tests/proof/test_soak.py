"""The soak, shortly: real processes, a few runs of each kind, and people who watch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proof.soak.__main__ import told
from proof.soak.figures import figures
from proof.soak.flows import FLOWS, expected_of, flow_of
from proof.soak.holdings import holdings
from proof.soak.soak import Settings, Soak

# Runs of every kind, all at once; two are asked for twice, and of one the first answer is lost.
SHORT = Settings(runs=20, minutes=5.0, watchers=5, is_spread=False)


@pytest.mark.nightly
def test_a_server_with_two_workers_and_watchers_loses_doubles_and_keeps_nothing(tmp_path: Path) -> None:
    with Soak(SHORT, tmp_path) as soak:
        soak.endure()
        soak.check()

    table = [line.split() for line in figures(soak.report)]
    sampled = {sample.name for sample in soak.report.samples if sample.holdings["memory"] > 0}

    assert soak.report.findings == []
    assert len(soak.load.ended) == len(soak.load.submissions) == SHORT.runs
    assert {"server", "server: background", "worker 1", "worker 2"} <= sampled
    assert (soak.report.counts["asked again"], soak.report.counts["left before the answer"]) == (2, 1)
    assert soak.report.counts["streams"] > 1
    assert [words[0] for words in table] == ["minutes", "1", "2", "2", "3", "4", "5"]
    assert [words[1] for words in table] == ["runs", str(SHORT.runs), "0", "0", "0", "0", "0"]
    assert {latency.kind for latency in soak.report.latencies} >= {"submit: accepted", "get: list of runs"}


def test_so_short_a_soak_is_not_called_flat(tmp_path: Path) -> None:
    soak = Soak(SHORT, tmp_path)

    soak.judge()

    assert soak.report.findings == ["samples: no process was sampled after the warm-up"]
    assert "1 findings" in list(told(soak.report))


def test_descriptors_sockets_threads_and_memory_of_a_process_are_read() -> None:
    code = "import os, socket; files = [os.dup(1), socket.socket()]; print('ready', flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        held = holdings(process.pid)
        process.communicate("\n")

    assert held == {"memory": held["memory"], "files": 5, "sockets": 1, "threads": 1}
    assert held["memory"] > 1 << 20
    assert holdings(process.pid) == {}


def test_twenty_runs_have_every_kind_and_every_end() -> None:
    assert {flow_of(number) for number in range(20)} == set(FLOWS)
    assert {expected_of(number).status for number in range(40) if flow_of(number) == "parked"} == {
        "completed",
        "failed",
    }
