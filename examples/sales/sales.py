"""The sales of a day: four regions are fetched from a service that is often unwell, checked, and stored."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import regions

from mulligan import Retry, approve, flow, optional, secret, step

REGIONS = ["north", "south", "east", "west"]


@step(timeout="30s", retry=Retry(max_retries=5, delay="20ms", factor=2, jitter=0.2))
def fetch(url: str, day: str, region: str, token: str) -> list[dict]:
    """The sales of a region. A service that is unwell is asked again."""
    request = Request(f"{url}/sales/{day}/{region}", headers={"Authorization": f"Bearer {token}"})
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)


@step(reads=["data/targets.csv"])
def check(region: str, rows: list[dict]) -> dict:
    """The total, and what is odd about it: it is compared with the target of the region."""
    total = regions.total(rows)
    target = regions.targets(Path("data/targets.csv").read_text())[region]
    return {"region": region, "total": total, "odd": regions.oddness(region, total, target)}


@step
def store(folder: str, day: str, found: dict, agreed: object = None) -> int:
    """Write the total of a region. Written again, it is the same file."""
    path = Path(folder) / day / f"{found['region']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return found["total"]


@step
def report(folder: str, day: str, totals: list, failed: int) -> dict:
    """What the day has brought."""
    made = {"day": day, "total": sum(total or 0 for total in totals), "failed": failed}
    (Path(folder) / f"{day}.json").write_text(json.dumps(made))
    return made


@flow
def region(name: str, day: str, url: str, folder: str):
    """One region: a child run of its own."""
    rows = fetch(url, day, name, secret("sales", env="SALES_TOKEN"))
    found = check(name, rows)
    agreed = approve("agree", f"{found['odd']} Store it?", when=found["odd"] != "", timeout="8h", default="refuse")
    return store(folder, day, found, optional(agreed))


@flow
def nightly(day: str, url: str = "http://127.0.0.1:8099", folder: str = "warehouse"):
    """All regions of a day. One that fails does not keep the others from being stored."""
    stored = region.map(REGIONS, day, url, folder, max_parallel=4, on_item_failure="collect")
    return report(folder, day, stored.results, stored.failed)
