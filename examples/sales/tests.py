"""The tests of the project: `pytest tests.py`. No service, no store, no waiting."""

import regions
import sales

DAY = {"day": "2026-11-15", "url": "http://127.0.0.1:1", "folder": "warehouse"}
ROWS = [{"pieces": 10, "price": 10}]


def test_a_total_near_its_target_is_not_odd():
    assert regions.oddness("south", 100, 100) == ""
    assert regions.oddness("south", 1000, 100) == "south has sold for 1000, and 100 was expected."


def test_a_service_that_is_unwell_is_asked_again(history):
    run = history(sales.region, name="south", **DAY)
    run.fail("fetch", message="HTTP Error 503").wait(1)
    run.ok("fetch", output=ROWS)
    run.ok("check", output={"region": "south", "total": 100, "odd": ""})
    run.ok("store", output=100)

    assert run.status == "completed"
    assert run.statuses["agree"] == "skipped"


def test_what_is_odd_is_stored_only_if_somebody_agrees(history):
    run = history(sales.region, name="south", **DAY)
    run.ok("fetch", output=ROWS)
    run.ok("check", output={"region": "south", "total": 1000, "odd": "too much."})
    run.approve("agree", False)

    assert run.status == "failed"
    assert run.statuses["store"] == "skipped"
