"""`mulligan replay`: a run as it was at its events, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, ran_before

from mulligan.analysis.whatif.knowledge import Draw, Knowledge
from mulligan.analysis.whatif.recording import record
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import decode
from mulligan.service.home import Home
from mulligan.service.service import Service

pytestmark = pytest.mark.usefixtures("folder")

FLOW = """\
name: nightly
steps:
  - step: fetch
    shell: |
      [ "$MULLIGAN_ATTEMPT" -ge 2 ] || exit 11
      echo data
    retry: {rules: [{exit_codes: [11], max_retries: 2, delay: 1ms}]}
  - {step: deploy, needs: [fetch], shell: exit 3}
  - {step: announce, needs: [deploy], shell: echo done}
"""


def seq_of(kind: str) -> int:
    """The number of the last event of this type."""
    events = mulligan("events", 1, "--json").out.splitlines()
    return max(number for number, line in enumerate(events, 1) if f'"type":"{kind}"' in line)


def test_a_run_is_shown_as_it_was_after_an_event_with_what_came_next_and_why():
    ran(FLOW)
    backing_off = seq_of("retry.scheduled")

    code, out, _ = mulligan("replay", 1, "--at", backing_off).plain

    assert code == 0
    head, event, *table = out.splitlines()
    assert head.startswith(f"run 1 of 'nightly' at event {backing_off} of ")
    assert (
        event == f"event {backing_off}: fetch: retry 1 of 2 at once (rule for exit code 11)" or "retry 1 of 2" in event
    )
    assert any(line.startswith("fetch  backing_off  1") for line in table)
    assert "deploy  waiting  waits for 'fetch' to complete" in table
    assert "timers:" in table
    assert any("the delay before attempt 2 of 'fetch' was over" in line for line in table)


def test_a_step_is_shown_with_each_of_its_events_and_the_status_after_it():
    ran(FLOW)

    _, out, err = mulligan("replay", 1, "--step", "deploy").plain

    lines = out.splitlines()
    assert lines[0].startswith("step 'deploy' of run 1, up to event ")
    assert any("running  1  started (attempt 1)" in line for line in lines)
    assert any(line.endswith("failed  1  failed with EXIT_NONZERO 3") for line in lines)
    assert err == "the run at one of them: mulligan replay 1 --at EVENT\n"


def test_two_events_are_compared_in_any_order():
    ran(FLOW)

    one, other = (mulligan("replay", 1, "--diff", *pair, "--json").json for pair in ((2, 9), (9, 2)))

    assert one == other and (one["a"], one["b"]) == (2, 9)
    assert "fetch  ready  completed" in mulligan("replay", 1, "--diff", 2, seq_of("step.skipped")).plain[1]


def test_the_last_event_before_a_time_is_found():
    ran(FLOW)

    found = mulligan("replay", 1, "--until", "0s", "--json").json

    assert found["seq"] == found["last_seq"] and found["next"] is None
    assert found["run"]["status"] == "failed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say what to show"),
        (("--at", 2, "--until", "1h"), "--at and --until both name an event"),
        (("--at", 2, "--verify"), "cannot be asked for together"),
        (("--diff", 2), "--diff compares two events"),
        (("--diff", 2, 2), "compares two different events"),
        (("--at", 900), "none with the number 900"),
        (("--until", "30d"), "started after that"),
        (("--until", "soon"), "'soon' is not a time"),
        (("--step", "dploy"), "'dploy' is not a step of run 1"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(words: tuple[object, ...], said: str):
    ran_before(FLOW)

    code, out, err = mulligan("replay", 1, *words)

    assert (code, out) == (2, "")
    assert said in err


# forks

PARKING = """\
name: nightly
inputs: {target: {type: string, default: staging}}
steps:
  - {step: fetch, shell: "echo fetched $MULLIGAN_ATTEMPT; echo x >> fetched"}
  - step: deploy
    needs: [fetch]
    shell: "echo to ${inputs.target}; [ ${inputs.target} = spare ] || exit 3"
    triage: {when: always}
  - {step: announce, needs: [deploy], shell: echo done}
"""


def parked() -> int:
    """A run whose parked step was let fail; the event at which it was parked."""
    ran(PARKING)
    assert mulligan("classify", 1, "deploy", "fail", "--reason", "too late", "--no-follow").code == 0
    return seq_of("step.parked")


def test_a_fork_continues_from_an_event_with_another_decision_and_runs_no_completed_step_again(folder: Path):
    seq = parked()

    said = mulligan("replay", 1, "--at", seq, "--fork-here", "--classify", "deploy=retry", "--reason", "room was made")

    assert said.code == 4, said.err
    assert f"run 1 is forked after event {seq}: 1 step completed" in said.err
    assert (folder / "fetched").read_text() == "x\n"
    shown = mulligan("show", 2, "--json").json
    assert shown["steps"]["fetch"]["output"] == "fetched 1" and shown["steps"]["deploy"]["attempts"] == 2
    assert mulligan("show", 1, "--json").json["steps"]["deploy"]["attempts"] == 1
    assert mulligan("replay", 2, "--verify").code == 0
    assert f"goes on here from event {seq} of run 1" in mulligan("explain", 2).out
    assert mulligan("logs", 2, "fetch").out == "fetched 1\n"


def test_an_event_in_the_middle_of_a_turn_is_taken_for_the_end_of_the_turn_before_it():
    seq = parked()

    other = ("--fork-here", "--classify", "deploy=retry", "--reason", "x", "--dry-run")
    said = mulligan("replay", 1, "--at", seq + 1, *other, "--json").json

    assert (said["asked"], said["seq"], said["fork_run_id"]) == (seq + 1, seq, None)
    assert said["kept"] == ["fetch"] and said["starts"] == ["deploy: attempt 2"]
    assert mulligan("show", 2).code == 2


def test_a_fork_may_have_other_inputs_and_a_decision():
    seq = parked()

    said = mulligan(
        *("replay", 1, "--at", seq, "--fork-here", "-i", "target=spare", "--classify", "deploy=retry"), "--reason", "x"
    )

    assert said.code == 0, said.err
    assert mulligan("show", 2, "--output", "deploy").out == "to spare\n"


def test_with_a_corrected_file_the_results_that_there_were_are_kept_and_the_rest_begins_anew(folder: Path):
    seq = parked()
    (folder / "mended.yaml").write_text(PARKING.replace("|| exit 3", "|| true"))

    said = mulligan("replay", 1, "--at", seq, "--fork-here", "--file", "mended.yaml")

    assert said.code == 0, said.err
    assert (folder / "fetched").read_text() == "x\n"
    assert mulligan("show", 2, "--json").json["steps"]["deploy"]["attempts"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "PARKED", "--classify", "deploy=retry"), "a replay changes nothing"),
        (("--step", "deploy", "--fork-here"), "--fork-here needs an event"),
        (("--at", "PARKED", "--fork-here", "--classify", "deploy=retry"), "a decision needs a reason"),
        (("--at", "PARKED", "--fork-here", "--classify", "deploy=mend", "--reason", "x"), "'mend' is not a verdict"),
        (("--at", "PARKED", "--fork-here", "--classify", "fetch=retry", "--reason", "x"), "step 'fetch' is completed"),
        (("--at", "PARKED", "--fork-here", "--approve", "fetch", "--reason", "x"), "does not wait for an approval"),
        (("--at", "1", "--fork-here"), "which belongs to its start"),
        (("--until", "0s", "--fork-here"), "run 1 had ended"),
        (("--at", "PARKED", "--fork-here", "-i", "colour=red"), "colour"),
    ],
)
def test_a_fork_that_is_not_possible_is_refused_and_starts_nothing(words: tuple[str, ...], said: str):
    seq = parked()

    code, _, err = mulligan("replay", 1, *(str(seq) if word == "PARKED" else word for word in words))

    assert code == 2
    assert said in err
    assert mulligan("show", 2).code == 2


def test_a_decision_that_does_not_fit_a_fork_names_the_run_that_is_forked():
    seq = parked()
    again = ("--fork-here", "--classify", "deploy=retry", "--reason", "x")
    assert mulligan("replay", 1, "--at", seq, *again).code == 4

    code, _, err = mulligan("replay", 2, "--at", seq, "--fork-here", "--refuse", "deploy", "--reason", "x")

    assert code == 2
    assert "mulligan replay 2 --step deploy" in err
    assert "mulligan classify" not in err


def test_what_if_leaves_forks_out_and_counts_what_they_took_over_once(folder: Path):
    seq = parked()
    again = ("--fork-here", "--classify", "deploy=retry", "--reason", "x")
    assert mulligan("replay", 1, "--at", seq, *again).code == 4
    (folder / "same.yaml").write_text(PARKING)

    found = mulligan("whatif", "same.yaml", "--json").json
    learned = Knowledge()
    with Service(Home(folder / ".mulligan")) as service:
        for run_id in (1, 2):
            graph = Graph(decode(service.reader.store.load(run_id).workflow))
            recording = record(graph, service.reader.events(run_id))
            learned.add(recording)
    first = next(one for one in recording.attempts.values() if one.key == "fetch")
    drawn = learned.draw("fetch", first.circumstances, None, Draw(0, 1), "fetch")

    assert [(one["run_id"], one["code"]) for one in found["undecided"]] == [(2, "forked")]
    assert drawn is not None and drawn.share.tried == 1


def test_a_run_that_had_called_another_is_shown_as_it_was():
    Path("child.yaml").write_text("name: child\nsteps:\n  - {step: one, shell: 'true'}\n", encoding="utf-8")
    ran("name: caller\nsteps:\n  - {step: call, workflow: child.yaml}\n  - {step: last, needs: [call], shell: echo}\n")

    code, out, _ = mulligan("replay", 1, "--at", seq_of("step.completed")).plain

    assert code == 0
    assert "run 2, called by 'call', had ended; as it was then: mulligan replay 2" in out


PROGRAM = """\
from mulligan import gather, program, step


@step
def load(part: int) -> int:
    with open("loaded", "a") as lines:
        lines.write(f"{part} ")
    return part


@program
def parts():
    return sum(gather(load.call(part) for part in range(3)))
"""


def test_a_program_is_forked_inside_a_gather_and_what_it_cannot_have_is_refused(folder: Path):
    (folder / "parts.py").write_text(PROGRAM, encoding="utf-8")
    assert mulligan("run", "parts.py").code == 0
    (folder / "loaded").unlink()
    log = mulligan("events", 1, "--json").out.splitlines()
    first = next(number for number, line in enumerate(log, 1) if '"type":"program.resumed"' in line)

    said = mulligan("fork", 1, "--at", first)
    refused = [mulligan("fork", 1, *words) for words in (("--from", "load"), ("--at", first, "--file", "parts.py"))]

    assert (said.code, json.loads(said.out)) == (0, {"result": 3})
    assert "run 1 is forked after event" in said.err
    loaded = (folder / "loaded").read_text().split()
    assert len(loaded) == len(set(loaded)) == 2
    assert [(one.code, one.out) for one in refused] == [(2, "")] * 2
    assert "mulligan fork 1 --at EVENT" in refused[0].err and "mulligan retry RUN --file FILE" in refused[1].err
