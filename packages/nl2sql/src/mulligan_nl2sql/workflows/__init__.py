"""The workflows of the package, as files."""

from __future__ import annotations

from pathlib import Path

ASK = Path(__file__).with_name("ask.yaml")
BENCHMARK = Path(__file__).with_name("benchmark.yaml")
SCAN = Path(__file__).with_name("scan.yaml")
