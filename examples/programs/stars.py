"""Retries with mapping: ask for the numbers of several repositories, each with its own retries, and leave out bad ones.

mulligan run stars.py
"""

from services import request

from mulligan import Retry, StepError, StepFailed, attempt, gather, program, step


@step(retry=Retry(delays=["100ms", "200ms", "400ms"], max_retries=3))
def fetch(repository: str) -> dict:
    if "/" not in repository:
        raise StepError("HTTP_4XX", f"there is no {repository!r}", retryable=False)
    if repository.startswith("busy") and attempt() < 2:
        raise StepError("HTTP_5XX", "try again later")
    return {"repository": repository, "stars": len(repository)}


@step
def publish(lines: list[str]) -> str:
    return request(f"publish {' and '.join(lines)}")


@program
def stars(repositories: list[str] | None = None):
    names = repositories or ["busy/bee", "nothing", "calm/sea"]
    found = gather((fetch.call(name) for name in names), failures="return")
    good = [one for one in found if not isinstance(one, StepFailed)]
    lines = [f"{one['repository']} {one['stars']}" for one in good]
    return {"fetched": len(good), "failed": len(found) - len(good), "page": publish(lines)}
