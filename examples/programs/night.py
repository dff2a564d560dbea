"""A program decides while it runs: an empty day, a bad row, a quota, a report that takes time, a person who approves.

mulligan run night.py -i day=monday
mulligan approve 1 approve --reason "as expected"
"""

from mulligan import Retry, StepError, StepFailed, approve, gather, program, sleep, step


@step(retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s", factor=2), timeout="1m")
def fetch(day: str) -> list[dict]:
    return [] if day == "sunday" else [{"item": "chair", "price": "12"}, {"item": "table", "price": "?"}]


@step
def clean(row: dict) -> dict:
    if not row["price"].isdigit():
        raise StepError("BAD_PRICE", f"the {row['item']} has no price")
    return {**row, "price": int(row["price"])}


@step
def load(rows: list[dict], table: str) -> int:
    if table == "facts":
        raise StepError("QUOTA", "the table is full")
    return len(rows)


@load.undo
def unload(count: int, table: str) -> None:
    print(f"take {count} rows out of {table}")


@step(inline=True)
def progress(number: int) -> str:
    return "done" if number > 1 else "running"


@program
def night(day: str):
    rows = fetch(day)
    if not rows:
        return {"loaded": 0}
    cleaned = gather((clean.call(row) for row in rows), failures="return")
    good = [one for one in cleaned if not isinstance(one, StepFailed)]
    try:
        count = load(good, "facts")
    except StepFailed as failed:  # after retry, handler and triage have done what they could
        if failed.code != "QUOTA":
            raise
        count = load(good, "overflow")
    number = 0
    while progress(number) == "running":
        sleep("10ms")  # no process while it sleeps for longer
        number += 1
    approve(f"publish {count} of {len(rows)} rows?", timeout="8h")
    return {"loaded": count}
