"""Prodigy's variables in shell text: values stay values wherever that can be had."""

from __future__ import annotations

import pytest

from mulligan.formats.prodigy.actions import SCRIPT_VARIABLE, shell_text
from mulligan.formats.prodigy.context import ITEM_NAMES, ItemSlots, StepSlots
from mulligan.formats.prodigy.variables import fill_in

from .reading import context

ITEM = context(
    ItemSlots(),
    {"item": "item", "index": "index", "v": "outputs[0]", "n": "3", "flag": "true"}
    | {"ok": "(outputs[1].trim() in ['true'])", "odd": r"""(run.id == null ? '' : 'it\'s "')"""},
    names=ITEM_NAMES,
    env={"REGION": "'eu'"},
)
STEP = context(StepSlots(), {"v": 'steps["a-b"].output'}, env={"REGION": "'eu'"})

TEXTS = [
    # outside quotes and within double quotes it stands as it is
    ("cat ${item.path}", "cat ${item.path}"),
    ('echo "${item.path}"', 'echo "${item.path}"'),
    ("echo $v ${v}", "echo ${outputs[0]} ${outputs[0]}"),
    # single quotes are closed around it
    ("echo '${item}'", 'echo "${item}"'),
    ("echo 'a ${item} b'", "echo 'a '\"${item}\"' b'"),
    ("echo 'a ${item}'", "echo 'a '\"${item}\""),
    ('curl -d \'{"id": "${item.id}"}\'', 'curl -d \'{"id": "\'"${item.id}"\'"}\''),
    # an apostrophe in double quotes, in a comment and in a here-document is no quote
    ('echo "it\'s ${item}"', 'echo "it\'s ${item}"'),
    ("# don't\necho '${item}'", '# don\'t\necho "${item}"'),
    ("cat <<E\nit's ${item}\nE", "cat <<E\nit's ${item}\nE"),
    # fields in lists, and with a hyphen
    ("echo ${item.a[0].b-c}", 'echo ${item.a[0]["b-c"]}'),
    # `in` is a word of expressions.
    ("echo ${item.in}", 'echo ${item["in"]}'),
    ("echo ${item.tags.0}", "echo ${item.tags[0]}"),
    # defaults: the shell's own where it can have them, else an expression
    ("echo ${v:-none}", "echo ${outputs[0]:-none}"),
    (
        "echo ${item.a:-it's}",
        "echo ${type(item) == map && has(item.a) && item.a != null && item.a != '' ? item.a : 'it\\'s'}",
    ),
    (
        "echo ${item.tags[0]:-none}",
        "echo ${type(item) == map && has(item.tags) && type(item.tags) == list && size(item.tags) > 0 && "
        "item.tags[0] != null && item.tags[0] != '' ? item.tags[0] : 'none'}",
    ),
    # within single quotes an expression has none
    (
        "echo 'a ${item.a:-none}'",
        """echo 'a '"${type(item) == map && has(item.a) && item.a != null && item.a != "" ? item.a : "none"}\"""",
    ),
    ("echo '${ok}' ${ok}", """echo "${(outputs[1].trim() in ["true"])}" ${(outputs[1].trim() in ['true'])}"""),
    ("echo '${odd}'", r'''echo "${(run.id == null ? "" : "it\u0027s \u0022")}"'''),
    # what is always the same is written out: `${3}` would be the shell's
    ("echo ${n} ${flag}", "echo 3 true"),
    # what nobody knows is the shell's
    ("echo ${HOME} $USER ${x%y} ${x:-z}", "echo ${HOME} $USER ${x%y} ${x:-z}"),
    ("echo ${env.HOME} ${env.REGION:-eu}", "echo ${HOME} ${REGION:-eu}"),
    # the workflow's environment is known within single quotes too
    ("echo 'in ${REGION}!' '$REGION' '$USER'", """echo 'in '"${REGION}"'!' ''"$REGION"'' '$USER'"""),
    ("echo '${env.REGION:-eu}'", """echo ''"${REGION:-eu}"''"""),
    ("""sh -c 'echo $REGION'; echo "'$REGION'" """, """sh -c 'echo $REGION'; echo "'$REGION'" """),
    ("REGION=a; echo '$REGION'", "REGION=a; echo '$REGION'"),
    # what the script sets itself is its own
    ("for v in a b; do echo $v ${v}; done", "for v in a b; do echo $v ${v}; done"),
    ("v=1; echo ${v}", "v=1; echo ${v}"),
    ("read -r v rest; echo ${v}", "read -r v rest; echo ${v}"),
    ("if true; then v=1\n  echo ${v}; fi", "if true; then v=1\n  echo ${v}; fi"),
    ("export a=x v='1 2'; echo ${v}", "export a=x v='1 2'; echo ${v}"),
    ("while IFS= read -r v; do echo ${v}; done", "while IFS= read -r v; do echo ${v}; done"),
    # what only looks as if it did has the value of the step that captured it
    ("echo v=${v}", "echo v=${outputs[0]}"),
    ('echo "a; v=${v}"', 'echo "a; v=${outputs[0]}"'),
    ("make -s v=${v} all", "make -s v=${outputs[0]} all"),
    ("v=${v} make", "v=${outputs[0]} make"),
    ('v="${v}"; echo $v', 'v="${outputs[0]}"; echo ${outputs[0]}'),
    ("v=$(echo ${v} | tr a b)", "v=$(echo ${outputs[0]} | tr a b)"),
    ("echo waiting for v ${v}, read v", "echo waiting for v ${outputs[0]}, read v"),
    # even where it is a name of ours
    ("output=1; echo ${output} ${output}s", 'output=1; echo $output $output""s'),
    # awk has its own $1, and so has a function
    ("awk '{print $1}' f", "awk '{print $1}' f"),
    ("f() { echo $1; }; f a", "f() { echo $1; }; f a"),
    ("echo $ARG", "echo ${inputs.args}"),
    ("echo ${workflow.name} '${workflow.id}'", 'echo ${run.workflow} "${run.id}"'),
]


@pytest.mark.parametrize(("theirs", "ours"), TEXTS)
def test_a_value_is_one_word_of_the_script(theirs: str, ours: str) -> None:
    assert shell_text(theirs, ITEM) == (ours, {})


SCRIPTS = [
    # a value in the place of a command is meant as script
    ("${item.command}", "${item.command}"),
    ("cd x && ${item.command} --fast", "cd x && ${item.command} --fast"),
    # where there is no safe place for a value
    ("cat <<'E'\n${item.x}\nE", "cat <<'E'\n${item.x}\nE"),
    ("echo $(( ${item.n} + 1 ))", "echo $(( ${item.n} + 1 ))"),
    ("bash -c 'ls ${item.x}'", "bash -c 'ls ${item.x}'"),
    # what is the shell's stays the shell's
    ("${item.command} ${HOME}", "${item.command} $${HOME}"),
]


@pytest.mark.parametrize(("theirs", "put_together"), SCRIPTS)
def test_where_a_value_is_read_as_script_the_script_is_put_together_first(theirs: str, put_together: str) -> None:
    found = shell_text(theirs, ITEM)

    assert found == (f'eval "${SCRIPT_VARIABLE}"', {SCRIPT_VARIABLE: put_together})


def test_a_program_below_a_folder_is_no_script() -> None:
    assert shell_text("${item.venv}/bin/python x.py", ITEM).text == "${item.venv}/bin/python x.py"


def test_the_arguments_of_the_workflow_are_those_of_the_script() -> None:
    found = shell_text("echo $1 ${2}", ITEM)

    assert found == ("set -- $PRODIGY_ARGS\necho $1 ${2}", {"PRODIGY_ARGS": "${inputs.args}"})


def test_a_step_with_a_hyphen_in_its_name_is_read_in_brackets() -> None:
    assert shell_text("echo '${v}' ${v:-x}", STEP).text == 'echo "${steps["a-b"].output}" ${steps["a-b"].output:-x}'


PROMPTS = [
    ("/fix ${v}", '/fix ${steps["a-b"].output}'),
    ("/fix $v now", '/fix ${steps["a-b"].output} now'),
    # what nobody knows stays as it is written, and nothing of ours is read in it
    (
        "/fix ${who} ${inputs.x} $5",
        "/fix $${who} $${inputs.x} ${(size(inputs.args.split(' ')) >= 5 ? inputs.args.split(' ')[4] : '')}",
    ),
    ("costs $${v}", 'costs $${steps["a-b"].output}'),
    ("${who:-nobody}", "nobody"),
    ("in $REGION and ${REGION} and ${env.REGION}", "in ${'eu'} and ${'eu'} and ${'eu'}"),
    ("${env.HOME}", "${env.HOME}"),
    ("${ARG_2}", "${(size(inputs.args.split(' ')) >= 2 ? inputs.args.split(' ')[1] : '')}"),
]


@pytest.mark.parametrize(("theirs", "ours"), PROMPTS)
def test_elsewhere_a_value_is_part_of_the_text(theirs: str, ours: str) -> None:
    assert fill_in(theirs, STEP) == ours
