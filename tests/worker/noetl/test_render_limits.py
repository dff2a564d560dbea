"""A template needs no more memory and time than its limits, whatever it calls."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

from mulligan.core.model.reports import TaskEnded
from mulligan.formats.noetl.runtime.render_limits import LimitReached, Limits, run_limited
from mulligan.formats.noetl.runtime.sandbox import VALUES

from ..work import Work
from .asking import python, reported

MEMORY = "it needs more than 512 MiB of memory: do this work in a 'python' tool"
SMALL = Limits(cpu_seconds=5, memory_bytes=8 << 20)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a'.ljust(3000000000) }}",
        "{{ 'a'.center(3000000000) }}",
        "{{ 'a'.zfill(3000000000) }}",
        "{{ '\t'.expandtabs(2000000000) }}",
        "{{ '{:>3000000000}'.format(1) }}",
        "{{ '%3000000000d'|format(1) }}",
        "{{ ('a\n' * 99)|indent(99999999) }}",
        # Jinja2 calls filters of constants when it compiles.
        "{{ 'a'|center(3000000000) }}",
        "a text with {{ 'a'|center(3000000000) }}",
        "{{ workload.x.rjust(3000000000) }}",
        "{% for i in range(9) %}{{ 'a'|center(3000000000) }}{% endfor %}",
        {"{{ 'a'.ljust(3000000000) }}": 1},
    ],
)
def test_a_template_that_fills_the_memory_fails_in_words_and_is_not_retried(template: object) -> None:
    report = reported(render=template, workload={"x": "a"})

    assert (report["code"], report["retryable"]) == ("EXPRESSION_FAILED", False)
    assert report["message"].endswith(MEMORY)


def test_a_condition_that_fills_the_memory_is_not_taken_for_false() -> None:
    following = {"arcs": [{"step": "b", "when": "{{ 'a'.ljust(3000000000) == 'a' }}"}, {"step": "c"}]}

    report = reported(render=1, next=following)

    assert (report["code"], report["message"].partition("': ")[2]) == ("EXPRESSION_FAILED", MEMORY)


@pytest.mark.parametrize(
    ("template", "limits", "reason"),
    [
        ("{{ workload|slice(1000000000)|list }}", SMALL, "it needs more than 8 MiB of memory"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            Limits(cpu_seconds=0.05),
            "it needs more than 0.05 s of processor time",
        ),
    ],
)
def test_a_template_that_does_not_end_is_stopped(template: str, limits: Limits, reason: str) -> None:
    with pytest.raises(LimitReached, match=reason):
        run_limited(lambda: VALUES.from_string(template).render(workload="abc"), limits)


def test_after_a_template_the_process_has_the_limits_it_had() -> None:
    def state() -> object:
        timers = [signal.getitimer(which) for which in (signal.ITIMER_PROF, signal.ITIMER_VIRTUAL)]
        handlers = [signal.getsignal(number) for number in (signal.SIGPROF, signal.SIGVTALRM)]
        return resource.getrlimit(resource.RLIMIT_AS), timers, handlers

    before = state()

    inside = run_limited(lambda: run_limited(lambda: resource.getrlimit(resource.RLIMIT_AS)))
    with pytest.raises(LimitReached):
        run_limited(lambda: "a".ljust(3_000_000_000))

    assert inside != before
    assert state() == before


def test_a_function_that_python_cannot_interrupt_ends_with_its_process() -> None:
    program = (
        "from mulligan.formats.noetl.runtime.render_limits import Limits, run_limited\n"
        "lists = [[1]] * 4_000_000\n"
        "run_limited(lambda: sum(lists, []), Limits(cpu_seconds=0.02, grace_seconds=0.02))"
    )

    ended = subprocess.run([sys.executable, "-c", program], check=False)

    assert ended.returncode == -signal.SIGVTALRM


def test_a_child_stays_warm_after_templates_and_its_death_of_one_is_no_reason_to_retry(work: Work) -> None:
    def run(code: str, template: str) -> TaskEnded:
        args = {"tool": python(code, input={"x": template})}
        call = {"call": "mulligan.formats.noetl.runtime:run", "package": "mulligan", "args": args}
        return work.run(work.lease("noetl", call))

    pids = [run("import os\nresult = os.getpid()", "{{ 'a'|upper }}").output["result"] for _ in range(2)]
    ended = run("import os, signal\nos.kill(os.getpid(), signal.SIGVTALRM)", "{{ 'a'|upper }}").outcome

    assert pids[0] == pids[1]
    assert (ended.code, ended.message.partition(":")[0]) == (
        "EXPRESSION_FAILED",
        "a template of the step needs too much processor time",
    )
