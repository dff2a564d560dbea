"""docs/nl2sql.md: its policy is read, its tables are those of the code. tests/test_docs.py runs its commands."""

from __future__ import annotations

import re
from pathlib import Path

from mulligan_nl2sql.asking.answers import EXIT_CODES, EXIT_USAGE
from mulligan_nl2sql.benchmark.reports import EXIT_BELOW_BAR
from mulligan_nl2sql.failures import RULES
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import read_policies

PAGE = (Path(__file__).parents[3] / "docs" / "nl2sql.md").read_text()


def test_the_policy_of_the_page_is_read_and_has_the_limits_of_the_code(tmp_path: Path) -> None:
    (policy_text,) = re.findall(r"^```toml policy.toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "policy.toml").write_text(policy_text)

    policy = read_policies(tmp_path / "policy.toml").for_database("shop")

    assert policy.limits == Limits()
    assert policy.hidden == ("customers.email",)


def test_the_table_of_failures_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \| (\w*) ?\|", PAGE, re.MULTILINE)

    assert rows == [
        (code.value, rule.severity, "yes" if rule.is_retryable else "no", rule.repair.value)
        for code, rule in RULES.items()
    ]


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)

    shown = {status: int(code) for code, status in rows if int(code) != EXIT_USAGE}

    assert shown == {status.value: code for status, code in EXIT_CODES.items()}
    assert f"exit code {EXIT_BELOW_BAR} if one is missed" in PAGE
