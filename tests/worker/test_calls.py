"""Actions that are functions: called by name in a child of ours, each plugin and workflow in its own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.work import Announcements, Work

from mulligan.core.model.actions import ENGINE_ACTIONS
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import TaskEnded
from mulligan.language.keys.action_keys import ACTIONS
from mulligan.worker.actions import action_registry

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")


def called(work: Work, code: str, args: dict[str, Any] | None = None, **fields: Any) -> TaskEnded:
    """A plugin's function `main` that is this code."""
    (work.folder / "greeting.py").write_text(code)
    call = fields.pop("call", "greeting:main")
    params = {"call": call, "package": "mulligan-greeting", "args": args or {}}
    return work.run(work.lease(fields.pop("kind", "greet"), params, **fields))


@pytest.mark.parametrize("kind", [kind for kind in ACTIONS if kind not in ENGINE_ACTIONS])
def test_every_action_of_the_language_that_is_not_the_engines_own_is_a_process_or_a_call(work: Work, kind: str) -> None:
    task = work.lease(kind, {}).task

    assert kind in action_registry.SPAWNED or action_registry.called_action(task)


def test_a_plugin_is_called_with_its_keys_by_name_and_gives_what_it_returns(work: Work) -> None:
    report = called(work, "def main(whom, times=1): return {'said': ['hello ' + whom] * times}", {"whom": "you"})

    assert (report.outcome, report.output) == (Outcome(), {"said": ["hello you"]})


def test_it_runs_in_our_interpreter_whatever_the_workflow_names_for_its_own_code(work: Work) -> None:
    report = called(work, "import mulligan\ndef main(): return mulligan.__name__")

    assert report.output == "mulligan"


def test_what_a_plugin_raises_is_its_failure_and_told_with_its_own_lines_alone(work: Work) -> None:
    outcome = called(work, "def main(): raise ValueError('no')").outcome

    assert (outcome.code, outcome.message) == ("EXCEPTION", "ValueError: no")
    assert [line.strip() for line in outcome.trace.splitlines() if "File" in line] == [
        f'File "{work.folder}/greeting.py", line 1, in main'
    ]


def test_a_plugin_says_itself_what_went_wrong(work: Work) -> None:
    code = "from mulligan import StepError\ndef main(): raise StepError('HTTP_429', details={'retry_after': 3})"

    assert called(work, code).outcome.reported == ({"code": "HTTP_429", "details": {"retry_after": 3}},)


@pytest.mark.parametrize(
    "call", ["no_such_module:main", "no_such_package.module:main", "greeting:absent", "greeting:absent.deeper"]
)
def test_a_worker_without_the_plugin_says_what_to_install(work: Work, call: str) -> None:
    outcome = called(work, "def main(): pass", call=call).outcome

    assert outcome.reported == (
        {
            "code": "INPUT_INVALID",
            "message": f"this worker does not have '{call}' of 'mulligan-greeting': "
            "install it where the worker runs (pip install 'mulligan-greeting')",
            "retryable": False,
        },
    )


def test_a_plugin_that_lacks_something_itself_is_another_failure(work: Work) -> None:
    outcome = called(work, "import no_such_library\ndef main(): pass").outcome

    assert (outcome.code, outcome.message) == ("EXCEPTION", "ModuleNotFoundError: No module named 'no_such_library'")


def test_children_are_kept_apart_by_plugin_and_workflow(work: Work) -> None:
    code = "import os\ndef main(): return os.getpid()"
    first = called(work, code).output

    assert called(work, code).output == first
    assert called(work, code, kind="other").output != first
    assert called(work, code, version="v2").output != first
    assert work.run_python(code).output != first


def test_its_time_limit_and_its_log_are_those_of_any_step(work: Work, announcements: Announcements) -> None:
    announce = f"open({str(announcements.path)!r}, 'w').write('1\\n')"
    (work.folder / "greeting.py").write_text(
        f"import time\ndef main():\n  print('begun')\n  {announce}\n  time.sleep(600)"
    )
    lease = work.lease("greet", {"call": "greeting:main", "package": "g", "args": {}})
    work.start(lease)
    announcements.lines(1)

    work.time_is_up(lease, 1000.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded) and report.outcome.is_timed_out
    assert work.log(lease).read_text() == "begun\n"


def test_an_action_that_nobody_here_knows_is_refused(work: Work) -> None:
    outcome = work.run(work.lease("teleport", {"to": "moon"})).outcome

    assert (outcome.code, outcome.message) == (
        "INPUT_INVALID",
        "this version of mulligan does not have the action 'teleport'",
    )
