"""The steps of the package in a run of the engine: failures keep their codes, rows are kept with the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mulligan
from mulligan_nl2sql.failures import Code

from .shop import make_shop

WORKFLOW = """
name: scan
inputs: {url: {type: string}, policy: {type: string}, sql: {type: string}}
steps:
  - step: schema
    python: {call: "mulligan_nl2sql.steps:schema"}
    args: {url: "${inputs.url}", policy: "${inputs.policy}"}
  - step: check
    needs: [schema]
    python: {call: "mulligan_nl2sql.steps:check"}
    args: {sql: "${inputs.sql}", url: "${inputs.url}", policy: "${inputs.policy}", schema: "${steps.schema.output}"}
  - step: rows
    needs: [check]
    python: {call: "mulligan_nl2sql.steps:execute"}
    args: {sql: "${steps.check.output.sql}", url: "${inputs.url}", policy: "${inputs.policy}",
           schema: "${steps.schema.output}"}
"""


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "policy.toml").write_text('[databases.shop]\ntables = ["customers"]\nhidden = ["customers.email"]\n')
    (tmp_path / "scan.yaml").write_text(WORKFLOW)
    make_shop(tmp_path / "shop.db")
    return {"url": f"sqlite:///{tmp_path}/shop.db", "policy": str(tmp_path / "policy.toml")}


def test_rows_are_kept_with_the_run(mulligan_home: mulligan.Home, inputs: dict[str, str], tmp_path: Path) -> None:
    sql = "select city, count(*) as n from customers group by city order by city"

    run = mulligan_home.run(tmp_path / "scan.yaml", sql=sql, **inputs)

    output = run.steps["rows"].output
    (kept,) = run.steps["rows"].attempts[0].artifacts
    rows = [json.loads(line) for line in Path(kept.path).read_text().splitlines()]
    assert [row["n"] for row in rows] == [10, 10, 10]
    assert (output["rows"], output["cut"], output["tables"]) == (3, "", ["main.customers"])


def test_a_refusal_keeps_its_code_and_its_severity(
    mulligan_home: mulligan.Home, inputs: dict[str, str], tmp_path: Path
) -> None:
    run = mulligan_home.run(tmp_path / "scan.yaml", sql="select email from customers", **inputs)

    (failed,) = run.failures
    assert (run.status, failed.step) == ("failed", "check")
    assert (failed.failure.code, failed.failure.severity) == (Code.COLUMN_FORBIDDEN, "critical")
    assert failed.failure.details["position"] == {"line": 1, "column": 8, "start": 7, "end": 12}
