"""Flows that run, in this process: what the functions return is what the run gives back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flows.functions import (
    clean,
    count_slowly,
    deploy,
    fetch,
    fetch_later,
    guarded,
    improve,
    load,
    repair,
    report,
    reserve,
    review,
    split,
    write,
)

import mulligan
from mulligan import flow
from mulligan.errors import InputInvalid, LanguageError

pytestmark = pytest.mark.usefixtures("forked_children")


@flow
def child(url: str):  # type: ignore[no-untyped-def]
    return load(fetch(url))


@flow
def everything(url: str, factor: int = 2):  # type: ignore[no-untyped-def]
    rows = fetch(url)
    cleaned = clean.map(rows, factor, max_parallel=2)
    count, named = split(child(url))
    said = mulligan.branch(count > 1, lambda: report(count, title="many: "), lambda: report(count, title="few: "))
    sums = report.options(name="sum_{count}").matrix({"count": [1, 2]})
    with mulligan.group("together"):
        later = fetch_later(f"{url}/{count}")
        mulligan.shell("print", f"echo {later}")
    return {
        "numbers": [cleaned.results[0]["n"], cleaned.results[1]["n"]],
        "count": named["count"],
        "said": said,
        "sums": sums,
        "later": later,
        "slow": count_slowly(count),
        "half": count / 4,
        "cached": guarded(url),
    }


def test_data_flows_through_maps_children_branches_matrices_and_groups(tmp_path: Path) -> None:
    run = mulligan.run(everything, home=tmp_path, url="u", show=False)

    assert run.status == "completed", run.explain()
    assert run.outputs == {
        "numbers": [2, 4],
        "count": 2,
        "said": "many: 2",
        "sums": ["1", "2"],
        "later": "u/2",
        "slow": 2,
        "half": 0.5,
        "cached": "CLOSED 2 guarded u",
    }
    assert run.steps["report"].status == "completed"
    assert run.steps["report_2"].status == "skipped"


@flow
def half_done():  # type: ignore[no-untyped-def]
    first = mulligan.shell("first", "echo first >> trace")
    mulligan.shell("second", "echo second >> trace; test -e mended", after=[first])


@flow
def calling():  # type: ignore[no-untyped-def]
    half_done()


def test_a_retry_continues_the_flow_that_a_flow_has_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = mulligan.run(calling, home=tmp_path / "home", show=False)
    (tmp_path / "mended").touch()

    run.retry()

    assert run.status == "completed", run.explain()
    assert (tmp_path / "trace").read_text().split() == ["first", "second", "second"]


@flow
def recovering(image: str):  # type: ignore[no-untyped-def]
    deploy.on_failure(repair, then="continue", codes=["NO_CERTIFICATE"])
    deployed = deploy(image)
    text = mulligan.latest(improve, write(deployed))
    verdict = review(text)
    better = improve(text, verdict["comments"])
    mulligan.route(verdict, better, when=~verdict["ok"])
    mulligan.route(better, verdict)
    return {"text": text, "visits": mulligan.outcome(verdict).visits}


def test_failures_are_routed_and_loops_end(tmp_path: Path) -> None:
    run = mulligan.run(recovering, home=tmp_path, image="app", show=False)

    assert run.status == "completed", run.explain()
    assert run.outputs == {"text": "NO_CERTIFICATE: app:!!", "visits": 3}


@flow
def failing(room: str):  # type: ignore[no-untyped-def]
    reserve(room)
    deploy.options(after=[reserve])("app")


@failing.end
def last_words(failures: list[dict[str, object]], room: str) -> str:
    return f"{room}: {failures[0]['code']}"


def test_a_run_that_fails_is_undone_and_ends_with_its_function(tmp_path: Path) -> None:
    run = mulligan.run(failing, home=tmp_path, room="blue", show=False)

    assert run.status == "failed"
    assert [failure.code for failure in run.failures] == ["NO_CERTIFICATE"]
    assert "undone" in run.explain()
    assert run.end is not None and run.end.output == "blue: NO_CERTIFICATE"


def test_an_input_that_is_given_twice_is_refused() -> None:
    with pytest.raises(LanguageError, match="flow 'child' gets 'url' twice"):
        child.run("u", url="v")  # type: ignore[misc]


def test_a_flow_runs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path))

    run = child.run("u")

    assert run.outputs == {"result": 2}


def test_an_option_of_mulligan_run_is_no_input_of_a_flow() -> None:
    @mulligan.flow
    def nightly(url: str) -> None:
        mulligan.shell("fetch", f"echo {url}")

    with pytest.raises(InputInvalid) as refused:
        nightly.run("a", key="monday")  # type: ignore[call-arg]

    assert refused.value.hint == "'key' is an option of mulligan.run: mulligan.run(nightly, …, key=…)"


def test_an_input_of_another_type_is_shown_as_it_is() -> None:
    @mulligan.flow
    def nightly(url: str) -> None:
        mulligan.shell("fetch", f"echo {url}")

    with pytest.raises(InputInvalid) as refused:
        nightly.run(3)  # type: ignore[arg-type]

    assert refused.value.message == "input 'url' is 3, a text is expected"
