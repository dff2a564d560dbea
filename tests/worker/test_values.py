"""Typed values through a worker: arguments as annotations say, tables as files, and what other programs get."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import sample
from tests.support.work import Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.artifacts import is_artifact, parse_reference
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Secret
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.artifact_memory import ArtifactMemory

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

FRAME = "import pandas as pd\ndef main(**given): return pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz')})"


@pytest.fixture
def files(tmp_path: Path) -> ArtifactFiles:
    return ArtifactFiles(tmp_path / "artifacts")


@pytest.fixture
def keeping(tmp_path: Path, files: ArtifactFiles) -> Iterator[Work]:
    found = Work(tmp_path, artifacts=files)
    yield found
    found.close()
    assert found.remaining() == []


def code_of(report: TaskEnded) -> str:
    failure = classify(report.outcome)[0]
    assert failure is not None, report
    return failure.code


def message_of(report: TaskEnded) -> str:
    failure = classify(report.outcome)[0]
    assert failure is not None, report
    return failure.message


def run_call(work: Work, code: str, args: dict[str, Any], name: str = "load") -> TaskEnded:
    """Run a function of a module in the run's folder."""
    module = f"module_{len(os.listdir(work.folder))}"
    (work.folder / f"{module}.py").write_text(code)
    return work.run(work.lease("python", {"call": f"{module}:{name}", "args": args}))


# -- types ------------------------------------------------------------------------------------------------------------

ORDERS = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

@dataclass
class Line:
    amount: Decimal

@dataclass
class Order:
    at: datetime
    lines: list[Line]
"""


def test_a_step_returns_a_dataclass_and_another_gets_it_back(work: Work) -> None:
    made = work.run_python(ORDERS + "def main(): return Order(datetime(2026, 1, 1), [Line(Decimal('1.10'))])")
    code = ORDERS + "def main(order: Order): return [order.at + timedelta(1), sum(x.amount for x in order.lines)]"

    report = work.run_python(code, {"order": made.output})

    assert made.output == {"at": "2026-01-01T00:00:00", "lines": [{"amount": "1.10"}]}
    assert report.output == ["2026-01-02T00:00:00", "1.10"]


def test_a_function_of_a_module_gets_its_arguments_by_its_annotations(work: Work) -> None:
    code = ORDERS + "async def load(order: Order, name: str, rest=None): return [order.lines[0].amount * 2, name, rest]"

    report = run_call(work, code, {"order": {"at": "2026-01-01", "lines": [{"amount": 3}]}, "name": 7, "rest": "2"})

    assert report.output == ["6", 7, "2"]


def test_an_argument_that_does_not_fit_fails_the_step_before_its_function_is_called(work: Work) -> None:
    code = ORDERS + "def main(order: Order): open('called', 'w')"

    report = work.run_python(code, {"order": {"at": "2026-01-01", "lines": [{"amount": "many"}]}}, cwd=str(work.folder))

    assert code_of(report) == "INPUT_INVALID"
    assert message_of(report) == (
        "argument 'order' does not fit: order.lines[0].amount must be a decimal number, and is \"many\""
    )
    assert not (work.folder / "called").exists()


def test_what_cannot_be_carried_is_refused_with_type_and_field_when_the_step_ends(work: Work) -> None:
    code = "import sqlite3\ndef main(): return {'rows': [1, {'conn': sqlite3.connect(':memory:')}]}"

    report = work.run_python(code)

    assert code_of(report) == "OUTPUT_INVALID"
    assert "the result['rows'][1]['conn'] is of type 'sqlite3.Connection', which cannot be stored" in message_of(report)


def test_a_file_of_the_run_that_is_named_like_a_library_does_not_break_values(work: Work) -> None:
    for name in ("typing", "base64", "weakref", "inspect", "durations"):
        (work.folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    code = "import decimal\ndef main(a: 'decimal.Decimal'): return {1, a}"

    report = work.run_python(code, {"a": "2"})

    assert report.output == ["2", 1]


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_is_a_file_beside_the_log_and_comes_back_as_it_was(keeping: Work, files: ArtifactFiles) -> None:
    made = keeping.run_python(
        f"{FRAME[: FRAME.index('return')]}return {{'train': {FRAME[FRAME.index('pd.D') :]}, 'n': 3}}"
    )
    artifact = parse_reference(made.output["train"])
    code = "def main(given): return [type(given['train']).__module__, given['train'].a.tolist(), given['n']]"

    report = keeping.run_python(code, {"given": made.output})

    assert (artifact.format, artifact.type, artifact.rows, artifact.columns) == ("parquet", "pandas.DataFrame", 3, 2)
    assert artifact.name == "7/step1/1/1/train.parquet"
    assert Path(files.path(artifact)).read_bytes()[:4] == b"PAR1"
    assert made.output["n"] == 3
    assert made.artifacts == ()
    assert report.output == ["pandas", [1, 2, 3], 3]


def test_an_annotation_chooses_the_library_or_the_path(keeping: Work, files: ArtifactFiles) -> None:
    made = keeping.run_python(FRAME)
    code = """
import pathlib, polars
def load(table: polars.DataFrame, path: pathlib.Path, again: pathlib.Path):
    return [table.height, path.suffix, again]
"""

    report = run_call(keeping, code, {"table": made.output, "path": made.output, "again": made.output})

    assert report.output == [3, ".parquet", made.output]


def test_a_shell_step_gets_the_path_of_the_file(keeping: Work, files: ArtifactFiles) -> None:
    made = keeping.run_python(FRAME)

    report = keeping.run_shell('head -c 4 "$table"; cat', env={"table": made.output}, stdin=made.output)

    assert report.output == "PAR1" + files.path(parse_reference(made.output))


@pytest.mark.nightly
def test_a_store_without_files_gives_a_step_a_copy_for_its_time(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}
    work = Work(tmp_path, artifacts=ArtifactMemory(kept, JumpingClock()))
    made = work.run_python(FRAME)

    shell = work.run_shell('head -c 4 "$table"; echo "${table##*.}"', env={"table": made.output})
    python = work.run_python("def main(table): return len(table)", {"table": made.output})

    assert shell.output == "PAR1parquet"
    assert python.output == 3
    assert parse_reference(made.output).type == "pandas.DataFrame"
    assert [path.name for path in (work.home / "workers" / work.name).iterdir() if "large" in path.name] == []
    work.close()


def test_a_damaged_table_is_not_read(keeping: Work, files: ArtifactFiles) -> None:
    made = keeping.run_python(FRAME)
    path = Path(files.path(parse_reference(made.output)))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    report = keeping.run_python("def main(table): return len(table)", {"table": made.output})

    assert code_of(report) == "INPUT_INVALID"
    assert "is damaged: its content has changed" in message_of(report)


def test_a_table_and_large_json_beside_it_come_back_together(keeping: Work) -> None:
    code = "import polars\ndef main(): return {'t': polars.DataFrame({'a': [1]}), 'rows': ['x' * 100] * 30_000}"

    made = keeping.run_python(code)
    report = keeping.run_python("def main(a): return [a['t'].height, len(a['rows'])]", {"a": made.output})

    assert is_artifact(made.output["rows"])
    assert report.output == [1, 30_000]


def test_a_table_of_an_attempt_that_fails_is_not_stored(keeping: Work, files: ArtifactFiles) -> None:
    code = "import polars\ndef main(): return [polars.DataFrame({'a': [1]}), object()]"

    report = keeping.run_python(code)

    assert code_of(report) == "OUTPUT_INVALID"
    assert list(files.records()) == []


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DEPLOY_TOKEN", "correct-horse-battery")
    return "correct-horse-battery"


SECRET_TABLES = {
    "polars": "import polars\ndef main(rows): return {'t': [polars.DataFrame({'a': rows})]}",
    "arrow": "import pyarrow\ndef main(rows): return {'t': [pyarrow.record_batch({'a': rows})]}",
    "numpy": "import numpy\ndef main(rows): return {'t': [numpy.array(rows)]}",
}


@pytest.mark.parametrize("kind", sample([*SECRET_TABLES], 2))
def test_a_table_in_which_a_secret_is_found_is_refused(token: str, keeping: Work, kind: str) -> None:
    secrets = {"token": Secret(env="DEPLOY_TOKEN")}
    many = [f"row {number}" for number in range(1000)]

    leaked = keeping.run_python(SECRET_TABLES[kind], {"rows": [*many, f"token {token}"]}, secrets=secrets)
    clean = keeping.run_python(SECRET_TABLES[kind], {"rows": many}, secrets=secrets)

    assert code_of(leaked) == "OUTPUT_INVALID"
    assert is_artifact(clean.output["t"][0]), clean


# -- previews ---------------------------------------------------------------------------------------------------------


def previews_of(report: TaskEnded) -> list[Any]:
    return [parse_reference(one).preview for one in report.output]


def test_a_table_keeps_its_first_rows_also_when_a_step_passes_it_on(keeping: Work) -> None:
    made = keeping.run_python(f"{FRAME.replace('pd.DataFrame', '[pd.DataFrame')}]")
    code = "import pathlib\ndef main(given: list[pathlib.Path]): return given"

    passed = keeping.run_python(code, {"given": made.output})

    (preview,) = previews_of(made)
    assert preview.rows == (("1", "x"), ("2", "y"), ("3", "z"))
    assert [name for name, _ in preview.columns] == ["a", "b"]
    assert passed.output == made.output


@pytest.fixture
def number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "8812903345127")


def test_a_secret_that_only_a_preview_spells_is_replaced_there(number: None, keeping: Work) -> None:
    # As a number it is not in the bytes of the file.
    code = "import pandas as pd\ndef main(): return [pd.DataFrame({'a': [8812903345127, 5]})]"

    report = keeping.run_python(code, {}, secrets={"token": Secret(env="DEPLOY_TOKEN")})

    (preview,) = previews_of(report)
    assert preview.rows == (("***",), ("5",))


def test_many_tables_in_one_result_do_not_all_have_a_preview(keeping: Work) -> None:
    wide = "pd.DataFrame({'abcdefgh' * 4 + str(i): ['x' * 40] * 5 for i in range(12)})"
    code = f"import pandas as pd\ndef main(): return [{wide}] * 40"

    previews = previews_of(keeping.run_python(code))

    assert len(previews) == 40
    assert 20 <= sum(one is not None for one in previews) <= 32


@pytest.mark.parametrize(
    "preview",
    ["7", "{'columns': [['a']]}", "{'rows': 'abc'}"],
)
def test_a_step_that_writes_a_broken_preview_keeps_its_table_without_one(keeping: Work, preview: str) -> None:
    code = f"""
import mulligan.step_context.artifacts as kept
def main():
    path = kept.new_artifact_path('.parquet')
    open(path, 'w').write('x')
    return [kept.make_path(path, kept.register_artifact(path, name='a', format='parquet', preview={preview}))]
"""

    assert previews_of(keeping.run_python(code)) == [None]


def test_a_manifest_that_is_nested_deep_harms_nobody(keeping: Work) -> None:
    code = """
import os
def main():
    import mulligan.step_context.artifacts as kept
    kept.new_artifact_path()
    open(os.environ[kept.MANIFEST], 'w').write('{"name": "x", "reference": {"a": ' + '[' * 100_000 + '\\n')
    return 1
"""

    assert keeping.run_python(code).output == 1
