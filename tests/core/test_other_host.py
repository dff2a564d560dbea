"""`retry: {host: other}`: the next attempt avoids the hosts that failed it, for a while."""

from __future__ import annotations

from datetime import timedelta

from mulligan.core.effects.lease_rules import may_run_on
from mulligan.core.effects.tasks import Demand, Task, demand, make_task
from mulligan.core.model import events as e
from mulligan.core.model.event_types import AvoidedHosts
from mulligan.core.model.workflow import Backoff, Rule
from mulligan.history.obstacles import WorkerCapacity, WorkerPool
from mulligan.history.story import story
from mulligan.language import load_text
from mulligan.testing.history import T0, History, step, workflow

OTHER = Rule(any=True, max_retries=3, avoids_hosts=True)
MINUTE = timedelta(seconds=60)


def failed_on(*hosts: str, rule: Rule = OTHER) -> History:
    """A run whose step has failed on these hosts, one after the other."""
    run = History(workflow(step("a", rules=(rule,)))).start()
    for host in hosts:
        run.started("a", host=host).fail("a")
    return run


def task_of(run: History) -> Task:
    return make_task(run.state, "a")


def test_a_retry_avoids_the_host_that_failed_it_for_a_minute():
    run = failed_on("n1")

    assert task_of(run).avoids == AvoidedHosts(("n1",), T0 + MINUTE)
    assert demand(run.state, run["a"]).avoids == task_of(run).avoids


def test_every_host_that_failed_the_visit_is_avoided_each_once():
    run = failed_on("n1", "n2", "n1")

    assert task_of(run).avoids == AvoidedHosts(("n1", "n2"), T0 + MINUTE)


def test_the_minute_begins_when_the_retry_is_due():
    run = failed_on("n1", rule=Rule(any=True, avoids_hosts=True, backoff=Backoff(delay=10.0)))

    (scheduled,) = [entry.fact for entry in run.log if isinstance(entry.fact, e.RetryScheduled)]
    assert scheduled.avoids == AvoidedHosts(("n1",), scheduled.due + MINUTE)


def test_without_the_key_any_host_may_have_it():
    assert task_of(failed_on("n1", rule=Rule(any=True))).avoids is None


def test_where_no_host_is_known_none_is_avoided():
    assert task_of(failed_on("")).avoids is None


def test_who_may_have_it_is_a_question_of_the_host_and_of_time():
    task = task_of(failed_on("n1"))

    assert not may_run_on(task, "n1", T0)
    assert may_run_on(task, "n2", T0)
    assert may_run_on(task, "n1", T0 + MINUTE)


def test_the_story_says_which_hosts_are_avoided_and_for_how_long():
    run = failed_on("n1", "n2")

    lines = [line.text for line in story(run.log, run.state.workflow) if line.text.startswith("retry")]

    assert lines == [
        "retry 1 of 3 at once, not on host 'n1' unless no other host takes it within 60s (rule for any failure)",
        "retry 2 of 3 at once, not on hosts 'n1', 'n2' unless no other host takes it within 60s (rule for any failure)",
    ]


def test_a_task_that_no_other_host_can_have_says_what_it_waits_for():
    asked = Demand(avoids=AvoidedHosts(("n1",), T0 + MINUTE))
    here, there = (WorkerCapacity(f"w.{host}", host, 4.0, 1 << 30) for host in ("n1", "n2"))

    [obstacle] = WorkerPool([here]).obstacles(asked)

    assert (obstacle.kind, obstacle.host, obstacle.until) == ("host", "n1", T0 + MINUTE)
    assert obstacle.text == (
        "it failed on host 'n1', and no other host has a worker; after a minute any host may run it"
    )
    assert WorkerPool([here, there]).obstacles(asked) == ()


def test_the_key_of_a_file_says_which():
    def rule(host: str) -> Rule:
        text = f"{{name: w, steps: [{{step: a, shell: 'true', retry: {{max_retries: 2, host: {host}}}}}]}}"
        return load_text(text).steps[0].rules[0]

    assert (rule("other").avoids_hosts, rule("any").avoids_hosts) == (True, False)
