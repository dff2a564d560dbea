"""Pictures of every page, light, dark and narrow, of a server on which a night went wrong in several ways.

`make pictures` writes them to build/pictures, to be looked at; with `--docs` those of the documentation as well.
"""

from __future__ import annotations

import argparse
import base64
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tests.browser.conftest import CHROMIUM, NARROW, WIDE, Site

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs" / "operate" / "pictures"

ORDERS = """\
name: nightly-orders
description: Yesterday's orders, from the shop into the warehouse
labels: {team: data}
inputs:
  day: {type: string, default: "2026-11-16", description: the day whose orders are loaded}
  rows: {type: integer, default: 4000}
  broken: {type: boolean, default: false}
retry_policies:
  shop:
    rules:
      - {exit_codes: [7], max_retries: 3, delay: 200ms, factor: 2}
      - {codes: [TIMEOUT], max_retries: 1, adjust: {timeout: x2}}
steps:
  # The shop drops a connection now and then.
  - step: extract
    shell: |
      echo "GET https://shop.example/orders?day=${inputs.day}"
      if [ "$MULLIGAN_ATTEMPT" -lt 2 ]; then echo "curl: (7) connection reset by peer" >&2; exit 7; fi
      echo "${inputs.rows} orders"
    retry: shop
    resources: {cpus: 0.5, memory: 2GiB}
  - step: check
    needs: [extract]
    python: |
      def main(rows):
          print("no duplicates,", rows, "orders")
          return {"rows": rows, "countries": [{"name": "DE", "orders": 2410}, {"name": "FR", "orders": 1190}]}
    args: {rows: "${inputs.rows}"}
  - step: load
    needs: [check]
    shell: |
      for part in 1 2 3 4; do echo "part $part: 1000 rows staged"; done
      if [ ${inputs.broken} = true ]; then
        printf '\\033[31mERROR\\033[0m could not extend file "base/16384/2619": No space left on device\\n' >&2
        echo "HINT: check free disk space of the volume pg-data-2" >&2
        exit 74
      fi
    retry: shop
    triage: {timeout: 8h, default: fail}
    resources: {cpus: 0.5, memory: 256MiB}
  - {step: publish, needs: [load], shell: 'echo published'}
"""
SWEEP = """\
name: wing-sweep
description: Lift and drag of a wing for every angle of attack
labels: {team: aero}
inputs: {angles: {type: integer, default: 120}}
steps:
  - step: "mesh_{grid}"
    matrix: {grid: [coarse, medium, fine]}
    shell: 'echo "mesh of the ${matrix.grid} grid"; sleep 0.2'
  - step: cases
    needs: [{matrix: mesh}]
    python: |
      def main(angles):
          return [{"angle": number, "grid": ["coarse", "medium", "fine"][number % 3]} for number in range(angles)]
    args: {angles: "${inputs.angles}"}
  - step: simulate
    needs: [cases]
    map: {over: "${steps.cases.output}", as: case, on_item_failure: collect, failure_threshold: 0.05}
    do:
      - shell: |
          echo "angle ${case.angle}, ${case.grid} grid"
          if [ ${case.angle % 17} = 9 ] && [ "$MULLIGAN_ATTEMPT" = 1 ]; then
            echo "segmentation fault in assemble()" >&2
            exit 11
          fi
          if [ ${case.angle % 12} = 11 ]; then echo "iteration 100: residual 4.1e+07, diverged" >&2; exit 3; fi
    retry: {rules: [{exit_codes: [11], max_retries: 2, delay: 50ms}]}
    resources: {cpus: 0.25, memory: 64MiB}
  - {step: best, needs: [simulate], shell: 'echo best'}
  - {step: plot, needs: [best], shell: 'echo plot'}
"""
RELEASE = """\
name: release
description: Build, test, deploy; roll back when the site does not answer
labels: {team: web}
inputs: {version: {type: string, default: "4.2"}}
steps:
  - {step: build, shell: 'echo "building ${inputs.version}"; sleep 0.3'}
  - step: test
    needs: [build]
    shell: 'test -e snapshots-${run.id} || { echo "3 snapshots differ" >&2; exit 1; }'
    on_failure: {shell: 'echo "updating the snapshots"; touch snapshots-${run.id}', rerun: 1}
  - {step: package, needs: [build], shell: 'sleep 0.5'}
  - {step: scan, needs: [package], shell: 'echo "0 findings"'}
  - step: ask
    needs: [test, scan]
    approve: {message: "Ship ${inputs.version} to production?", timeout: 12h, default: refuse}
  - step: deploy
    needs: [ask]
    shell: 'echo "health check: 502 Bad Gateway" >&2; exit 75'
    next:
      - {to: announce}
      - {to: rollback, on: failure, exit_codes: [75]}
  - {step: announce, shell: 'echo announced'}
  - {step: rollback, shell: 'echo "back to 4.1"', next: postmortem}
  - {step: postmortem, shell: 'echo "opened a ticket"'}
"""
BACKUP = """\
name: backup
description: A copy of the warehouse, every six hours
inputs: {fails: {type: boolean, default: false}}
steps:
  - step: dump
    shell: 'test ${inputs.fails} = false || { echo "pg_dump: server closed the connection" >&2; exit 2; }'
  - {step: upload, needs: [dump], shell: 'echo uploaded'}
"""
REPORTS = """\
name: weekly-report
description: What was sold, by country
breakers: {warehouse: {failures: 3, reset: 20m}}
steps:
  - step: query
    map: {over: [DE, FR, IT, ES, PL, SE], as: country, max_parallel: 1, on_item_failure: collect}
    breaker: warehouse
    do: ['echo "warehouse: connection refused (${country})" >&2; exit 6']
  - {step: render, needs: [query], shell: 'echo rendered'}
"""
TRAINING = """\
name: train-forecast
description: The forecast of next week's orders
labels: {team: ml}
steps:
  - {step: features, shell: 'echo "48 features"; sleep 0.3', resources: {cpus: 0.5, memory: 1GiB}}
  - step: train
    needs: [features]
    shell: |
      for epoch in $(seq 1 6); do echo "epoch $epoch: loss 0.$((90 - epoch * 7))"; done
      exec sleep 900
    resources: {cpus: 1, memory: 512MiB}
  - {step: evaluate, needs: [train], shell: 'echo evaluated'}
"""
WORKFLOWS = {
    "nightly-orders": ORDERS,
    "wing-sweep": SWEEP,
    "release": RELEASE,
    "backup": BACKUP,
    "weekly-report": REPORTS,
    "train-forecast": TRAINING,
}


def fill(site: Site) -> dict[str, int]:
    """Two weeks of runs, and a night in which something went wrong. Gives the runs that pictures show."""
    for name, text in WORKFLOWS.items():
        site.ask("PUT", f"workflows/{name}", {"text": text, "note": "the first version"})
    _two_weeks(site)
    site.ask("PUT", "schedules/backup", {"workflow": "backup", "every": "6h", "catch_up": "last"})
    now = datetime.now(UTC)
    since = {"from": (now - timedelta(days=9)).isoformat(), "to": now.isoformat()}
    site.ask("POST", "schedules/backup:backfill", since)
    _until(lambda: _is_over(site.ask("GET", "schedules/backup/past")["instants"]))
    changed = ORDERS.replace("delay: 200ms", "delay: 500ms").replace("max_retries: 3", "max_retries: 4")
    site.ask("PUT", "workflows/nightly-orders", {"text": changed, "note": "wait longer for the shop"})
    earlier = site.start_run("nightly-orders", labels={"team": "data"}, broken=True)
    site.settle(earlier)
    reason = "the volume was full; old dumps were removed"
    site.ask("POST", "decisions", {"decisions": [_decision(earlier, "load", "fail", reason)]})
    runs = {
        "orders": site.start_run("nightly-orders", labels={"team": "data"}, broken=True),
        "orders_good": site.start_run("nightly-orders", labels={"team": "data"}, rows=4180),
        "sweep": site.start_run("wing-sweep", labels={"team": "aero"}),
        "release": site.start_run("release", labels={"team": "web"}),
        "release_waits": site.start_run("release", labels={"team": "web"}, version="4.3"),
    }
    site.settle(earlier, *runs.values())
    site.ask("POST", f"runs/{runs['release']}/steps/ask:approve", {"reason": "the release notes are ready"})
    site.settle(runs["release"])
    runs["report"] = site.start_run("weekly-report")
    _until(lambda: any(one["status"] == "open" for one in site.ask("GET", "breakers")["breakers"]))
    runs["training"] = site.start_run("train-forecast", labels={"team": "ml"})
    _until(lambda: site.ask("GET", f"runs/{runs['training']}/steps?status=running")["steps"])

    nightly = {
        "workflow": "nightly-orders",
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "labels": {"team": "data"},
    }
    site.ask("PUT", "schedules/nightly-orders", nightly)
    site.ask(
        "PUT", "schedules/weekly-report", {"workflow": "weekly-report", "cron": "0 7 * * 1", "timezone": "Europe/Paris"}
    )
    site.ask("POST", "schedules/weekly-report:pause", {"reason": "the warehouse moves this week"})
    site.ask("PUT", "hooks", {"rules": [{"on": ["failed", "needs_person"], "to": ["ops"]}]})
    site.ask(
        "POST", "tokens", {"user": "ci", "scopes": ["read", "run"], "note": "starts releases", "workflows": ["release"]}
    )
    site.ask("POST", "tokens", {"user": "ana", "scopes": ["read", "run", "decide"], "note": "on call"})
    draft = {
        "text": changed.replace(
            "triage: {timeout: 8h, default: fail}\n",
            "next:\n      - {to: free_space, on: failure, exit_codes: [74], then: rerun}\n",
        )
        + "  - {step: free_space, shell: ./remove-old-dumps.sh}\n",
        "file": "nightly-orders.yaml",
    }
    site.ask("PUT", "workflows/nightly-orders/draft", draft, **{"If-None-Match": "*"})
    return runs


def _decision(run_id: int, step: str, verdict: str, reason: str) -> dict[str, Any]:
    return {"run_id": run_id, "step": step, "verdict": verdict, "reason": reason}


def _two_weeks(site: Site) -> None:
    """Runs of the last fourteen days. They are made now; then their rows are moved into the past."""
    started = []
    for day in range(14):
        started += [(day, site.start_run("nightly-orders", labels={"team": "data"}, rows=3800 + 37 * day))]
        started += [(day, site.start_run("backup", fails=day in (3, 4))) for _ in range(2)]
        if day % 3 == 1:
            started += [(day, site.start_run("wing-sweep", labels={"team": "aero"}, angles=8))]
    site.settle(*(run_id for _, run_id in started))
    now = datetime.now(UTC)
    with closing(sqlite3.connect(site.home / "mulligan.db", timeout=30)) as store, store:
        for number, (day, run_id) in enumerate(started):
            back = now - timedelta(days=14 - day, hours=3) + timedelta(minutes=number)
            micros = int((now - back).total_seconds() * 1_000_000)
            moved = "UPDATE runs SET created_at = created_at - ?, updated_at = updated_at - ? WHERE run_id = ?"
            store.execute(moved, (micros, micros, run_id))


def _is_over(instants: list[dict[str, Any]]) -> bool:
    """Whether all instants of nine days have a run, and all of these have ended."""
    return len(instants) >= 4 * 9 and all(one["status"] == "completed" for one in instants)


def _until(is_so: Any) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise TimeoutError


def pages(runs: dict[str, int]) -> dict[str, tuple[str, str]]:
    """Addresses, and what stands on each as soon as it is complete."""
    orders, sweep, release, training = (runs[name] for name in ("orders", "sweep", "release", "training"))
    return {
        "home": ("/", "#failing"),
        "runs": ("/runs", "tbody tr"),
        "run-failed": (f"/runs/{sweep}", ".gantt-row .track"),
        "run-parked": (f"/runs/{orders}", ".gantt-row .track"),
        "run-handled": (f"/runs/{release}", ".gantt-row .track"),
        "run-running": (f"/runs/{training}", ".gantt-row .track"),
        "run-graph": (f"/runs/{release}?tab=graph", "svg.page-graph"),
        "run-grid": (f"/runs/{release}?tab=grid", "tbody tr"),
        "run-events": (f"/runs/{release}?tab=events", ".feed li"),
        "run-replay": (f"/runs/{orders}?tab=replay&at=6", "#replay-sentence"),
        "run-data": (f"/runs/{orders}?tab=data", "h1"),
        "compare": (f"/compare?a={orders}&b={runs['orders_good']}", "h1"),
        "step-parked": (f"/runs/{orders}/steps/load", ".line-text"),
        "step-retried": (f"/runs/{orders}/steps/extract", ".line-text"),
        "step-output": (f"/runs/{orders}/steps/check", ".line-text"),
        "step-running": (f"/runs/{training}/steps/train", ".line-text"),
        "map": (f"/runs/{sweep}/steps/simulate", ".item-row"),
        "item": (f"/runs/{sweep}/steps/simulate/items/11", ".line-text"),
        "inbox": (f"/inbox?run={orders}&step=load", ".entries li"),
        "inbox-approval": (f"/inbox?run={runs['release_waits']}&step=ask", ".entries li"),
        "workflows": ("/workflows", "tbody tr"),
        "workflow": ("/workflows/nightly-orders", "h1"),
        "coverage": ("/workflows/nightly-orders/coverage?step=load&failure=EXIT_NONZERO", ".story"),
        "versions": ("/workflows/nightly-orders?tab=versions", ".diff"),
        "run-form": ("/workflows/nightly-orders?tab=run", "form"),
        "editor": ("/workflows/nightly-orders/edit", "#graph [data-step]"),
        "schedules": ("/schedules", "tbody tr"),
        "schedule": ("/schedules/backup", ".calendar"),
        "schedule-form": ("/schedules/nightly-orders/edit", "#preview tbody tr"),
        "recovery": ("/recovery", "h1"),
        "usage": ("/usage", "h1"),
        "workers": ("/workers", "h1"),
        "doctor": ("/workers/doctor", "h1"),
        "audit": ("/audit", "tbody tr"),
        "tokens": ("/tokens", "tbody tr"),
        "notices": ("/notices", "h1"),
        "not-found": ("/runs/9999", "h1"),
        "report": (f"/api/v1/runs/{sweep}/report", ".timeline"),
    }


# The pictures of the documentation.
SHOWN_IN_DOCS = {
    *((name, "light") for name in ("home", "runs", "run-failed", "run-graph", "map", "inbox", "editor", "schedule")),
    ("coverage", "light"),
    *(("step-parked", "dark"), ("recovery", "dark"), ("inbox", "narrow")),
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "narrow": {"viewport": NARROW, "color_scheme": "light"},
}


def take(browser: Any, site: Site, runs: dict[str, int], only: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Each page, complete: its name, the look, and the page itself."""
    for look, options in LOOKS.items():
        context = browser.new_context(**options, timezone_id="Europe/Berlin", locale="en-GB", device_scale_factor=1.5)
        page = context.new_page()
        page.goto(site.ask("POST", "logins", {})["url"])
        for name, (path, part) in pages(runs).items():
            if only and name not in only:
                continue
            page.goto(site.url + path)
            page.locator(part).first.wait_for()
            if name not in ("not-found", "report"):
                page.locator("#connection[data-state=live]").wait_for()
                page.locator("#inbox-count").wait_for()
            yield name, look, page
        context.close()


def as_webp(page: Any) -> bytes:
    """A small picture; Playwright itself has only PNG and JPEG."""
    session = page.context.new_cdp_session(page)
    return base64.b64decode(session.send("Page.captureScreenshot", {"format": "webp", "quality": 80})["data"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the pictures of the documentation as well")
    parser.add_argument("--only", nargs="*", default=[], help="only these pages")
    asked = parser.parse_args()
    folder = ROOT / "build" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as started:
        site = Site(Path(scratch))
        site.start()
        try:
            runs = fill(site)
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for name, look, page in take(browser, site, runs, asked.only):
                page.screenshot(path=folder / f"{name}-{look}.png", full_page=look == "narrow")
                if asked.docs and (name, look) in SHOWN_IN_DOCS:
                    DOCS.mkdir(exist_ok=True)
                    (DOCS / f"{name}-{look}.webp").write_bytes(as_webp(page))
            browser.close()
        finally:
            site.stop()
    print(f"pictures in {folder}")


if __name__ == "__main__":
    main()
