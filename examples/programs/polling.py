"""Polling: ask a service that has no callback until its job is done, rarely and for a long time.

mulligan run polling.py
"""

from services import request

from mulligan import Retry, StepError, program, publish_state, sleep, step


@step
def start_job(name: str) -> str:
    return request(f"start {name}")


@step(inline=True, retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s"))
def look(job: str, number: int) -> int:
    if not job:
        raise StepError("NO_JOB", "there is nothing to look at")
    return min(100, 40 * number)  # per cent


@step
def fetch_result(job: str) -> str:
    return request(f"fetch the result of {job}")


@program(deadline="2d")
def polling(name: str = "training", every: str = "100ms"):
    job, looks, done = start_job(name), 0, 0
    while done < 100:
        sleep(every)
        looks += 1
        done = look(job, looks)
        publish_state(done=done, looks=looks)
    return {"looks": looks, "result": fetch_result(job)}
