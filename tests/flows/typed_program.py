"""A program that uses the whole face. `test_typing` lets mypy check it strictly; nothing runs it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, assert_type

import mulligan
from mulligan import (
    Failure,
    Flow,
    Program,
    Rejected,
    Retry,
    Run,
    Step,
    StepFailed,
    Workflow,
    approve,
    branch,
    flow,
    gather,
    group,
    latest,
    program,
    route,
    size,
    sleep,
    step,
)


@dataclass
class Order:
    number: int
    total: float


@step(
    retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s", factor=2), timeout="1m", requirements=["httpx>=0.27"]
)
def fetch(url: str) -> list[Order]:
    return [Order(1, 2.5)]


@step(on_failure="./alert.sh", triage=True, resources={"memory": "2GiB"}, cache=True)
def load(rows: list[Order], table: str = "facts") -> int:
    return len(rows)


@step
def clean(order: Order, factor: float = 1.0) -> Order:
    return Order(order.number, order.total * factor)


@step
async def fetch_later(url: str) -> bytes:
    return url.encode()


@step(timeout=timedelta(minutes=5))
def count_slowly(rows: list[Order]) -> Generator[float, None, int]:
    mulligan.progress(1, len(rows), "counting")
    mulligan.log(f"attempt {mulligan.attempt()}, {mulligan.idempotency_key()}")
    mulligan.artifact("counted.csv")
    yield 0.5
    return len(rows)


@step
def split(rows: list[Order]) -> tuple[int, Order]:
    return len(rows), rows[0]


@step(max_visits=5)
def review(text: str) -> dict[str, Any]:
    return {"ok": True}


@step
def improve(text: str, verdict: dict[str, Any]) -> str:
    return text


@step
def simulate(alpha: float, seed: int) -> float:
    return alpha * seed


@step
def repair(failure: Failure, table: str) -> int:
    assert_type(failure.code, str)
    assert_type(failure.exit_code, int | None)
    return failure.attempt


load.on_failure(repair, then="rerun", codes=["LOCKED"])


@fetch.handler
def use_cache(failure: Failure, url: str) -> list[Order]:
    return []


@clean.handler(strategy="fallback", timeout="1m")
def keep(failure: Failure, order: Order) -> Order:
    return order


@load.undo
def unload(count: int, table: str) -> None: ...


@flow(timeout="1h", order="graph", fail_fast="never", secrets={"token": {"env": "TOKEN"}}, max_parallel=4)
def child(url: str, mode: Literal["full", "quick"] = "full") -> dict[str, int]:
    rows = fetch(url)
    return {"count": load(rows, mode)}


@flow
def nightly(url: str, table: str = "facts", limit: int = 10) -> dict[str, Any]:
    rows = fetch(url)
    assert_type(rows, list[Order])
    assert_type(rows[0].total, float)
    count = load(rows, table)
    assert_type(count, int)
    assert_type(fetch_later(url), bytes)
    assert_type(count_slowly(rows), int)
    first, order = split(rows)
    assert_type(first, int)
    assert_type(order, Order)

    cleaned = clean.map(rows, 2.0, max_parallel=4, on_item_failure="collect")
    assert_type(cleaned.results, list[Order])
    assert_type(cleaned.failed, int)
    load(cleaned.results)
    assert_type(simulate.matrix({"alpha": [0.5, 1.0], "seed": range(3)}), list[float])

    either = branch(count > limit, lambda: load(rows), lambda: "nothing")
    assert_type(either, int | str)
    maybe = branch((count > 1) & (limit < 3), lambda: load(rows))
    assert_type(maybe, int | None)

    inner = child(url, mode="quick")
    assert_type(inner["count"], int)

    text = latest(improve, "draft")
    verdict = review(text)
    better = improve(text, verdict)
    route(verdict, better, when=verdict["ok"] == False, delay="1s")  # noqa: E712
    route(better, verdict)

    with group("publish", retry=2) as publish:
        load.options(name="first", when=size(rows) > 0, after=[count, better])(rows)
    token = mulligan.secret("token", env="TOKEN")
    mulligan.shell("say", f"echo {publish} {token}", capture="json", timeout="5m", env={"A": url})
    mulligan.http("post", url, method="POST", json={"count": count}, expect=[200])
    mulligan.sql("query", "sqlite:///a.db", f"select * from t where n = {count}", read_only=True)
    answer = mulligan.agent("ask", "Summarise.", provider="claude", answer="json", budget={"calls": 3})
    mulligan.wait("pause", "30s")
    mulligan.approve("sure", "Publish it?", default="refuse", timeout="8h", after=answer)
    mulligan.shell("last", "true", when=mulligan.outcome(count).status == "failed", after=mulligan.ended(count))
    return {"count": mulligan.optional(count), "later": fetch_later.fn}


@nightly.end
def summarise(failures: list[dict[str, Any]], url: str) -> str:
    return f"{url}: {len(failures)}"


def use_the_face() -> None:
    assert_type(fetch.fn("u"), list[Order])
    assert_type(use_cache(Failure(code="X"), "u"), list[Order])
    run = nightly.run("u", limit=3)
    assert_type(run, Run)
    assert_type(nightly.start(url="u", table="t"), Run)
    assert_type(nightly.workflow(), Workflow)
    again = mulligan.run(nightly, url="u")
    assert_type(again, Run)
    run.wait(timeout="1h")
    print(run.status, run.outputs, [failure.code for failure in run.failures], run.explain())
    print(run.steps["load"].attempts[0].stderr)
    run.report("run.html")
    with mulligan.open("runs") as home:
        handle = home.start(nightly, key="2026-11-16", url="u")
        assert_type(handle, Run)
        home.run(mulligan.load("nightly.yaml"), target="prod")
        print(home.runs(status="failed", limit=20), home.pending())


def generic(made: Step[[str], list[Order]], of: Flow[[str], dict[str, int]]) -> None:
    print(made, of)


@step(inline=True)
def tick(number: int) -> int:
    return number + 1


@program(deadline=timedelta(hours=1), calls=20_000)
def decide(url: str, limit: int = 3) -> dict[str, int]:
    rows = fetch(url)
    assert_type(rows, list[Order])
    try:
        counts = gather(load.call([row]) for row in rows[:limit])
        assert_type(counts, list[int])
    except StepFailed as failed:
        assert_type(failed.code, str)
        assert_type(failed.failures, tuple[StepFailed, ...])
        counts = []
    for one in gather([load.call(rows)], failures="return"):
        assert_type(one, int | StepFailed)
    fetched, count = gather(fetch.call(url), load.call(rows))
    assert_type(fetched, list[Order])
    assert_type(count, int)
    sleep("30s")
    gather([sleep.call(timedelta(minutes=1))])
    try:
        approve(f"publish {sum(counts)} rows?", timeout="8h")
    except Rejected as rejected:
        return {"rejected": len(rejected.message)}
    assert_type((mulligan.now() - mulligan.now()).days, int)
    assert_type(mulligan.random(), float)
    assert_type(mulligan.uuid4().hex, str)
    assert_type(load.options(key="east", timeout="5m")(rows), int)
    return {"loaded": tick(len(counts))}


@program
async def ask(url: str) -> int:
    import asyncio

    first, second = await asyncio.gather(load.call([Order(1, 2.5)]), fetch.call(url))
    assert_type(first, int)
    assert_type(second, list[Order])
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(load.call(second))
    assert_type(task.result(), int)
    found = await decide.call(url)
    assert_type(found, dict[str, int])
    return first


def run_programs() -> None:
    assert_type(decide.run("https://example.org", limit=2), Run)
    assert_type(decide.fn("https://example.org"), dict[str, int])
    known: Program[Any, dict[str, int]] = decide
    assert_type(known.name, str)
