"""Steps for pilots of a profile of their own file, on a machine without pilots."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

FILE = """\
name: sweep
slurm: {short: {labels: [short]}}
steps:
  - {step: a, shell: echo hi, resources: {labels: [short]}}
  - {step: b, shell: test -e ready, needs: [a], resources: {labels: [short]}}
"""


def test_a_run_on_one_machine_offers_what_the_profiles_of_its_file_offer() -> None:
    assert ran(FILE).plain[0] == 1
    Path("ready").touch()

    assert mulligan("retry", 1, "--follow").plain[0] == 0


def test_a_label_that_no_profile_has_is_refused_as_before() -> None:
    other = FILE.replace("{labels: [short]}}\n  - {step: b", "{labels: [long]}}\n  - {step: b")

    refused = mulligan("run", workflow(other))

    assert refused.code == 2 and "label 'long'" in refused.err
