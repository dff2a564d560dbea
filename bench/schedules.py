"""Three servers, kill -9, a year of instants: is each instant started once?

    python bench/schedules.py [--cron '30 2 * * *'] [--zone Europe/Berlin] [--kills 40] [--store postgresql://…]

Three processes walk through a year at their own pace and start what is due at each instant. One after another is killed
in the middle of its work and begins again. In the end the runs in the store are compared with the instants of the year.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from mulligan.errors import Conflict, StoreUnavailable
from mulligan.service.home import Home
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.server.schedules.cron import cron_instants
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.schedules.schedules import Schedules
from mulligan.service.service import Service

BEGIN, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
TEXT = "steps:\n  - step: hello\n    shell: 'true'\n"
NAME = "yearly"


def year(cron: str, zone: str) -> list[datetime]:
    return list(takewhile(lambda one: one < END, cron_instants(cron, zone, BEGIN)))


def schedules_at(service: Service, now: datetime) -> Schedules:
    return Schedules(service.reader, "bench", "", lambda: now, lambda by, _: service.as_user(by))


def walk(home: Home, cron: str, zone: str) -> None:
    """One server: start what is due at each instant of the year."""
    with Service(home, "bench") as service:
        for instant in year(cron, zone):
            now = instant + timedelta(seconds=1)
            while True:
                try:
                    schedules_at(service, now).fire_due(now)
                    break
                except (StoreUnavailable, Conflict):
                    time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cron", default="30 2 * * *")
    parser.add_argument("--zone", default="Europe/Berlin")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--store", default="")
    parser.add_argument("--walk", default="", help="a folder: be one of the servers")
    asked = parser.parse_args()
    if asked.walk:
        walk(Home(Path(asked.walk), asked.store), asked.cron, asked.zone)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(Home(Path(folder) / "home", asked.store), asked)


def compare(home: Home, asked: argparse.Namespace) -> None:
    with Service(home, "bench") as service:
        service.catalogue.publish("hello", TEXT)
        form = ScheduleForm("hello", cron=asked.cron, timezone=asked.zone, overlap="allow")
        schedules_at(service, BEGIN).put(NAME, form)
    command = [sys.executable, __file__, "--walk", str(home.folder), "--cron", asked.cron, "--zone", asked.zone]
    command += ["--store", asked.store] if asked.store else []
    servers = [subprocess.Popen(command) for _ in range(3)]
    began, kills, rng = time.monotonic(), 0, random.Random(7)
    while kills < asked.kills and all(one.poll() is None for one in servers):
        time.sleep(rng.uniform(0.3, 1.2))
        number = rng.randrange(3)
        servers[number].send_signal(signal.SIGKILL)
        servers[number].wait()
        servers[number] = subprocess.Popen(command)
        kills += 1
    if any(one.wait() for one in servers):
        sys.exit("a server failed by itself")
    with Service(home, "bench") as service:
        view = schedules_at(service, END).show(NAME)
        started = Counter(one.instant for one in view.active)
        runs, before = 0, None
        while True:
            page = service.runs.page(RunQuery(limit=1000, before=before))
            runs, before = runs + len(page.runs), page.next
            if before is None:
                break
    wanted = year(asked.cron, asked.zone)
    print(f"{len(wanted)} instants, {runs} runs, {kills} kills, {time.monotonic() - began:.0f}s")
    is_right = runs == len(wanted) and started == Counter(wanted)
    print("each instant once" if is_right else f"WRONG: {started - Counter(wanted)} {Counter(wanted) - started}")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
