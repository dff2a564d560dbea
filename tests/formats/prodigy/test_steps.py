"""Steps of Prodigy's as steps of ours: kinds, names, limits, captures, loops, files."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.formats.prodigy.context import StepSlots

from .reading import UNASKED, context, item_commands, step, steps

# What a step becomes, without its name.
KINDS: list[tuple[str, dict[str, Any]]] = [
    # a text is a Claude command, with the slash or without it
    ("- prodigy-lint", {"agent": {"provider": "claude", "prompt": "/prodigy-lint", **UNASKED}}),
    ("- /prodigy-lint now", {"agent": {"provider": "claude", "prompt": "/prodigy-lint now", **UNASKED}}),
    ("- claude: /fix it", {"agent": {"provider": "claude", "prompt": "/fix it", **UNASKED}}),
    ("- claude: Please mend it", {"agent": {"provider": "claude", "prompt": "Please mend it", **UNASKED}}),
    ("- command: fix it", {"agent": {"provider": "claude", "prompt": "/fix it", **UNASKED}}),
    # the structured form
    (
        "- {name: fix, args: [a, 2], metadata: {retries: 2, timeout: 60, continue_on_error: true, env: {A: b}}}",
        {
            "agent": {"provider": "claude", "prompt": "/fix a 2", **UNASKED},
            "env": {"A": "b"},
            "timeout": "60s",
            "retry": 2,
            "continue_on_error": True,
        },
    ),
    ("- shell: make", {"shell": "make"}),
    ("- test: {command: make test}", {"shell": "make test"}),
    ("- test: make test", {"shell": "make test"}),
    # a name beside an action is a title
    ("- {name: Build it, shell: make}", {"description": "Build it", "shell": "make"}),
    ("- {shell: make, timeout: 90}", {"shell": "make", "timeout": "90s"}),
    ("- {shell: make, timeout: 1m 30s}", {"shell": "make", "timeout": "90s"}),
    ("- {shell: make, working_dir: sub/x}", {"shell": "make", "cwd": "sub/x"}),
    ("- {shell: make, env: {A: 1, B: 'x ${HOME}'}}", {"shell": "make", "env": {"A": "1", "B": "x $${HOME}"}}),
    ("- {shell: make, capture_format: lines}", {"shell": "make", "capture": "lines"}),
    ("- {shell: make, capture_format: number}", {"shell": "make", "capture": "json"}),
    ("- {shell: make, capture_streams: both}", {"shell": "exec 2>&1\nmake"}),
    ("- {shell: make, capture_streams: {stdout: true, stderr: true}}", {"shell": "exec 2>&1\nmake"}),
    ("- {shell: make, capture_streams: stderr}", {"shell": "exec 3>&1 1>&2 2>&3 3>&-\nmake"}),
    ("- {shell: make, capture_streams: {duration: true}}", {"shell": "make"}),
    (
        "- {claude: /list, capture: files, capture_format: json}",
        {"agent": {"provider": "claude", "prompt": "/list", "answer": "json", **UNASKED}},
    ),
    (
        "- {shell: make, output_file: out/log.txt}",
        {
            "shell": "make",
            "validate": {
                "python": {"call": "mulligan.formats.prodigy.runtime:write_file"},
                "args": {"path": "out/log.txt", "content": "${output}", "create_dirs": True},
            },
        },
    ),
    (
        "- write_file: {path: a.json, content: '{\"a\": 1}', format: json, mode: '0600', create_dirs: true}",
        {
            "python": {"call": "mulligan.formats.prodigy.runtime:write_file"},
            "args": {"path": "a.json", "content": '{"a": 1}', "format": "json", "create_dirs": True, "mode": "0600"},
        },
    ),
    ("- {shell: make, when: true}", {"when": "true", "shell": "make"}),
    (
        "- {shell: make, on_success: {shell: 'echo ${shell.output}'}}",
        {"shell": "make", "on_success": [{"shell": "echo ${output}"}]},
    ),
]


@pytest.mark.parametrize(("text", "ours"), KINDS)
def test_a_step_becomes_one_of_ours(text: str, ours: dict[str, Any]) -> None:
    assert step(text) == ours


def test_steps_are_called_by_their_id_their_title_their_command_or_what_they_do() -> None:
    found = steps("- {id: a-b, shell: x}\n- {name: 'c: d!', shell: x}\n- /e f\n- shell: x\n- shell: x\n- claude: g h\n")

    assert [each["step"] for each in found] == ["a-b", "c_d", "e", "x", "x_2", "claude"]
    assert [each.get("description") for each in found] == [None, "c: d!", None, None, None, None]


def test_a_title_that_has_nothing_for_a_name_is_only_a_description() -> None:
    (found,) = steps("- {name: '…', shell: x}")

    assert (found["step"], found["description"]) == ("step", "…")


def test_what_a_step_gives_is_read_by_those_after_it() -> None:
    found = steps(
        "- {id: one, shell: a, capture: x}\n"
        "- {id: two, claude: /b, capture_output: y}\n"
        "- shell: echo ${x} $x ${x.stdout} ${x.exit_code} ${x.success} ${y} ${shell.output} ${claude.output}\n"
        "- claude: /c ${last.output} ${y} ${x:-none}\n"
    )

    one, two = "${steps.one.output}", "${steps.two.output.content}"
    assert found[2]["shell"] == f"echo {one} {one} {one} 0 true {two} {one} {two}"
    default = "${steps.one.output == null || steps.one.output == '' ? 'none' : steps.one.output}"
    assert found[3]["agent"]["prompt"] == f"/c ${{steps.echo.output}} {two} {default}"


def test_how_a_step_ended_that_may_have_failed_is_asked_when_it_is_read() -> None:
    found = steps("- {id: one, shell: a, capture: x, on_failure: true}\n- shell: echo ${x.exit_code} ${x.success}\n")

    failed = "steps.one.failure != null ? steps.one.failure.exit_code : null"
    code = f"(steps.one.status == 'completed' ? 0 : {failed})"
    assert found[1]["shell"] == f"echo ${{{code}}} ${{(steps.one.status == 'completed')}}"


def test_a_boolean_is_told_from_words() -> None:
    found = steps("- {id: one, shell: a, capture: x, capture_format: boolean}\n- claude: /b ${x}\n")

    told = "steps.one.output.trim().lowerAscii() in ['true', 'yes', '1', 'on']"
    assert found[1]["agent"]["prompt"] == f"/b ${{({told})}}"


def test_what_an_agent_said_may_be_what_its_handler_said_in_its_place() -> None:
    found = steps("- {id: one, claude: /a, on_failure: echo no}\n- claude: /b ${claude.output}\n")

    output = "steps.one.output"
    said = f"(type({output}) == map && has({output}.content) ? {output}.content : {output})"
    assert found[1]["agent"]["prompt"] == f"/b ${{{said}}}"


def test_in_an_item_what_a_command_gave_is_read_by_its_number() -> None:
    found = item_commands(
        "- {shell: 'wc ${item.path}', capture: n}\n- shell: echo ${n} ${n.exit_code} '${item.path}'\n"
    )

    assert found == [{"shell": "wc ${item.path}"}, {"shell": 'echo ${outputs[0]} 0 "${item.path}"'}]


# -- what stands alone -----------------------------------------------------------------------------------------------


def test_a_handler_and_a_check_that_stand_alone_belong_to_the_step_before_them() -> None:
    found = item_commands(
        "- claude: /optimize ${item}\n"
        "- validate: test-performance ${item}\n"
        "- on_failure:\n    claude: /rollback ${item}\n"
    )

    assert found == [
        {
            "agent": {"provider": "claude", "prompt": "/optimize ${item}", **UNASKED},
            "validate": {"shell": "test-performance ${item}"},
            "on_failure": {"commands": [{"agent": {"provider": "claude", "prompt": "/rollback ${item}", **UNASKED}}]},
        }
    ]


def test_a_handler_belongs_to_a_step_that_is_a_text_as_well() -> None:
    (found,) = steps("- lint\n- on_failure: echo no\n")

    assert found == {
        "step": "lint",
        "agent": {"provider": "claude", "prompt": "/lint", **UNASKED},
        "on_failure": {"commands": [{"shell": "echo no"}]},
    }


def test_a_step_that_is_called_as_a_word_of_expressions_is_read_by_its_name_in_brackets() -> None:
    _, reader = steps("- {id: in, shell: date, capture: today}\n- shell: echo ${today}\n")

    assert reader["shell"] == 'echo ${steps["in"].output}'


# -- loops -----------------------------------------------------------------------------------------------------------


def test_a_list_is_a_map_in_which_its_length_is_known() -> None:
    (found,) = steps("- foreach: [a, b, c]\n  max_items: 2\n  do:\n    - shell: echo ${item} ${index} of ${total}\n")

    assert found == {
        "step": "foreach",
        "map": {"over": ["a", "b", "c"], "max_parallel": 1, "max_items": 2, "on_item_failure": "stop"},
        "do": [{"shell": "echo ${item} ${index} of 2"}],
    }


def test_nothing_is_filled_in_in_the_entries_of_a_list_however_deep() -> None:
    (found,) = steps('- foreach: ["${a}", {b: ["${x.y}"]}]\n  do: [shell: x]\n')

    assert found["map"]["over"] == ["$${a}", {"b": ["$${x.y}"]}]


@pytest.mark.parametrize(("said", "most"), [("true", 10), ("false", 1), ("4", 4), ("1", 1)])
def test_parallel_is_a_number_or_ten(said: str, most: int) -> None:
    (found,) = steps(f"- foreach: [a]\n  parallel: {said}\n  do: [shell: x]\n")

    assert found["map"]["max_parallel"] == most


def test_a_loop_that_goes_on_collects_its_failures() -> None:
    (found,) = steps("- foreach: [a]\n  continue_on_error: true\n  do: [shell: x]\n")

    assert found["map"]["on_item_failure"] == "collect"
    assert "continue_on_error" not in found


def test_the_lines_that_a_command_prints_are_a_step_of_their_own() -> None:
    lister, loop = steps("- foreach: ls *.md\n  do:\n    - shell: echo ${item} of ${total}\n")

    assert lister == {"step": "foreach_list", "shell": "ls *.md", "capture": "lines"}
    assert loop["map"]["over"] == "${steps.foreach_list.output}"
    assert loop["map"]["filter"] == "item.trim() != ''"
    total = "size(steps.foreach_list.output.filter(line, line.trim() != ''))"
    assert loop["do"] == [{"shell": f"echo ${{item}} of ${{{total}}}"}]


def test_the_keys_of_a_loop_may_stand_in_it() -> None:
    (found,) = steps("- foreach: {items: [a], parallel: 3, do: [{shell: x}]}\n")

    assert found["map"] == {"over": ["a"], "max_parallel": 3, "on_item_failure": "stop"}


# -- commits ---------------------------------------------------------------------------------------------------------


def test_a_commit_that_is_required_is_told_from_what_was_there_before() -> None:
    before, work = steps("- {id: work, claude: /do, commit_required: true}")

    inside = "git rev-parse --git-dir > /dev/null 2>&1 || exit 0\n"
    kept = '"$(git rev-parse --git-dir)/prodigy-head-1-44"'
    assert before == {
        "step": "work_before",
        "shell": f"{inside}{{ git rev-parse -q --verify HEAD || true; }} > {kept}",
    }
    assert work["validate"]["shell"] == (
        f'{inside}[ "$(git rev-parse -q --verify HEAD)" != "$(cat {kept})" ] || '
        "{ echo 'work made no commit' >&2; exit 1; }"
    )


def test_what_is_committed_automatically_is_what_the_step_says() -> None:
    (found,) = steps(
        "- id: work\n"
        "  shell: make\n"
        "  auto_commit: true\n"
        "  commit_config:\n"
        "    message_template: 'feat: ${step.name}'\n"
        "    message_pattern: '^feat: '\n"
        "    author: Ada <ada@example.org>\n"
        "    include_files: ['src/*']\n"
        "    exclude_files: ['*.log']\n"
        "    sign: true\n"
    )

    commit = found["validate"]
    assert commit["shell"].splitlines()[1:] == [
        "git add -A -- 'src/*' ':!*.log'",
        "git diff --cached --quiet || git commit -q -S --author='Ada <ada@example.org>' -m \"$PRODIGY_MESSAGE\"",
    ]
    assert commit["env"] == {"PRODIGY_MESSAGE": "feat: ${'work'}"}
    assert commit["validate"]["shell"].splitlines()[1] == (
        "git log -1 --format=%B | grep -Eq -e '^feat: ' || "
        "{ echo 'the message of the last commit does not match '\"'\"'^feat: '\"'\"'' >&2; exit 1; }"
    )


# -- exit codes ------------------------------------------------------------------------------------------------------


def test_what_runs_for_an_exit_code_is_a_step_that_stands_in() -> None:
    first, second, aside = steps(
        "- {id: a, shell: x, on_exit_code: {0: {shell: echo ok}, 2: {id: two, shell: 'echo ${error.exit_code}'}}}\n"
        "- {id: b, shell: y}\n"
    )

    assert first["on_success"] == [{"shell": "echo ok"}]
    assert first["next"] == [{"to": "two", "on": "failure", "exit_codes": [2], "then": "continue"}]
    assert second == {"step": "b", "shell": "y"}
    assert aside == {"step": "two", "shell": "echo ${failure.exit_code}"}


def test_in_an_item_the_handler_asks_for_the_exit_code() -> None:
    (found,) = item_commands("- {shell: x, on_exit_code: {2: {shell: echo two}, 3: {shell: echo three}}}")

    assert found["on_failure"] == {
        "shell": 'case "$MULLIGAN_RETURN_CODE" in\n2)\necho two\n;;\n3)\necho three\n;;\n*) exit 1 ;;\nesac'
    }


def test_what_a_check_prints_is_judged_behind_all_of_its_commands() -> None:
    (found,) = steps(
        "- id: a\n"
        "  shell: x\n"
        "  validate:\n"
        "    shell: measure\n"
        "    claude: /judge\n"
        "    on_incomplete: {shell: 'echo ${validation.gaps}', max_attempts: 3}\n"
    )

    measure = found["validate"]
    assert (measure["shell"], measure["on_failure"]["rerun"]) == ("measure", 3)
    assert measure["validate"]["agent"]["prompt"] == "/judge"
    assert measure["validate"]["validate"]["args"] == {"output": "${output.content}"}
    details = "error.cause[0].cause[0].details"
    are_there = f"size(error.cause) > 0 && size(error.cause[0].cause) > 0 && has({details}.gaps)"
    assert measure["on_failure"]["commands"] == [{"shell": f"echo ${{({are_there} ? {details}.gaps : '')}}"}]


@pytest.mark.parametrize("said", ["allow_failure: true", "fail_workflow: false", "continue_on_error: true"])
def test_a_step_may_be_allowed_to_fail(said: str) -> None:
    assert step(f"- {{shell: make, {said}}}") == {"shell": "make", "continue_on_error": True}


def test_a_default_may_be_written_as_a_modifier() -> None:
    found = steps("- {id: a, shell: x, capture: v}\n- {id: b, shell: 'echo ${v|default:none} ${w|default:n}'}\n")

    assert found[1]["shell"] == "echo ${steps.a.output:-none} ${w|default:n}"


def test_files_that_a_step_makes_are_found_behind_it() -> None:
    found = steps("- {id: plan, claude: /plan, outputs: {spec: {file_pattern: '*.md'}}}\n- claude: /do ${plan.spec}\n")

    assert [each["step"] for each in found] == ["plan_before", "plan", "plan_outputs", "do"]
    assert found[2]["args"] == {"remembered": "prodigy-head-1-3", "patterns": {"spec": "*.md"}}
    assert found[3]["agent"]["prompt"] == "/do ${steps.plan_outputs.output.spec}"


# -- what has changed --------------------------------------------------------------------------------------------------


def test_a_step_that_asks_what_the_one_before_it_changed_is_told() -> None:
    found = steps("- implement\n- {id: look, claude: '/review ${step.files_changed}'}\n- shell: echo\n")

    assert [each["step"] for each in found] == ["implement_before", "implement", "look_changes", "look", "echo"]
    assert found[0]["shell"].endswith('> "$(git rev-parse --git-dir)/prodigy-head-1-3"')
    assert found[2] == {
        "step": "look_changes",
        "python": {"call": "mulligan.formats.prodigy.runtime:changes_since"},
        "args": {"remembered": "prodigy-head-1-3"},
    }
    assert found[3]["agent"]["prompt"] == "/review ${steps.look_changes.output.files_changed}"


def test_a_condition_on_what_the_step_before_it_changed_is_told_first() -> None:
    condition = "${step.files_modified:*.rs} && ${step.commit_count} > 1"
    found = steps(f"- implement\n- {{id: test, shell: make, commit_required: true, when: '{condition}'}}\n")

    assert [each["step"] for each in found] == ["implement_before", "implement", "test_before", "test_changes", "test"]
    assert ["when" in each for each in found] == [False, False, False, False, True]
    output = "steps.test_changes.output"
    assert found[4]["when"] == (
        f"""!(string({output}["files_modified:*.rs"]) in ['', '[]', '0']) && double({output}.commit_count) > 1.0"""
    )


def test_a_step_that_asks_what_the_run_changed_is_told() -> None:
    place = context(StepSlots(), {"merge.target_branch": "steps.worktree.output.target"})

    look, tell = steps("- {id: tell, shell: 'echo ${workflow.commit_count}'}", place)

    assert look["args"] == {"branch": "${steps.worktree.output.target}"}
    assert tell["shell"] == "echo ${steps.tell_changes.output.commit_count}"
