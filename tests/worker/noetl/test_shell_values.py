"""Values in the commands of a `shell` tool: the shell sees exactly the value, or the step is refused."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan import StepError
from mulligan.formats.noetl.runtime.placeholders import mark_values
from mulligan.formats.noetl.runtime.shell_text import bind_command

from .asking import reported, result, seen

VALUES = [
    "plain",
    "two words",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "'\"'; touch pwned; '\"'",
    "\ntouch pwned\n",
    "EOF\ntouch pwned\n",
    "END\n$(touch pwned)",
    "| touch pwned",
    "&& touch pwned",
    "> pwned",
    "${IFS}touch${IFS}pwned",
    "$HOME ~ * ? [a-z] {a,b}",
    "\\",
    "\\'",
    '\\"',
    "\\\\$(touch pwned)",
    "a\\\nb",
    "!!",
    "%s%n",
    "-n",
    "ünïcödé \u202e \U0001f600",
    "\U000f00000\U000f0001",
    "{{ x }}",
    "${template.v0}",
    "\t",
    "\r",
]
# Where a value may stand, and what is printed of a value there.
POSITIONS = {
    "printf '<%s>' {{ x }}": "<{}>",
    "printf '<%s>' a{{ x }}b": "<a{}b>",
    "printf '<%s>' '{{ x }}'": "<{}>",
    "printf '<%s>' 'a {{ x }} b' c": "<a {} b><c>",
    "printf '<%s>' '{{ x }}{{ x }}'": "<{}{}>",
    "printf '<%s>' \"{{ x }}\"": "<{}>",
    "printf '<%s>' \"it's {{ x }} so\"": "<it's {} so>",
    "printf '<%s>' --name={{ x }} --other=\"{{ x }}\"": "<--name={}><--other={}>",
    "printf '<%s>' \"$(printf '%s.' {{ x }})\"": "<{}.>",
    "printf '%s.' '{{ x }}' | cat": "{}.",
    "cat <<EOF\n{{ x }}.\nEOF\n": "{}.\n",
    "cat <<-END\n\t{{ x }}.\nEND\n": "{}.\n",
    "y={{ x }}; printf '<%s>' \"$y\"": "<{}>",
    "y='{{ x }}' z=1; printf '<%s>' \"$y\"": "<{}>",
    "if [ {{ x }} = '{{ x }}' ]; then printf '<%s>' {{ x }}; fi": "<{}>",
    "case {{ x }} in '{{ x }}') printf same;; *) printf other;; esac": "same",
    "for y in '{{ x }}' {% for z in xs %}{{ z }} {% endfor %}; do printf '<%s>' \"$y\"; done": "<{}><1 2><{}>",
    "f() { printf '<%s>' \"$1\"; }; f {{ x }}": "<{}>",
    "( printf '<%s>' {{ x }} )": "<{}>",
    "true && printf '<%s>' {{ x }} || false": "<{}>",
    "printf ok # {{ x }}": "ok",
    "printf '<%s>' \"${unset:-{{ x }}}\"": "<{}>",
    "{% if x %}printf '<%s>' {{ x }}{% else %}false{% endif %}": "<{}>",
    "{% set y = x %}printf '<%s>' {{ y }}": "<{}>",
    "{% macro q(v) %}[{{ v }}]{% endmacro %}printf '<%s>' {{ q(x) }}": "<[{}]>",
}


def expected(position: str, value: str) -> str:
    return POSITIONS[position].replace("{}", value)


def script(position: str, value: str) -> str:
    """A position with a value, as a script that needs nothing else."""
    command = bind_command(mark_values(position, {"x": value, "xs": ["1 2", value]}))
    variables = "".join(f"{name}={shlex.quote(text)}\n" for name, text in command.variables.items())
    return f"(\n{variables}{command.text}\n)"


def printed(shell: str, scripts: list[str], folder: Path) -> list[str]:
    """What each of the scripts prints, run one after the other by one shell."""
    program = "".join(f"{one} > out.{number}\n" for number, one in enumerate(scripts))
    (folder / "program").write_text(program, encoding="utf-8", newline="")
    subprocess.run([shell, "program"], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return [(folder / f"out.{number}").read_bytes().decode() for number in range(len(scripts))]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_shell_sees_exactly_the_value_wherever_one_may_stand(tmp_path: Path, shell: str) -> None:
    # By day every value is in a seventh of the positions: seven does not divide the number of values.
    cases = [(position, value) for position in POSITIONS for value in VALUES][:: examples(7, 1)]

    found = printed(shell, [script(*case) for case in cases], tmp_path)

    wrong = [(case, text) for case, text in zip(cases, found, strict=True) if text != expected(*case)]
    assert wrong == []
    assert not (tmp_path / "pwned").exists()


# Many values for one shell: it is the start of a shell that costs.
@settings(max_examples=examples(5, 10))
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=5))
def test_the_shell_sees_exactly_any_value(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    cases = [(position, value) for value in values for position in list(POSITIONS)[:6] if value.strip()]

    found = printed("sh", [script(*case) for case in cases], tmp_path_factory.mktemp("shell"))

    assert found == [expected(*case) for case in cases]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("{{ x }}", "names a command"),
        ("'{{ x }}' --version", "names a command"),
        ("./bin/{{ x }} a", "names a command"),
        ("A=1 {{ x }}", "names a command"),
        ("true; {{ x }}", "names a command"),
        ("echo $({{ x }})", "names a command"),
        ("if {{ x }}; then true; fi", "names a command"),
        *(
            (f"{runner} {{{{ x }}}}", "names a command")
            for runner in (
                *(".", "xargs", "xargs -n 1", "timeout 5", "timeout -k 1 --signal TERM 5", "nice -n 5", "setsid"),
                *("stdbuf -o0", "ionice -c 3", "taskset -c 0", "chroot /", "nohup", "flock F", "flock -w 5 F", "doas"),
                *("parallel", "gosu nobody", "sudo -u nobody", "env", "env A=1", "watch", "watch -x", "find . -exec"),
                *("find . -name a -execdir", "sudo timeout 5 nice", "2>/dev/null", "time -p"),
            )
        ),
        ('. "./{{ x }}.sh"', "names a command"),
        ("source {{ x }}", "names a command"),
        ("flock F -c {{ x }}", "names a command"),
        ("watch ls {{ x }}", "is part of the command that 'watch' gives to a shell"),
        ("env -S {{ x }}", "names a command"),
        ("eval echo {{ x }}", "is an argument of 'eval'"),
        ("eval 'echo {{ x }}'", "is an argument of 'eval'"),
        ("sh -c 'echo {{ x }}'", "is part of the script of 'sh -c'"),
        ('bash -c "echo {{ x }}"', "is part of the script of 'bash -c'"),
        ("echo {{ x }} | sh", "is part of the script that 'sh' reads"),
        ("sh <<EOF\necho {{ x }}\nEOF\n", "is part of the script that 'sh' reads"),
        ("cat <<'EOF'\n{{ x }}\nEOF\n", "is in a here-document with a quoted delimiter"),
        ("cat <<{{ x }}\na\n{{ x }}\n", "is the delimiter of a here-document"),
        ("echo $(( {{ x }} + 1 ))", "is in arithmetic"),
        ("echo `echo {{ x }}`", "is in backticks"),
        ("echo $'{{ x }}'", "is in single quotes"),
        ("echo ${{ x }}", "follows a '$'"),
        ("echo \\{{ x }}", "follows a '\\'"),
        ("export {{ x }}=1", "is the name of a variable"),
        ("for y in {{ x }}; do true; done", "stands for several words of a command"),
        ("cp {{ xs | join(' ') }} there", "stands for several words of a command"),
        ("trap '{{ x }}' EXIT", "is an argument of 'trap'"),
        ('echo {{ "\'" ~ x ~ "\'" }}', "writes quotes itself"),
    ],
)
def test_a_value_that_would_be_part_of_the_program_is_refused(tmp_path: Path, command: str, said: str) -> None:
    tool = {"kind": "shell", "cmds": ["touch before", command], "cwd": str(tmp_path)}

    report = reported(tool=tool, workload={"x": "touch pwned", "xs": ["a", "b"]})

    assert (report["code"], report["retryable"]) == ("INPUT_INVALID", False)
    assert said in report["message"]
    assert "--trust-templates" in report["message"]
    # before anything has run
    assert list(tmp_path.iterdir()) == []


def out(command: str, **known: Any) -> str:
    found: str = result(tool={"kind": "shell", "cmds": command}, **known)["stdout"]
    return found


def test_a_value_of_the_file_may_be_the_program_itself() -> None:
    workload = {"command": "printf '<%s>'", "words": "a b", "list": ["c", "d"]}

    assert out("{{ workload.command }} {{ words }}", workload=workload, defaults=workload) == "<a><b>"
    assert out("{{ command }} {{ list | join(' ') }}", workload=workload, defaults=workload) == "<c><d>"
    assert out("{{ c | replace('%s', '%s.') }} x", workload={}, input={"c": "printf '<%s>'"}) == "<x.>"
    both = {"c": "{{ workload.command }} {{ workload.words }}"}
    assert out("{{ c }}", workload=workload, defaults=workload, input=both) == "<a><b>"


@pytest.mark.parametrize(
    "known",
    [
        # overridden by the run
        {"workload": {"c": "echo 2"}, "defaults": {"c": "echo 1"}},
        # nothing is known of the file
        {"workload": {"c": "echo 1"}},
        # set by a step
        {"workload": {"c": "echo 1"}, "defaults": {"c": "echo 1"}, "seen": {"a": seen(ctx__c=[1, "echo 1", "a", 0])}},
        # what a step gave, also by way of the input
        {"workload": {}, "seen": {"c": seen("echo 1")}},
        {"workload": {}, "seen": {"a": seen("echo 1")}, "input": {"c": "{{ a }}"}},
        {"workload": {}, "seen": {"a": seen("1")}, "input": {"c": "echo {{ a }} 'x'"}},
        # what a step before has handed over
        {"workload": {}, "seen": {"a": {**seen(), "ctx": {"args.me": [1, {"c": "echo 1"}, "a", 0]}}}, "name": "me"},
        # the item of a loop
        {"workload": {}, "item": {"name": "c", "value": "echo 1", "index": 0}},
        {"workload": {}, "item": {"name": "c", "value": "echo 2", "of": "all"}, "defaults": {"all": ["echo 1"]}},
    ],
)
def test_a_value_that_is_not_the_files_is_never_the_program(known: dict[str, Any]) -> None:
    report = reported(tool={"kind": "shell", "cmds": "{{ c }}"}, **known)

    assert report["code"] == "INPUT_INVALID"
    assert "names a command" in report["message"]


@pytest.mark.parametrize(
    "item",
    [
        {"name": "c", "value": "echo 1", "is_written": True},
        {"name": "c", "value": "echo 1", "of": "all"},
    ],
)
def test_an_item_that_the_file_has_written_may_be_the_program(item: dict[str, Any]) -> None:
    assert out("{{ c }}", workload={"all": ["echo 1"]}, defaults={"all": ["echo 1"]}, item=item) == "1\n"


@pytest.mark.parametrize(
    "template",
    [
        "{{ workload.file[:0] }}{{ x }}",
        "{{ x if workload.file else workload.file }}",
        "{% set y = x %}{{ y }}",
        "{% set y %}{{ x }}{% endset %}{{ y }}",
        "{% set ns = namespace(y='') %}{% set ns.y = x %}{{ ns.y }}",
        "{% for y in [x] %}{{ y }}{% endfor %}",
        "{% for y in [x, x] %}{% if loop.first %}{{ loop.nextitem }}{% endif %}{% endfor %}",
        "{% with y = x %}{{ y }}{% endwith %}",
        "{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}",
        "{% macro m(y=x) %}{{ y }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ x }}{% endmacro %}{{ m() }}",
        "{{ [workload.file, x] | last }}",
        "{{ {'k': x}['k'] }}",
        "{{ workload[key] }}",
        "{{ '%s' | format(x) }}",
        "{{ '{}'.format(x) }}",
        "{{ workload.file ~ x }}",
        "{{ cycler(x).next() }}",
        "{{ workload | tojson }}",
        "{{ (workload.values() | list)[-1] }}",
        "{{ x[0] }}{{ x[1:] }}",
    ],
)
def test_no_way_through_a_template_makes_a_value_the_files_own(template: str) -> None:
    workload = {"file": "echo ", "x": "touch pwned", "key": "x"}

    report = reported(
        tool={"kind": "shell", "cmds": template}, workload=workload, defaults={"file": "echo ", "key": "x"}
    )

    assert report["code"] == "INPUT_INVALID"


def test_numbers_and_nothing_are_put_in_as_they_are() -> None:
    workload = {"n": 4, "text": "5", "no": False, "none": None, "empty": "", "many": [1, 2.5, -3]}

    assert out(
        "echo $(( {{ n }} * {{ text }} - {{ many[0] }} )) {{ no }} {{ none }}{{ empty }}", workload=workload
    ) == ("19 False None\n")
    assert out("for i in {{ many | join(' ') }}; do printf '<%s>' $i; done", workload=workload) == "<1><2.5><-3>"


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("printf '[%s]' --user {{ empty }} --admin no", "[--user][][--admin][no]"),
        ("printf '[%s]' a{{ empty }}b '{{ empty }}' \"{{ empty }}\" 'c{{ empty }}'", "[ab][][][c]"),
        ("{{ empty }} printf '[%s]' {% for y in many %}{{ y }} {% endfor %}", "[a][][b]"),
        ("cat <<EOF\n<{{ empty }}>{{ n }}>\nEOF", "<>2>\n"),
        ("sh -c 'echo {{ empty }}.'", ".\n"),
        # the file itself says that there may be no word
        ("printf '[%s]' {{ '-v' if empty else '' }} {{ workload.a | default('') }} {{ '' }} a", "[a]"),
        ("for y in {{ empty }} {{ nobody | join(' ') }} a; do printf '[%s]' $y; done", "[a]"),
        ("{ echo {{ n }}>&2; echo {{ n }}\\\n>&2; } 2>&1", "2\n2\n"),
        ("echo $(( {{ n }}>1 )) '{{ n }}>f' {{ n }} 1{{ n }}", "1 2>f 2 12\n"),
    ],
)
def test_an_empty_value_is_a_word_and_a_number_is_no_descriptor(command: str, printed: str) -> None:
    workload = {"empty": "", "n": 2, "nobody": [], "many": ["a", "", "b"]}

    assert out(command, workload=workload) == printed


def test_trusted_templates_are_text_of_the_command_as_in_noetl() -> None:
    workload = {"x": "a; printf b"}

    assert out("printf {{ x }}", workload=workload, trust_templates=True) == "ab"
    assert out("printf '{{ x }}'", workload=workload, trust_templates=True) == "a; printf b"


def test_a_value_that_no_variable_can_hold_is_refused() -> None:
    for value in ("a\0b", "x" * 100_000):
        report = reported(tool={"kind": "shell", "cmds": "echo {{ x }}"}, workload={"x": value})

        assert report["code"] == "INPUT_INVALID"
        assert "write it to a file" in report["message"]


@pytest.mark.parametrize("env", [{"{{ x }}": "1"}, {"BASH_ENV": "{{ x }}"}, {"PS4": "a {{ x }}"}])
def test_a_value_names_no_variable_and_is_in_none_that_a_shell_evaluates(env: dict[str, str]) -> None:
    report = reported(tool={"kind": "shell", "cmds": "true", "env": env}, workload={"x": "$(touch pwned)"})

    assert report["code"] == "INPUT_INVALID"


def test_a_template_for_all_variables_is_the_files_own_or_refused() -> None:
    tool = {"kind": "shell", "cmds": "echo $A", "env": "{{ workload.e }}"}
    workload = {"e": {"A": "1"}}

    assert result(tool=tool, workload=workload, defaults=workload)["stdout"] == "1\n"
    assert result(tool=tool, workload=workload, trust_templates=True)["stdout"] == "1\n"
    assert reported(tool=tool, workload=workload)["code"] == "INPUT_INVALID"
    text = {"e": "A=1"}
    assert reported(tool=tool, workload=text, defaults=text)["code"] == "INPUT_INVALID"


def test_code_of_the_playbook_meets_plain_texts() -> None:
    code = "result = [type(given).__name__, type(given) is str, type(context['workload']['w']) is str]"

    found = result(
        tool={"kind": "python", "code": code, "input": {"given": "constant"}},
        workload={"w": "text"},
        defaults={"w": "text"},
    )

    assert found == ["str", True, True]


def test_a_script_is_not_named_by_a_value(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("result = 'pwned'")
    tool = {"kind": "python", "script": "{{ path }}"}
    path = str(tmp_path / "evil.py")

    assert reported(tool=tool, workload={"path": path})["code"] == "INPUT_INVALID"
    assert result(tool=tool, workload={"path": path}, defaults={"path": path}) == "pwned"


@pytest.mark.parametrize(
    "text",
    [
        "{% filter upper %}echo {{ x }}{% endfilter %}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}echo {{ x }}{% endcall %}",
        "{% block b %}echo {{ x }}{% endblock %}",
        "{% for y in [x] recursive %}echo {{ y }}{% endfor %}",
    ],
)
def test_a_statement_that_mixes_text_and_values_is_refused(text: str) -> None:
    with pytest.raises(StepError) as error:
        mark_values(text, {"x": "a"})

    assert error.value.code == "INPUT_INVALID"
