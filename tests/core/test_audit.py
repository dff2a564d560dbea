"""What an audit of the design, sentence by sentence, found untrue: each is true now."""

from __future__ import annotations

from mulligan.testing.history import History, edge, step, workflow


def test_a_chain_of_remediations_that_all_fail_may_be_deeper_than_pythons_stack():
    depth = 1050
    steps = [step(f"s{i}", next=[edge(f"s{i + 1}", "failure")]) for i in range(depth)]
    run = History(workflow(*steps, step(f"s{depth}"))).start()

    for i in range(depth + 1):
        run.fail(f"s{i}")

    assert run.status == "failed"
    assert run.ended.failed_steps_count == depth + 1
