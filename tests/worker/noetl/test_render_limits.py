"""A template needs no more memory and time than its limits, whatever it calls."""

from __future__ import annotations

import gc
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded
from mulligan.formats.noetl.runtime.render_limits import LimitReached, run_limited

from .asking import python, reported

MEMORY = "it needs more than 512 MiB of memory: do this work in a 'python' tool"


@pytest.fixture(autouse=True)
def _no_callbacks_of_others() -> Iterator[None]:
    """A library that counts collections in this process, as `distributed` does, would run out of memory with them."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others


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


# In a process of its own: what earlier tests left in this one, free memory and busy threads, counts for both limits.
@pytest.mark.parametrize(
    ("template", "limits", "reason"),
    [
        (
            "{{ workload|slice(1000000000)|list }}",
            "Limits(cpu_seconds=60, memory_bytes=8 << 20)",
            "it needs more than 8 MiB of memory",
        ),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "Limits(cpu_seconds=0.05)",
            "it needs more than 0.05 s of processor time",
        ),
    ],
)
def test_a_template_that_does_not_end_is_stopped(template: str, limits: str, reason: str) -> None:
    program = (
        "from mulligan.formats.noetl.runtime.render_limits import LimitReached, Limits, run_limited\n"
        "from mulligan.formats.noetl.runtime.sandbox import VALUES\n"
        "try:\n"
        f"    run_limited(lambda: VALUES.from_string({template!r}).render(workload='abc'), {limits})\n"
        "except LimitReached as stopped:\n"
        "    print(stopped)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert (ended.stdout, ended.stderr) == (f"{reason}\n", "")


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
