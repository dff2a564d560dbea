"""Steps for the tests of flows, in a module that workers can import."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mulligan import Failure, Retry, StepError, step


@step(retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s", factor=2), timeout="1m")
def fetch(url: str) -> list[dict[str, Any]]:
    """Fetch the rows."""
    return [{"url": url, "n": 1}, {"url": url, "n": 2}]


@step(triage=True)
def load(rows: list[dict[str, Any]], table: str = "facts") -> int:
    return len(rows)


@step
def clean(row: dict[str, Any], factor: int = 1) -> dict[str, Any]:
    return {**row, "n": row["n"] * factor}


@step
def report(count: int, *, title: str = "") -> str:
    return f"{title}{count}"


@step
def split(count: int) -> tuple[int, dict[str, int]]:
    return count, {"count": count}


@step
async def fetch_later(url: str) -> str:
    return url


@step
def count_slowly(count: int) -> Generator[float, None, int]:
    yield 0.5
    return count


@step
def deploy(image: str, region: str = "east") -> str:
    raise StepError("NO_CERTIFICATE", f"no certificate for {image}")


@step
def repair(failure: Failure, image: str) -> str:
    return f"{failure.code}: {image}"


@step
def write(topic: str) -> str:
    return f"{topic}:"


@step(max_visits=5)
def review(text: str) -> dict[str, Any]:
    return {"ok": text.endswith("!!"), "comments": "louder"}


@step
def improve(text: str, comments: str) -> str:
    return f"{text}!"


@step(retry=1)
def guarded(url: str, day: str = "monday") -> str:
    raise StepError("CLOSED", f"{url} is closed on {day}")


@guarded.handler(strategy="fallback", timeout="1m")
def use_cache(failure: Failure, url: str) -> str:
    return f"{failure.code} {failure.attempt} {failure.step} {url}"


@step
def reserve(room: str) -> str:
    return f"reserved {room}"


@reserve.undo
def release(reservation: str, room: str) -> str:
    return f"{reservation}, released {room}"


def clear_cache(failure: Failure) -> None:
    """A recovery script: a plain function may be one."""


def announce(output: int) -> None:
    """Runs after a success."""


def check_count(output: int) -> None:
    if output < 0:
        raise ValueError("negative")


def summarise(failures: list[Any], steps: dict[str, Any], url: str = "") -> str:
    return f"{url}: {len(failures)} of {len(steps)} failed"
