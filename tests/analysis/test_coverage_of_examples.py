"""Every example, also those of other systems, is played without running anything of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.nightly import examples

from mulligan.analysis.coverage.explore import explore
from mulligan.errors import MulliganError
from mulligan.formats import examine_located
from mulligan.language.expressions import Cel

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FILES = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in (".yaml", ".yml", ".json", ".json5", ".kdl"))
# All of them are played at night.
PARTS = 12


@pytest.mark.parametrize("part", range(examples(2, PARTS)))
def test_the_failures_of_every_example_are_played(part: int) -> None:
    played = 0
    for file in FILES[part::PARTS]:
        try:
            workflow = examine_located(file).examined.workflow
        except MulliganError:
            # An input, an answer of a model, a file that is refused.
            continue

        coverage = explore(workflow, evaluator=Cel(), pairs=False)

        assert coverage.cells, file
        assert not any("too many" in line for line in coverage.unknown), file
        played += 1
    assert played > len(FILES) // PARTS // 2
