"""What is read of the calls of a program: which ones each followed, and where its failure was caught."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.program_runs import Program

from mulligan.core.model.failure import Failure
from mulligan.history.called_steps import FOLLOWED_MAX, called_step, workflow_of_run
from mulligan.history.story import StoryLine
from mulligan.service.runs.views.run_story import summarize_calls


def gathered(run: Program, first: int, count: int) -> list[str]:
    """A gather of calls, all of which complete."""
    before = len(run.state.calls)
    run.say(*(run.load(number, branch=str(first + number)) for number in range(count)))
    labels = list(run.state.calls)[before:]
    for label in labels:
        run.ok(label)
    # The turn that began with the first end is over: the next one knows all of them.
    run.say()
    return labels


def followed(run: Program) -> dict[str, list[str]]:
    return {step.name: [need.of for need in step.needs] for step in workflow_of_run(run.state).steps}


def test_a_gather_follows_the_calls_of_the_gather_before() -> None:
    run = Program()
    first = gathered(run, 0, 2)

    second = gathered(run, 2, 2)
    run.say(run.load(9))

    found = followed(run)
    assert [found[label] for label in (*first, *second)] == [["nightly"], ["nightly"], first, first]
    assert found["load#5"] == second


def test_a_call_is_said_to_follow_no_more_than_so_many() -> None:
    run = Program()
    labels = gathered(run, 0, FOLLOWED_MAX + 5)

    run.say(run.load(9))

    assert followed(run)[f"load#{len(labels) + 1}"] == labels[:FOLLOWED_MAX]


def test_what_failed_beside_the_failure_that_a_program_raised_was_not_caught() -> None:
    run = Program()
    source = (
        "def nightly():\n    try:\n        gather(load.call(1), load.call(2))\n    except StepFailed:\n        raise\n"
    )
    action = run.state.workflow.steps[0].action
    assert action is not None
    action.params.update(file="nightly.py", source=source)
    about = {"file": "nightly.py", "line": 3}
    run.say(*(run.load(number, branch=str(number), position=(number, 2), **about) for number in range(2)))
    run.fail("load").fail("load#2")

    run.say(how="raised", failure=Failure("EXIT_NONZERO"), call="load")

    assert [called_step(run.state, label).handled_at for label in ("load", "load#2")] == ["", ""]


def test_a_branch_has_its_number_in_its_own_gather() -> None:
    run = Program()
    run.say(*(run.load(number, branch=str(number), position=(number % 2, 2)) for number in range(4)))

    assert [called_step(run.state, label).branch for label in run.state.calls] == 2 * ["branch 1 of 2", "branch 2 of 2"]


def test_many_calls_that_completed_one_after_the_other_are_one_line_of_the_story() -> None:
    def line(number: int, text: str = "completed inline (many.py:18)", at: str = "many.py:18") -> StoryLine:
        return StoryLine(datetime(2030, 1, 1, tzinfo=UTC), f"small#{number}", text, called_at=at)

    few = [line(number) for number in range(19)]
    many = [line(1, "failed", at=""), *(line(number) for number in range(2, 42)), line(42, "done", at="")]

    assert list(summarize_calls(few)) == few
    assert [(one.shown_place, one.text) for one in summarize_calls(many)] == [
        ("small#1", "failed"),
        ("small#2 … small#41", "40 calls completed inline: of 'small' (many.py:18)"),
        ("small#42", "done"),
    ]
