"""Regular workflows of Prodigy's, run."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.runner import Live, Ran

AGENT = """\
prompt=$(cat)
echo "$prompt" >> prompts.txt
case "$prompt" in
  /touch*) touch "${prompt#/touch }" ;;
  /commit*) git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m work ;;
  /break*) exit 3 ;;
  /json*) echo '{"n": 3}'; exit ;;
esac
echo "did $prompt"
"""


@pytest.fixture(autouse=True)
def _agent(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    path = live_file.write("agent.sh", AGENT)
    monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", f"sh {path}")


def run(live: Live, text: str, **inputs: str) -> Ran:
    return live.run(text, named="prodigy", inputs=inputs)


def output(ran: Ran, step: str) -> object:
    return ran.steps[step]["output"]


# -- the seed --------------------------------------------------------------------------------------------------------


SEED = """\
tasks:
  - name: "Build project"
    shell: "test -e installed && echo built"
    on_failure:
      - shell: "rm -rf cache"
      - shell: "touch installed"
      - shell: "test -e installed && echo built"

  - name: "Type checking"
    shell: "test -e typed"
    on_failure:
      strategy: recovery
      commands:
        - claude: "/touch typed"
        - shell: "test -e typed && echo typed"

  - name: "Deploy"
    shell: "echo no production >&2; exit 1"
    on_failure:
      strategy: fallback
      commands:
        - shell: "echo staged"
        - shell: "echo 'Production deploy failed, staged: ${error.message}'"
"""


def test_the_handlers_of_the_seed_recover_their_steps(live_file: Live) -> None:
    ran = run(live_file, SEED)

    names = ("Build_project", "Type_checking", "Deploy")
    assert ran.status == "completed"
    assert [ran.steps[name]["recovered"] for name in names] == [True, True, True]
    assert [output(ran, name) for name in names] == [
        "built",
        "typed",
        "Production deploy failed, staged: no production",
    ]


# -- handlers --------------------------------------------------------------------------------------------------------


def test_without_a_handler_a_step_that_fails_fails_the_workflow(live_file: Live) -> None:
    ran = run(live_file, "- {id: a, shell: exit 3}\n- {id: b, shell: echo never}\n")

    assert (ran.status, ran.steps["a"]["status"], ran.steps["b"]["status"]) == ("failed", "failed", "skipped")


def test_a_handler_mends_and_the_command_is_run_again(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: test\n"
        "  shell: test -e fixed || { echo 2 tests failed; exit 1; }\n"
        "  on_failure: {claude: '/look ${shell.output}', max_attempts: 2}\n"
        "- on_success: touch never\n"
        "- {id: next, shell: echo went on}\n",
    )

    assert live_file.lines("prompts.txt") == ["/look 2 tests failed"]
    assert (ran.steps["test"]["status"], ran.steps["test"]["attempts"]) == ("failed", 2)
    assert (ran.status, output(ran, "next")) == ("completed", "went on")


def test_what_a_step_printed_can_be_read_also_if_it_may_fail(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, shell: 'echo out; echo oops >&2; exit 3', capture: x, allow_failure: true}\n"
        "- {id: b, shell: 'echo \"${x}, ${x.stderr}, ${x.exit_code}, ${x.success}\"'}\n"
        "- {id: c, shell: 'echo fine; echo by the way >&2', capture: y}\n"
        "- {id: d, shell: 'echo \"${y}, ${y.stderr}\"', when: '${y.duration} < 60'}\n"
        "- foreach: [1, 2]\n  id: e\n  do:\n"
        "    - {shell: 'echo ${item}; exit ${item}', capture: z, allow_failure: true}\n"
        "    - shell: echo ${z} ended with ${z.exit_code}\n",
    )

    assert (ran.status, ran.steps["a"]["status"]) == ("completed", "failed")
    assert (output(ran, "b"), output(ran, "d")) == ("out, oops, 3, false", "fine, by the way")
    assert ran.steps["e"]["output"]["results"] == ["1 ended with 1", "2 ended with 2"]


def test_a_failed_handler_that_is_fatal_fails_the_workflow_that_would_continue(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, shell: exit 1, on_failure: {shell: exit 2, fail_workflow: false, handler_failure_fatal: true}}\n"
        "- {id: b, shell: echo never}\n",
    )

    assert (ran.status, ran.steps["b"]["status"]) == ("failed", "cancelled")


def test_a_failure_that_may_not_be_ends_the_workflow_after_the_last_attempt(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: test\n  shell: exit 1\n  on_failure: {claude: /look, max_attempts: 3, fail_workflow: true}\n",
    )

    assert (ran.status, ran.steps["test"]["attempts"]) == ("failed", 3)
    assert live_file.lines("prompts.txt") == ["/look", "/look"]


def test_a_handler_of_an_agent_runs_when_the_agent_fails(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, claude: /break, on_failure: 'echo mended ${error.exit_code}'}\n- claude: /tell ${claude.output}\n",
    )

    assert (ran.status, output(ran, "a")) == ("completed", "mended 3")
    assert live_file.lines("prompts.txt")[-1] == "/tell mended 3"


def test_handlers_nest(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: a\n"
        "  shell: echo first >&2; exit 1\n"
        "  on_failure:\n"
        "    shell: echo second >&2; exit 2\n"
        "    on_failure: echo third after ${error.message} ${error.exit_code}\n",
    )

    assert (ran.status, output(ran, "a")) == ("completed", "third after second 2")


def test_what_a_handler_captures_is_a_variable_afterwards(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, shell: exit 4, on_failure: {commands: [echo mended], capture: {how: output}}}\n"
        "- {id: b, shell: 'echo ${how}'}\n"
        "- {id: c, shell: exit 0, on_failure: {commands: [echo mended], capture: {what: output}}}\n"
        "- {id: d, shell: 'echo [${what}]'}\n",
    )

    assert (output(ran, "b"), output(ran, "d")) == ("mended", "[]")


def test_what_runs_for_an_exit_code_stands_in_for_the_step(live_file: Live) -> None:
    text = (
        "- {id: a, shell: exit CODE, capture: x, on_exit_code: {2: {id: two, shell: 'echo two ${error.exit_code}'}}}\n"
        "- {id: b, shell: 'echo ${x}'}\n"
    )

    two, three = (run(live_file, text.replace("CODE", code)) for code in ("2", "3"))

    assert (two.status, output(two, "b")) == ("completed", "two 2")
    assert (three.status, three.steps["two"]["status"], three.steps["b"]["status"]) == ("failed", "skipped", "skipped")


# -- variables -------------------------------------------------------------------------------------------------------


def test_values_stay_values_whatever_is_in_them(live_file: Live) -> None:
    live_file.write("value.txt", 'a b; $(touch bad) "q"')

    ran = run(live_file, "- {shell: cat value.txt, capture: x}\n- id: b\n  shell: echo '<${x}>' \"${x}\" ${x}\n")

    said = 'a b; $(touch bad) "q"'
    assert output(ran, "b") == f"<{said}> {said} {said}"
    assert not (live_file.folder / "bad").exists()


def test_a_value_in_the_place_of_a_command_is_run(live_file: Live) -> None:
    ran = run(live_file, '- {shell: "echo \'echo hi; echo there\'", capture: x}\n- {id: b, shell: "${x}"}\n')

    assert output(ran, "b") == "hi\nthere"


def test_the_arguments_come_in_as_one_input(live_file: Live) -> None:
    ran = run(live_file, "- {id: a, shell: 'echo $ARG / $1 / ${ARG_2}'}\n- claude: /x $ARG ${ARG_1}\n", args="one two")

    assert output(ran, "a") == "one two / one / two"
    assert live_file.lines("prompts.txt") == ["/x one two one"]


def test_an_agent_answers_with_json_where_that_is_asked_for(live_file: Live) -> None:
    ran = run(live_file, "- {claude: /json, capture: x, capture_format: json}\n- {id: b, shell: 'echo ${x.n}'}\n")

    assert (ran.status, output(ran, "b")) == ("completed", "3")


def test_streams_are_told_apart(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, shell: 'echo out; echo err >&2', capture_streams: stderr}\n"
        "- {id: b, shell: 'echo out; echo err >&2', capture_streams: both}\n",
    )

    assert (output(ran, "a"), output(ran, "b")) == ("err", "out\nerr")


def test_conditions_skip_steps_and_the_rest_goes_on(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {shell: echo 7, capture: n}\n"
        "- {id: a, shell: echo a, when: '${n} > 5'}\n"
        "- {id: b, shell: echo b, when: '${n} > 10'}\n"
        "- {id: c, shell: echo c}\n",
    )

    assert ran.status == "completed"
    assert [ran.steps[name]["status"] for name in "abc"] == ["completed", "skipped", "completed"]


# -- loops and files -------------------------------------------------------------------------------------------------


def test_a_loop_runs_for_each_line(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: each\n"
        "  foreach: printf 'a b\\n\\nc\\n'\n"
        "  do:\n"
        "    - {shell: 'echo =${item}=', capture: x}\n"
        "    - shell: echo ${x} ${index} of ${total}\n",
    )

    assert ran.steps["each"]["output"]["results"] == ["=a b= 0 of 2", "=c= 1 of 2"]


def test_a_loop_stops_at_a_failure_unless_it_is_to_go_on(live_file: Live) -> None:
    text = "- id: each\n  foreach: [a, b, c]\n  do: [shell: 'test ${{item}} != b']\n{more}"

    stopped, collected = (
        run(live_file, text.format(more="")),
        run(live_file, text.format(more="  continue_on_error: true\n")),
    )

    assert (stopped.status, collected.status) == ("failed", "completed")
    assert collected.steps["each"]["output"]["failed"] == 1


def test_a_file_is_written_neatly_and_made_where_it_is_missing(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {shell: echo 5, capture: n}\n"
        "- write_file: {path: out/a.json, content: '{\"n\": ${n}}', format: json, create_dirs: true, mode: '0600'}\n"
        "- {shell: make it, on_failure: true, output_file: never.txt}\n"
        "- {shell: echo hello, output_file: said.txt}\n",
    )

    assert ran.status == "completed"
    assert live_file.read("out/a.json") == '{\n  "n": 5\n}\n'
    assert (live_file.folder / "out/a.json").stat().st_mode & 0o777 == 0o600
    assert live_file.read("said.txt") == "hello"
    assert not (live_file.folder / "never.txt").exists()


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("write_file: {path: 'out/${item}', content: hostile, create_dirs: true}", "INPUT_INVALID"),
        ("{shell: echo hostile, output_file: 'out/${item}'}", "VALIDATION_FAILED"),
    ],
)
def test_a_value_writes_no_file_outside_of_the_folder_that_is_written_before_it(
    live_file: Live, step: str, code: str
) -> None:
    outside = live_file.folder.parent / "outside"
    outside.mkdir()
    (live_file.folder / "out").mkdir()
    (live_file.folder / "out" / "planted").symlink_to(outside)
    items = ["good", "planted/new", "../new", str(outside / "new")]

    ran = run(live_file, f"- id: each\n  foreach: {json.dumps(items)}\n  continue_on_error: true\n  do: [{step}]\n")

    codes = [failure["code"] for failure in ran.steps["each"]["output"]["failures"]]
    assert codes == [code] * 3
    assert (live_file.folder / "out" / "good").read_text().strip() == "hostile"
    assert list(outside.iterdir()) == []
    assert not (live_file.folder / "new").exists()


# -- checks ----------------------------------------------------------------------------------------------------------

INCOMPLETE = """\
- id: work
  shell: echo working
  validate:
    shell: cat result.json
    threshold: 90
    on_incomplete:
      shell: |
        echo "${validation.completion} ${validation.missing} ${validation.status}" >> told.txt
        sed -i s/40/70/\\;s/70/95/2 result.json; cp next.json result.json
      max_attempts: 2
      fail_workflow: FAILS
"""


def test_work_is_completed_until_it_is_complete_enough(live_file: Live) -> None:
    live_file.write("result.json", '{"completion_percentage": 40, "status": "incomplete", "missing": ["a", "b"]}')
    live_file.write("next.json", '{"completion_percentage": 95}')

    ran = run(live_file, INCOMPLETE.replace("FAILS", "true"))

    assert ran.status == "completed"
    assert live_file.lines("told.txt") == ["40 a, b incomplete"]


@pytest.mark.parametrize(("fails", "status"), [("true", "failed"), ("false", "completed")])
def test_work_that_stays_incomplete_fails_unless_it_may(live_file: Live, fails: str, status: str) -> None:
    live_file.write("result.json", '{"completion_percentage": 40}')
    live_file.write("next.json", '{"completion_percentage": 50}')

    ran = run(live_file, INCOMPLETE.replace("FAILS", fails))

    assert ran.status == status
    assert len(live_file.lines("told.txt")) == 2


def test_a_check_that_fails_climbs_to_the_handler_of_its_step(live_file: Live) -> None:
    ran = run(
        live_file,
        "- {id: a, shell: touch made}\n- validate: test -e other\n- on_failure: rm made; echo undone\n",
    )

    assert (ran.status, output(ran, "a")) == ("completed", "undone")
    assert not (live_file.folder / "made").exists()


def test_checks_that_are_counted_need_as_many_as_they_say(live_file: Live) -> None:
    text = (
        "- id: a\n"
        "  shell: echo ok\n"
        "  step_validate:\n"
        "    commands:\n"
        "      - {command: echo 3 passed, expect_output: '\\d passed'}\n"
        "      - {command: exit 7, expect_exit_code: 7}\n"
        "      - 'false'\n"
        "    success_criteria: CRITERIA\n"
    )

    two, three = (run(live_file, text.replace("CRITERIA", needed)) for needed in ("{atleast: 2}", "all"))

    assert (two.status, three.status) == ("completed", "failed")
    said = "2 of 3 checks passed, 3 required: 'false' exited with 1, expected 0"
    assert three.steps["a"]["failure"]["message"] == said


def test_a_check_that_does_not_count_is_recorded(live_file: Live) -> None:
    ran = run(live_file, "- {id: a, shell: echo ok, step_validate: 'false', ignore_validation_failure: true}\n")

    assert (ran.status, ran.steps["a"]["status"]) == ("completed", "completed")


def test_a_check_that_is_skipped_is_not_asked(live_file: Live) -> None:
    ran = run(live_file, "- {id: a, shell: echo ok, step_validate: touch asked; false, skip_validation: true}\n")

    assert (ran.status, (live_file.folder / "asked").exists()) == ("completed", False)


# -- commits ---------------------------------------------------------------------------------------------------------


def test_outside_of_a_repository_no_commit_is_asked_for(live_file: Live) -> None:
    ran = run(live_file, "- {claude: /nothing, commit_required: true}\n- {shell: touch a, auto_commit: true}\n")

    assert ran.status == "completed"


def git(live: Live, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    ended = subprocess.run(["git", *named, *words], cwd=live.folder, check=True, capture_output=True, text=True)
    return ended.stdout


@pytest.mark.parametrize(("prompt", "status"), [("/commit", "completed"), ("/nothing", "failed")])
def test_a_step_that_must_make_a_commit_is_held_to_it(live_file: Live, prompt: str, status: str) -> None:
    git(live_file, "init", "-q", "-b", "main")
    git(live_file, "commit", "-q", "--allow-empty", "-m", "first")

    ran = run(live_file, f"- {{id: work, claude: {prompt}, commit_required: true}}\n")

    assert ran.status == status
    if status == "failed":
        assert ran.steps["work"]["failure"]["message"] == "work made no commit"


def test_what_has_changed_is_known_to_who_asks(live_file: Live) -> None:
    git(live_file, "init", "-q", "-b", "main")
    live_file.write("old.txt", "old\n")
    git(live_file, "add", "old.txt")
    git(live_file, "commit", "-q", "-m", "first")

    ran = run(
        live_file,
        "- shell: echo more >> old.txt\n"
        "- shell: echo new > 'a new.txt'\n"
        "- {id: step, shell: 'echo \"${step.files_added}|${step.files_modified}\"'}\n"
        "- {id: run, shell: 'echo \"${workflow.files_changed}|${workflow.commit_count}|${workflow.insertions}\"'}\n"
        "- {id: json, shell: \"echo '${workflow.files_changed:json}' '${workflow.commits:json}'\"}\n"
        "- {id: csv, shell: 'echo \"${workflow.files_changed:old*:csv}|${workflow.files_added:*.md}\"'}\n"
        "- {id: words, shell: 'for f in ${workflow.files_changed:lines}; do echo \"[$f]\"; done'}\n"
        "- {id: if_md, shell: echo, when: '${step.files_added:*.md}'}\n"
        "- {id: if_txt, shell: echo, when: '${workflow.files_added:*.txt:json} && ${workflow.insertions}'}\n"
        "- {id: if_commits, shell: echo, when: '${workflow.commit_count} || ${workflow.commits:json}'}\n",
    )

    assert (output(ran, "step"), output(ran, "run")) == ("a new.txt|old.txt", "a new.txt old.txt|0|1")
    assert (output(ran, "json"), output(ran, "csv")) == ('["a new.txt", "old.txt"] []', "old.txt|")
    assert output(ran, "words").split("\n") == ["[a]", "[new.txt]", "[old.txt]"]
    conditional = {name: ran.steps[name]["status"] for name in ("if_md", "if_txt", "if_commits")}
    assert conditional == {"if_md": "skipped", "if_txt": "completed", "if_commits": "skipped"}


def test_outside_of_a_repository_nothing_has_changed(live_file: Live) -> None:
    ran = run(live_file, "- shell: touch a\n- {id: b, shell: 'echo \"[${step.files_changed}]\"'}\n")

    assert output(ran, "b") == "[]"


def test_the_file_that_a_step_made_is_known_to_those_after_it(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: plan\n"
        "  shell: mkdir specs; touch specs/a-plan.md\n"
        "  outputs: {spec: {file_pattern: '*-plan.md'}}\n"
        "- {id: use, shell: 'echo ${plan.spec}'}\n",
    )

    assert (ran.status, output(ran, "use")) == ("completed", "specs/a-plan.md")


def test_a_file_that_a_step_did_not_make_is_a_failure(live_file: Live) -> None:
    ran = run(live_file, "- {id: plan, shell: 'true', outputs: {spec: {file_pattern: '*-plan.md'}}}\n")

    said = "no file matches '*-plan.md', one of the step's 'outputs'"
    assert (ran.status, ran.steps["plan_outputs"]["failure"]["message"]) == ("failed", said)


# -- computed variables ----------------------------------------------------------------------------------------------


def test_computed_variables_are_in_the_environment_of_every_command(live_file: Live) -> None:
    count = "echo x >> FILE; wc -l < FILE | tr -d ' '"
    ran = run(
        live_file,
        "env:\n"
        f'  ONCE: {{command: "{count.replace("FILE", "once")}", cache: true}}\n'
        f'  EACH: {{command: "{count.replace("FILE", "each")}"}}\n'
        "  WHERE: {condition: \"${ONCE} == '1'\", when_true: here, when_false: there}\n"
        "commands:\n"
        "  - {id: first, shell: 'echo $ONCE $EACH $WHERE'}\n"
        "  - {id: second, shell: 'exit 1', on_failure: 'echo $ONCE $EACH'}\n"
        "  - {id: own, shell: 'echo $EACH', env: {EACH: mine}}\n"
        "  - {id: loop, foreach: [a], do: [{shell: 'echo $ONCE ${item} $WHERE'}]}\n"
        "  - {id: ask, claude: 'say ${ONCE} ${WHERE}'}\n",
    )

    assert (output(ran, "first"), output(ran, "second"), output(ran, "own")) == ("1 2 here", "1 4", "mine")
    assert ran.steps["loop"]["output"]["results"][0] == "1 a here"
    assert "say 1 here" in str(output(ran, "ask"))


def test_a_variable_whose_command_fails_is_a_failure_that_names_it(live_file: Live) -> None:
    ran = run(live_file, "env: {N: {command: 'echo no >&2; exit 3', cache: true}}\ncommands: [{shell: echo}]\n")

    said = "the command of the variable 'N' exited with 3: no"
    assert (ran.status, ran.steps["environment"]["failure"]["message"]) == ("failed", said)


def test_a_parameter_that_breaks_its_rule_fails_the_run_before_anything_else(live_file: Live) -> None:
    text = "parameters: {n: {type: number, validation: value > 1}}\ncommands: [{id: use, shell: 'echo ${n}'}]\n"

    ran = run(live_file, text, n="1")

    said = "'n' is '1', but must be > 1"
    assert (ran.status, ran.steps["parameters"]["failure"]["message"]) == ("failed", said)
    assert ran.steps["use"]["status"] != "completed"


# -- loops and conditions in handlers --------------------------------------------------------------------------------


def test_a_handler_may_repeat_commands_and_have_conditions(live_file: Live) -> None:
    ran = run(
        live_file,
        "- id: work\n"
        "  shell: exit 3\n"
        "  on_failure:\n"
        "    - {foreach: [a b, {name: c}, 7], do: [{shell: 'echo ${index}/${total} \"${item}\" >> log'}]}\n"
        "    - {foreach: [{n: x}], do: [{claude: 'fix ${item.n}'}]}\n"
        "    - {shell: echo never >> log, when: '${error.exit_code} == 4'}\n"
        "    - {shell: echo three >> log, when: '${error.exit_code} == 3'}\n"
        "- {id: each, foreach: [1], do: [{foreach: [p, q], do: [{shell: 'echo ${item} >> log'}]}]}\n",
    )

    assert ran.status == "completed"
    assert live_file.lines("log") == ["0/3 a b", '1/3 {"name":"c"}', "2/3 7", "three", "p", "q"]
    assert "fix x" in live_file.lines("prompts.txt")
