"""Large outputs, live: kept beside the log, read by whoever needs them, on both kinds of stores."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.core.model.artifacts import Artifact, Format, decode_content, is_artifact, parse_reference
from mulligan.errors import InputInvalid, StoreRefused, StoreUnavailable
from mulligan.ports import Artifacts
from mulligan.service.driving.driver import Capacity

# Twenty thousand numbers: 109 kB as text, 149 kB as a list.
NUMBERS = "seq 1 20000"


def fetched(live: Live, value: Any) -> Any:
    """What a reference stands for."""
    assert is_artifact(value), value
    artifact = parse_reference(value)
    return decode_content(artifact, live.service.reader.store.artifacts.fetch(artifact))


def names(live: Live) -> list[str]:
    return sorted(record.name for record in live.service.reader.store.artifacts.records())


def largest_entry(live: Live, run_id: int) -> int:
    return max(len(repr(entry)) for entry in live.service.reader.events(run_id))


@pytest.mark.postgres
def test_a_large_output_is_no_part_of_the_log_and_is_read_whole_by_whoever_needs_it(live: Live):
    ran = live.run(f"""
        name: large
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: lines, shell: {NUMBERS}, capture: lines}}
          - {{step: fed, shell: wc -l, stdin: "${{steps.text.output}}"}}
          - step: counted
            python: |
              def main(text, both):
                  return [len(text.split()), len(both["lines"])]
            args: {{text: "${{steps.text.output}}", both: {{lines: "${{steps.lines.output}}"}}}}
          - {{step: chosen, shell: 'echo ${{steps.lines.output[4999]}}', when: size(steps.lines.output) == 20000}}
        outputs: {{text: "${{steps.text.output}}", first: "${{steps.lines.output[0]}}"}}
    """)

    assert ran.status == "completed"
    outputs = {name: step["output"] for name, step in ran.steps.items()}
    assert fetched(live, outputs["text"]).splitlines()[-1] == "20000"
    assert len(fetched(live, outputs["lines"])) == 20000
    assert outputs["fed"].strip() == "19999"
    assert (outputs["counted"], outputs["chosen"]) == ([20000, 20000], "5000")
    assert fetched(live, ran.shown["outputs"]["text"]) == fetched(live, outputs["text"])
    assert ran.shown["outputs"]["first"] == "1"
    assert names(live) == [f"{ran.run_id}/lines/1/1/output.json", f"{ran.run_id}/text/1/1/output.txt"]
    assert largest_entry(live, ran.run_id) < 10_000


def test_in_a_text_with_other_words_it_is_what_is_in_it(live_file: Live):
    ran = live_file.run(f"""
        name: joined
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: joined, shell: wc -c, stdin: "all of it: ${{steps.text.output}}!"}}
    """)

    assert ran.steps["joined"]["output"].strip() == str(len("all of it: !") + 108_893)


@pytest.mark.parametrize(("count", "is_kept"), [(65_534, False), (65_535, True)])
def test_up_to_64_kib_as_json_stay_in_the_log(live_file: Live, count: int, is_kept: bool):
    ran = live_file.run(f"name: edge\nsteps: [{{step: text, shell: \"head -c {count} /dev/zero | tr '\\\\0' x\"}}]")

    # The quotes around it count.
    assert is_artifact(ran.steps["text"]["output"]) is is_kept


def test_each_attempt_has_an_artifact_of_its_own(live: Live):
    ran = live.run(f"""
        name: attempts
        steps:
          - step: text
            shell: {NUMBERS}; echo $MULLIGAN_ATTEMPT
            validate: output.endsWith("2")
            retry: {{max_retries: 1, delay: 0s, codes: [VALIDATION_FAILED]}}
    """)

    assert ran.status == "completed"
    assert fetched(live, ran.steps["text"]["output"]).endswith("\n2")
    assert names(live) == [f"{ran.run_id}/text/1/1/output.txt", f"{ran.run_id}/text/1/2/output.txt"]


def test_an_output_that_looks_like_a_reference_is_kept_as_an_artifact(live: Live):
    ran = live.run("""
        name: lookalike
        order: sequential
        steps:
          - {step: odd, python: 'def main(): return {"a": [{"$artifact": {"name": "1/x"}}]}'}
          - step: reads
            python: |
              def main(odd): return odd["a"][0]["$artifact"]["name"]
            args: {odd: "${steps.odd.output}"}
    """)

    assert fetched(live, ran.steps["odd"]["output"]) == {"a": [{"$artifact": {"name": "1/x"}}]}
    assert ran.steps["reads"]["output"] == "1/x"


def test_a_map_runs_over_a_large_list_and_its_results_may_be_large(live: Live):
    ran = live.run(f"""
        name: mapped
        order: sequential
        steps:
          - {{step: lines, shell: {NUMBERS}, capture: lines}}
          - step: each
            map: {{over: "${{steps.lines.output}}", as: line, max_items: 3, filter: line != "2"}}
            do:
              - {{shell: "{NUMBERS}; echo ${{line}}"}}
              - {{shell: "cat; echo again", stdin: "${{output}}"}}
          - step: again
            map: {{over: "${{steps.each.output.results}}", as: text}}
            do: [{{shell: tail -2, stdin: "${{text}}", capture: lines}}]
          - step: sizes
            python: |
              def main(results): return [len(text.splitlines()) for text in results]
            args: {{results: "${{steps.each.output.results}}"}}
    """)

    assert ran.status == "completed"
    assert all(map(is_artifact, ran.steps["each"]["output"]["results"]))
    assert ran.steps["again"]["output"]["results"] == [["20000", "1again"], ["20000", "3again"], ["20000", "4again"]]
    assert ran.steps["sizes"]["output"] == [20001, 20001, 20001]
    [again] = ran.facts(e.MapExpanded, place="again")
    assert all(map(is_artifact, again.items or []))


def test_a_command_may_list_very_many_items(live_file: Live):
    ran = live_file.run(f"""
        name: listed
        steps:
          - step: each
            map: {{over: {{shell: {NUMBERS}, capture: lines}}, as: n, offset: 19998}}
            do: ['echo ${{n}}']
    """)

    assert ran.steps["each"]["output"]["results"] == ["19999", "20000"]


def test_child_runs_are_given_large_values_and_give_them_back(live: Live):
    live.write(
        "child.yaml",
        """
        name: child
        inputs: {lines: {type: array}, text: {type: string}}
        steps: [{step: turn, shell: sort -rn, stdin: "${inputs.text}"}]
        outputs: {text: "${steps.turn.output}", count: "${size(inputs.lines)}"}
        """,
    )

    ran = live.run(f"""
        name: parent
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: lines, shell: {NUMBERS}, capture: lines}}
          - step: call
            workflow: {{file: child.yaml, inputs: {{text: "${{steps.text.output}}", lines: "${{steps.lines.output}}"}}}}
          - {{step: after, shell: head -1, stdin: "${{steps.call.output.text}}"}}
    """)

    assert ran.status == "completed"
    assert (ran.steps["after"]["output"], ran.steps["call"]["output"]["count"]) == ("20000", 20000)
    [child] = live.children(ran.run_id)
    assert max(largest_entry(live, ran.run_id), largest_entry(live, child.run_id)) < 10_000


def test_an_input_of_a_child_that_is_large_and_of_another_type_is_refused(live_file: Live):
    live_file.write("child.yaml", "name: child\ninputs: {n: {type: object}}\nsteps: [{step: a, shell: 'true'}]")

    ran = live_file.run(f"""
        name: parent
        order: sequential
        steps:
          - {{step: lines, shell: {NUMBERS}, capture: lines}}
          - {{step: call, workflow: {{file: child.yaml, inputs: {{n: "${{steps.lines.output}}"}}}}}}
    """)

    assert ran.steps["call"]["failure"]["code"] == "INPUT_INVALID"
    assert ran.steps["call"]["failure"]["message"].startswith("input 'n' is [")


def test_handlers_captures_and_undo_read_and_give_large_values(live_file: Live):
    ran = live_file.run(f"""
        name: handled
        order: sequential
        steps:
          - step: mended
            shell: exit 1
            on_failure: {{commands: ["{NUMBERS}"], capture: {{all: output, last: output.endsWith("20000")}}}}
          - step: fallen
            shell: exit 1
            on_failure: {{shell: {NUMBERS}, strategy: fallback}}
          - step: decided
            shell: exit 1
            on_failure:
              strategy: custom
              python: 'def main(): return {{"status": "completed", "output": "x" * 100000}}'
          - {{step: undone, shell: {NUMBERS}, undo: {{shell: wc -l > undone, stdin: "${{output}}"}}}}
          - {{step: read, shell: wc -l, stdin: "${{steps.mended.output.all}}"}}
          - {{step: breaks, shell: exit 1}}
    """)

    assert ran.steps["mended"]["output"]["last"] is True
    assert fetched(live_file, ran.steps["mended"]["output"]["all"]) == fetched(live_file, ran.steps["fallen"]["output"])
    assert ran.steps["decided"]["output"] == "x" * 100_000
    assert ran.steps["read"]["output"].strip() == "19999"
    assert live_file.read("undone").strip() == "19999"


def test_a_fork_reads_what_the_run_before_it_gave(live: Live):
    flow = f"""
        name: forked
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: count, shell: wc -l, stdin: "${{steps.text.output}}"}}
    """
    first = live.run(flow)

    with live.service.driving.driver(Capacity(cpus=2.0, memory=1 << 30)) as driver:
        run_id = live.service.changes.fork(first.run_id, "count", {}, driver=driver).fork_run_id
        driver.drive(run_id)

    second = live.look(run_id)
    assert second.steps["count"]["output"].strip() == "19999"
    assert names(live) == [f"{first.run_id}/text/1/1/output.txt"]


def test_a_child_run_that_was_given_much_can_be_forked(live: Live):
    live.write(
        "child.yaml",
        """
        name: child
        inputs: {text: {type: string}, lists: {type: array}}
        steps: [{step: count, shell: wc -l, stdin: "${inputs.text}"}]
        """,
    )
    parent = live.run(f"""
        name: parent
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - step: call
            workflow:
              {{file: child.yaml, inputs: {{text: "${{steps.text.output}}", lists: ["${{steps.text.output}}"]}}}}
    """)
    [child] = live.children(parent.run_id)

    with live.service.driving.driver(Capacity(cpus=2.0, memory=1 << 30)) as driver:
        run_id = live.service.changes.fork(child.run_id, "count", {}, driver=driver).fork_run_id
        driver.drive(run_id)

    assert live.look(run_id).steps["count"]["output"].strip() == "19999"
    assert largest_entry(live, run_id) < 10_000


def test_nobody_gives_a_reference_as_an_input(live_file: Live):
    flow = """
        name: curious
        inputs: {about: {type: object}}
        steps: [{step: show, shell: "echo ${inputs.about}"}]
    """
    given = {"about": {"deep": [{"$artifact": {"name": "1/x/1/1/output.json", "size": 1, "sha256": "0"}}]}}

    with pytest.raises(InputInvalid) as refused:
        live_file.run(flow, inputs=given)

    assert refused.value.message == "input 'about' has the key '$artifact' in it, which is reserved for artifacts"


def test_a_secret_is_hidden_in_what_is_kept(live: Live, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARTIFACT_TOKEN", "correct-horse")

    ran = live.run(f"""
        name: secretive
        secrets: {{token: {{env: ARTIFACT_TOKEN}}}}
        steps: [{{step: text, shell: '{NUMBERS}; echo "it is $TOKEN"', env: {{TOKEN: "${{secrets.token}}"}}}}]
    """)

    text = fetched(live, ran.steps["text"]["output"])
    assert text.splitlines()[-1].startswith("it is ")
    assert "correct-horse" not in text


def test_an_agent_is_told_what_is_in_it(live_file: Live, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_AGENT_ECHO", "cat")

    ran = live_file.run(f"""
        name: briefed
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: ask, agent: {{provider: echo, prompt: "how many?"}}}}
    """)

    told = ran.steps["ask"]["output"]["content"]
    assert "\n1\n2\n3\n" in told
    assert "$artifact" not in told


@pytest.mark.parametrize(("switch", "is_told"), [("", False), ("hide_credentials: false", True)])
def test_a_credential_in_a_large_output_is_hidden_from_an_agent_that_reads_it(
    live_file: Live, monkeypatch: pytest.MonkeyPatch, switch: str, is_told: bool
):
    monkeypatch.setenv("MULLIGAN_AGENT_ECHO", "cat")

    ran = live_file.run(f"""
        name: briefed
        {switch}
        steps:
          - {{step: text, shell: '{NUMBERS}; echo password=correct-horse-battery'}}
          - step: ask
            needs: [text]
            agent: {{provider: echo, prompt: "${{steps.text.output}}", upstream: false}}
    """)

    told = fetched(live_file, ran.steps["ask"]["output"])["content"]
    assert "\n1999\n" in told
    assert ("correct-horse" in told) is is_told


def test_end_may_say_much(live_file: Live):
    ran = live_file.run("""
        name: ends
        steps: [{step: a, shell: 'true'}]
        end: {python: 'def main(): return {"status": "failed", "reason": "enough", "all": "x" * 100000}'}
    """)

    assert (ran.status, ran.shown["reason"]) == ("failed", "enough")


# -- trouble ----------------------------------------------------------------------------------------------------------

READERS = f"""
name: readers
order: sequential
steps:
  - {{step: text, shell: {NUMBERS}}}
  - {{step: spoil, shell: SPOIL}}
  - {{step: task, shell: wc -l, stdin: "${{steps.text.output}}", continue_on_error: true}}
  - {{step: look, shell: 'true', when: size(steps.text.output) > 3}}
"""


def spoiled(live: Live, command: str) -> Ran:
    """A run in which somebody does something to an artifact."""
    path = f"{live.home.folder}/artifacts/1/text/1/1/output.txt"
    return live.run(READERS.replace("SPOIL", f'"{command.replace("FILE", path)}"'))


def test_one_that_is_gone_fails_what_reads_it_and_says_so(live_file: Live):
    ran = spoiled(live_file, "rm FILE")

    name = "artifact '1/text/1/1/output.txt'"
    assert {step: ran.steps[step]["failure"]["message"] for step in ("task", "look")} == {
        "task": f"a value that it reads is not available: {name} is gone",
        "look": f"'size(steps.text.output) > 3': {name} is gone",
    }
    assert [ran.steps[step]["failure"]["code"] for step in ("task", "look")] == ["INPUT_INVALID", "EXPRESSION_FAILED"]


def test_one_that_is_damaged_fails_what_reads_it_and_says_so(live_file: Live):
    ran = spoiled(live_file, "echo wrong > FILE")

    problem = "artifact '1/text/1/1/output.txt' is damaged: it has 6 bytes instead of 108893"
    assert ran.steps["task"]["failure"]["message"] == f"a value that it reads is not available: {problem}"
    assert ran.steps["look"]["failure"]["message"] == f"'size(steps.text.output) > 3': {problem}"


def test_where_it_cannot_be_kept_the_attempt_fails_and_another_one_may_do(live_file: Live):
    live_file.home.folder.mkdir(exist_ok=True)
    (live_file.home.folder / "artifacts").write_text("in the way")

    ran = live_file.run(f"""
        name: full
        steps:
          - step: text
            shell: '[ $MULLIGAN_ATTEMPT = 1 ] || rm {live_file.home.folder}/artifacts; {NUMBERS}'
            retry: {{max_retries: 1, delay: 0s, codes: [EXCEPTION]}}
    """)

    [failed] = ran.facts(e.AttemptFailed)
    assert (failed.failure.code, failed.failure.message) == (
        "EXCEPTION",
        "its output cannot be stored: not a directory",
    )
    assert ran.status == "completed"
    assert names(live_file) == ["1/text/1/2/output.txt"]


class Halting:
    """Artifacts of a store that is away when it is first asked, and the second time."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self.asked = 0

    def fetch(self, artifact: Artifact) -> bytes:
        self.asked += 1
        if self.asked < 3:
            raise StoreUnavailable("it does not answer")
        return self._artifacts.fetch(artifact)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)


@pytest.mark.postgres
def test_a_turn_that_cannot_read_one_now_is_taken_again_and_is_no_bug(live: Live):
    halting = Halting(live.service.reader.store.artifacts)
    live.service.reader.store.artifacts = halting  # type: ignore[assignment]

    ran = live.run(f"""
        name: away
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: look, shell: 'true', when: size(steps.text.output) > 3}}
    """)

    assert (ran.status, halting.asked) == ("completed", 3)
    assert [fact.place for fact in ran.facts(e.AttemptSucceeded)] == ["text", "look"]


def test_what_a_person_is_asked_is_told_in_full(live_file: Live):
    ran = live_file.run(f"""
        name: asks
        order: sequential
        steps:
          - {{step: text, shell: {NUMBERS}}}
          - {{step: ask, approve: {{message: "${{steps.text.output}}"}}}}
    """)

    [wait] = ran.steps["ask"]["waiting_for"]
    assert wait["text"].startswith("an approval: 1\n2\n3\n")


EACH = """
        name: each
        order: sequential
        steps:
          - step: each
            map: {over: "${[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}", as: n, on_item_failure: collect}
            do: [{shell: 'head -c 9000 /dev/zero | tr "\\\\0" x; test ${n} != 3'}]
          - step: use
            python: |
              def main(results, whole):
                  return [len(results), results[3], len(whole["results"][9]), whole["failed"]]
            args: {results: "${steps.each.output.results}", whole: "${steps.each.output}"}
            when: steps.each.output.total == 10 && size(steps.each.output.results[1]) == 9000
        outputs: {all: "${steps.each.output}", first: "${size(steps.each.output.results[0])}"}
"""


def test_the_collected_results_of_a_map_are_no_part_of_the_log_where_they_are_large(live: Live):
    ran = live.run(EACH)

    output = ran.steps["each"]["output"]
    assert ran.status == "completed"
    assert (output["total"], output["succeeded"], output["failed"]) == (10, 9, 1)
    assert [len(text or "") for text in fetched(live, output["results"])] == [9000] * 3 + [0] + [9000] * 6
    assert [failure["index"] for failure in output["failures"]] == [3]
    assert ran.steps["use"]["output"] == [10, None, 9000, 1]
    assert fetched(live, ran.shown["outputs"]["all"]["results"]) == fetched(live, output["results"])
    assert ran.shown["outputs"]["first"] == 9000
    assert names(live) == [f"{ran.run_id}/each/1/1/results.json"]
    assert largest_entry(live, ran.run_id) < 12_000


def test_results_that_are_references_themselves_stay_in_the_log(live_file: Live):
    ran = live_file.run(f"""
        name: each
        steps:
          - step: each
            map: {{over: "${{[1, 2]}}"}}
            do: [{{shell: {NUMBERS}}}]
    """)

    results = ran.steps["each"]["output"]["results"]
    assert [len(fetched(live_file, one).split()) for one in results] == [20000, 20000]


def test_results_that_there_is_no_room_for_beside_the_log_stay_in_it(live_file: Live):
    live_file.service.reader.store.artifacts = Full(live_file.service.reader.store.artifacts)  # type: ignore[assignment]

    ran = live_file.run(EACH)

    assert ran.status == "completed"
    assert len(ran.steps["each"]["output"]["results"]) == 10
    assert ran.steps["use"]["output"] == [10, None, 9000, 1]


class Full:
    """Artifacts for which there is no room."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        raise StoreRefused("no space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)


# -- outputs that are too large to be kept ----------------------------------------------------------------------------

LOUD = "{step: loud, shell: truncate -s 67108865 /dev/stdout}"
LOUD_ITEMS = '{step: loud, map: {over: [1, 2]}, do: [{shell: "test ${item} = 1 || truncate -s 67108865 /dev/stdout"}]}'
TOO_LARGE = "was not kept: it has 67,108,865 bytes; the limit is 67,108,864"
# What reads the output, as a step after `loud`: in each position in which a value may stand.
PLACES_OF_VALUES = {
    "shell": "shell: 'echo ${steps.loud.output}'",
    "computed": "shell: 'echo ${size(steps.loud.output)}'",
    "whole_step": "python: 'def main(it): return 1', args: {it: '${steps.loud}'}",
    "environment": "shell: 'true', env: {V: '${steps.loud.output}'}",
    "standard_input": "shell: cat, stdin: '${steps.loud.output}'",
    "argument": "python: 'def main(it): return 1', args: {it: '${steps.loud.output}'}",
    "address": "http: {url: 'http://127.0.0.1:9/${steps.loud.output}'}",
    "condition": "shell: 'true', when: 'steps.loud.output == null'",
    "asked_for": "shell: 'true', when: 'has(steps.loud.output)'",
    "items": "map: {over: '${steps.loud.output}'}, do: [{shell: 'true'}]",
    "wait": "wait: '${steps.loud.output}'",
    "question": "approve: 'go on with ${steps.loud.output}?'",
    "child": "workflow: {file: child.yaml, inputs: {it: '${steps.loud.output}'}}",
    "handler": "shell: 'false', on_failure: {shell: 'echo ${steps.loud.output}'}",
    "validation": "shell: 'true', validate: 'steps.loud.output != output'",
}


@pytest.mark.parametrize("reader", PLACES_OF_VALUES)
def test_whoever_reads_an_output_that_was_not_kept_fails(live_file: Live, reader: str):
    child = "name: child\ninputs: {it: {default: none}}\nsteps: [{step: say, shell: 'true'}]"
    workflow = f"name: w\norder: sequential\nsteps: [{LOUD}, {{step: reader, {PLACES_OF_VALUES[reader]}}}]"

    live_file.write("child.yaml", child)

    ran = live_file.run(workflow)

    [found] = ran.shown["failures"]
    cause = found if found["handler_failure"] is None else found["handler_failure"]["cause"][0]
    assert (ran.status, ran.steps["loud"]["status"], ran.steps["reader"]["status"]) == ("failed", "completed", "failed")
    assert (cause["code"], cause["retryable"]) == ("OUTPUT_TOO_LARGE", False)
    assert f"the output of 'loud' {TOO_LARGE}" in cause["message"]


READ_BY_ITSELF = {
    "validation": "{step: loud, shell: truncate -s 67108865 /dev/stdout, validate: 'output == null'}",
    "edge": "{step: loud, shell: truncate -s 67108865 /dev/stdout, next: [{to: next, when: 'output == null'}]}, "
    "{step: next, shell: 'true'}",
    "list": "{step: loud, map: {over: {shell: truncate -s 67108865 /dev/stdout}}, do: [{shell: 'true'}]}",
    "second_command": "{step: loud, map: {over: [1]}, "
    "do: [{shell: truncate -s 67108865 /dev/stdout}, {shell: 'echo ${output}'}]}",
    "decision": "{step: loud, shell: 'false', on_failure: {strategy: custom, "
    "commands: [truncate -s 67108865 /dev/stdout]}}",
    "capture": "{step: loud, shell: 'false', on_failure: {shell: truncate -s 67108865 /dev/stdout, "
    "capture: {it: output}}}",
}


@pytest.mark.parametrize("reader", READ_BY_ITSELF)
def test_a_step_that_reads_its_own_dropped_output_fails(live_file: Live, reader: str):
    ran = live_file.run(f"name: w\nsteps: [{READ_BY_ITSELF[reader]}]")

    assert (ran.status, ran.steps["loud"]["status"]) == ("failed", "failed")
    assert "OUTPUT_TOO_LARGE" in repr(ran.steps["loud"]["failure"])
    assert TOO_LARGE in repr(ran.steps["loud"]["failure"])


def test_a_list_with_a_dropped_output_cannot_be_read_and_what_stands_beside_it_can(live_file: Live):
    ran = live_file.run(f"""
        name: w
        order: sequential
        fail_fast: never
        steps:
          - {LOUD_ITEMS}
          - {{step: count, shell: 'echo ${{steps.loud.output.succeeded}}'}}
          - {{step: first, needs: [loud], shell: 'echo ${{steps.loud.output.results[0]}}'}}
          - {{step: second, needs: [loud], shell: 'echo ${{steps.loud.output.results[1]}}'}}
          - {{step: all, needs: [loud], shell: 'echo ${{steps.loud.output.results}}'}}
    """)

    assert [ran.steps[name]["output"] for name in ("count", "first")] == ["2", ""]
    assert [ran.steps[name]["failure"]["code"] for name in ("second", "all")] == ["OUTPUT_TOO_LARGE"] * 2
    assert f"the output of 'loud[1].0' {TOO_LARGE}" in ran.steps["second"]["failure"]["message"]


def test_what_reads_the_status_alone_runs_and_the_run_is_degraded(live_file: Live):
    ran = live_file.run(f"""
        name: w
        order: sequential
        steps:
          - {LOUD}
          - {{step: reader, shell: 'echo ${{steps.loud.status}}', when: 'steps.loud.warnings[0].code != "NONE"'}}
        outputs: {{status: '${{steps.loud.status}}'}}
    """)

    ended = ran.log[-1].fact
    assert (ran.status, ran.shown["degraded"], ran.steps["reader"]["output"]) == ("completed", True, "completed")
    assert (ended.degraded, ended.dropped_outputs_count, ended.outputs) == (True, 1, {"status": "completed"})


def test_a_run_whose_outputs_read_a_dropped_output_fails_and_so_does_its_parent(live_file: Live):
    child = f"name: child\nsteps: [{LOUD}]\noutputs: {{it: '${{steps.loud.output}}'}}"

    live_file.write("child.yaml", child)

    ran = live_file.run("name: w\nsteps: [{step: call, workflow: child.yaml}]")

    assert (ran.status, ran.steps["call"]["failure"]["code"]) == ("failed", "CHILD_FAILED")
    assert (
        f"output 'it': OUTPUT_TOO_LARGE: 'steps.loud.output': the output of 'loud' {TOO_LARGE}"
        in (ran.steps["call"]["failure"]["message"])
    )


@pytest.mark.parametrize(
    "end",
    ["python: 'def main(steps): return {}', args: {steps: '${run.steps}'}", "shell: truncate -s 67108865 /dev/stdout"],
)
def test_an_end_that_reads_a_dropped_output_fails(live_file: Live, end: str):
    ran = live_file.run(f"name: w\nsteps: [{LOUD}, {{step: end, {end}}}]")

    assert (ran.status, ran.shown["end"]["failure"]["code"]) == ("failed", "OUTPUT_TOO_LARGE")


def test_a_rule_and_an_edge_that_name_the_code_apply(live_file: Live):
    ran = live_file.run(f"""
        name: w
        order: sequential
        steps:
          - {LOUD}
          - step: reader
            shell: 'echo ${{steps.loud.output}}'
            retry: {{rules: [{{codes: [OUTPUT_TOO_LARGE], max_retries: 1}}]}}
            next: [{{to: fix, on: failure, codes: [OUTPUT_TOO_LARGE]}}]
          - {{step: fix, shell: 'echo fixed'}}
    """)

    assert (ran.status, ran.steps["reader"]["attempts"], ran.steps["fix"]["output"]) == ("completed", 2, "fixed")


def test_a_result_with_a_dropped_output_is_not_taken_over_by_a_later_run(live_file: Live):
    workflow = f"name: w\nsteps: [{LOUD.replace('loud,', 'loud, cache: true,')}]"
    live_file.run(workflow)

    again = live_file.run(workflow)

    assert (again.steps["loud"]["status"], again.shown["degraded"], "reused" in repr(again.steps["loud"])) == (
        "completed",
        True,
        False,
    )


def test_an_agent_is_told_that_an_output_before_it_was_not_kept(live_file: Live, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_AGENT_ECHO", "cat")

    ran = live_file.run(
        f"name: w\norder: sequential\nsteps: [{LOUD}, {{step: ask, agent: {{provider: echo, prompt: go}}}}]",
    )

    assert f"the output of 'loud' {TOO_LARGE}" in repr(ran.steps["ask"]["output"])
