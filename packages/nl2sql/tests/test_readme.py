"""The page of the package: its code runs, its policy is read, its table is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan_nl2sql.asking.answers import EXIT_CODES, EXIT_USAGE
from mulligan_nl2sql.failures import RULES
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import read_policies

from .shop import make_shop

README = (Path(__file__).parent.parent / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_shop(tmp_path / "shop.db")
    monkeypatch.chdir(tmp_path)

    exec(compile(block("python"), "README.md", "exec"), {})

    assert capsys.readouterr().out.startswith('3 whole SELECT "customers"."city"')


def test_the_policy_of_the_page_is_read_and_has_the_limits_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(block("toml"))

    policy = read_policies(tmp_path / "policy.toml").for_database("shop")

    assert policy.limits == Limits()
    assert policy.hidden == ("customers.email",)


def test_the_table_of_failures_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|no) \| (\w*) ?\|", README, re.MULTILINE)

    assert rows == [
        (code.value, rule.severity, "yes" if rule.is_retryable else "no", rule.repair.value)
        for code, rule in RULES.items()
    ]


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", README, re.MULTILINE)

    shown = {status: int(code) for code, status in rows if int(code) != EXIT_USAGE}

    assert shown == {status.value: code for status, code in EXIT_CODES.items()}
