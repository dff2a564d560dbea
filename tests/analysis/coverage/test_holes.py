"""Workflows with a hole that was planted, each with the line that it is in; and the same workflows, mended."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from mulligan.analysis.coverage.finding_codes import FINDINGS
from mulligan.service.authoring.area import Workflows

HOLES = Path(__file__).parent / "holes"
MENDED = ".mended.yaml"
PLANTED = sorted(path for path in HOLES.glob("*.yaml") if not path.name.endswith(MENDED))
MARK = re.compile(r"# finds: (\w+)")


def planted_in(path: Path) -> list[tuple[str, int]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(found[1], number) for number, line in enumerate(lines, 1) for found in MARK.finditer(line)]


def found_in(path: Path) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in Workflows.play(path).cover(pairs=False).findings]


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
def test_a_planted_hole_is_found_at_its_line_and_nothing_else_is(path: Path) -> None:
    assert found_in(path) == planted_in(path)


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
def test_nothing_is_found_in_the_mended_workflow(path: Path) -> None:
    assert found_in(path.with_suffix(MENDED)) == []


def test_there_are_at_least_two_holes_of_each_kind() -> None:
    count = Counter(code for path in PLANTED for code, _ in planted_in(path))

    assert {code: count[code] for code in FINDINGS if count[code] < 2} == {}
    assert set(count) <= set(FINDINGS)
    assert len(PLANTED) >= 20


def test_the_page_for_users_explains_every_finding() -> None:
    page = Path(__file__).parents[3] / "docs/how-to/coverage.md"

    assert re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE) == [*FINDINGS]
