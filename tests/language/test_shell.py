"""Shell text: whose a `${…}` is, what it is rewritten to, and every refusal by its whole text and its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InputInvalid
from mulligan.language.expressions import Placeholder
from mulligan.language.shell.shell import ShellRefused, ShellText, environment_value, rewrite

BOUND = frozenset({"item", "index"})


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        # outside quotes the value is quoted, within them it is so already
        ("echo ${inputs.x}", 'echo "${_inputs_x}"'),
        ('echo "a ${inputs.x}"', 'echo "a ${_inputs_x}"'),
        ("x=${inputs.x} y=$(cat ${files.mesh})", 'x="${_inputs_x}" y=$(cat "${_files_mesh}")'),
        ("cat <<EOF\n${inputs.x} $(echo ${item})\nEOF", 'cat <<EOF\n${_inputs_x} $(echo "${_item}")\nEOF'),
        ("cat <<-'A' <<B\n\tit's\n\tA\n${item}\nB", "cat <<-'A' <<B\n\tit's\n\tA\n${_item}\nB"),
        # expressions, and strings and braces within them
        ("echo ${inputs.n + 1}", 'echo "${_inputs_n_1}"'),
        ("echo ${size(steps.a.output)}", 'echo "${_size_steps_a_output}"'),
        ('echo "${inputs.x == "a" ? "}" : "c"}"', 'echo "${_inputs_x_a_c}"'),
        ('echo ${steps["build-image"].output}', 'echo "${_steps_build_image_output}"'),
        ("echo ${steps[item].output} ${!inputs.ok}", 'echo "${_steps_item_output}" "${_inputs_ok}"'),
        ("echo ${secrets.TOKEN}", 'echo "${_secrets_TOKEN}"'),
        # a bare name is ours where it is bound
        ("echo ${item} ${index} ${item.name}", 'echo "${_item}" "${_index}" "${_item_name}"'),
        ("echo ${index + 1} ${index%2}", 'echo "${_index_1}" "${_index_2}"'),
        # the shell's operators are kept
        ("echo ${item%.json} ${#item}", 'echo "${_item%.json}" "${#_item}"'),
        ("echo ${item##*/} ${item//a/b}", 'echo "${_item##*/}" "${_item//a/b}"'),
        ('echo "${item:-x}" ${item^^}', 'echo "${_item:-x}" "${_item^^}"'),
        ("echo ${inputs.file%.json}", 'echo "${_inputs_file%.json}"'),
        ("echo ${item%${inputs.x}}", 'echo "${_item%"${_inputs_x}"}"'),
        # a comment is left alone, and so is what is escaped
        ("echo ${item} # ${inputs.x}", 'echo "${_item}" # ${inputs.x}'),
        ("echo \\${inputs.x} ${item}", 'echo \\${inputs.x} "${_item}"'),
        # where nothing is expanded, `$${` is `${`
        ("echo '$${inputs.x}' '$${HOME}'", "echo '${inputs.x}' '$${HOME}'"),
        ("cat <<'EOF'\n$${inputs.x}\nEOF", "cat <<'EOF'\n${inputs.x}\nEOF"),
        # arithmetic on what a command prints is safe
        ("echo $(( $(printf %d ${inputs.n}) + 1 ))", 'echo $(( $(printf %d "${_inputs_n}") + 1 ))'),
        ("[[ $(printf %d ${inputs.n}) -eq 1 ]]", '[[ $(printf %d "${_inputs_n}") -eq 1 ]]'),
        ("echo $(($(wc -l < ${item}) + 1))", 'echo $(($(wc -l < "${_item}") + 1))'),
        ("export $(grep ${item} .env)", 'export $(grep "${_item}" .env)'),
        ("[ ${inputs.n} -eq 1 ]", '[ "${_inputs_n}" -eq 1 ]'),
        ("bash -c 'echo \"$1\"' _ ${inputs.x}", 'bash -c \'echo "$1"\' _ "${_inputs_x}"'),
        ("bash run.sh <<EOF\n${inputs.x}\nEOF", "bash run.sh <<EOF\n${_inputs_x}\nEOF"),
        ("echo ${inputs.x} | bash run.sh", 'echo "${_inputs_x}" | bash run.sh'),
        ("echo ${inputs.x} | ssh host 'cat > x'", "echo \"${_inputs_x}\" | ssh host 'cat > x'"),
        ("echo ${inputs.x}\nbash", 'echo "${_inputs_x}"\nbash'),
        ("ls file[${inputs.x}]", 'ls file["${_inputs_x}"]'),
        ("ssh -p 22 ${inputs.host} uptime", 'ssh -p 22 "${_inputs_host}" uptime'),
        ('ssh host "rm $(printf %q ${item})"', 'ssh host "rm $(printf %q "${_item}")"'),
        ("read -p ${inputs.x} y", 'read -p "${_inputs_x}" y'),
        # what a command prints is a command only where one is named, and may be asked for by a value
        ("$(dirname ${item})/run -v", '$(dirname "${_item}")/run -v'),
        ('x=$(echo ${item}); "$(echo ${item})"', 'x=$(echo "${_item}"); "$(echo "${_item}")"'),
        ("for x in $(echo ${item}); do :; done", 'for x in $(echo "${_item}"); do :; done'),
        ("a=($(echo ${item}))", 'a=($(echo "${_item}"))'),
        ("[[ $(echo ${item}) == a ]]", '[[ $(echo "${_item}") == a ]]'),
        ("case a in $(echo ${item})) :;; esac", 'case a in $(echo "${_item}")) :;; esac'),
        ("cat < $(echo ${item})", 'cat < $(echo "${_item}")'),
    ],
)
def test_a_hole_becomes_a_variable_that_is_one_word(text: str, rewritten: str) -> None:
    assert rewrite(text, BOUND).text == rewritten


@pytest.mark.parametrize(
    "text",
    [
        "",
        "echo hello",
        "echo ${HOME} ${HOME:-/x} ${arr[@]} ${arr[$i]} ${#x} ${!x} ${x//a/b} ${x%.*} ${1} ${@:2} $$ ${?}",
        # our roots without a field are variables that the script made
        "inputs=1; echo ${inputs} ${output} ${files[0]} ${files[@]} ${#files[@]} ${error:-x} ${run/a/b} ${env-x}",
        "for file in *; do echo ${file%.txt} ${index}; done",
        # our words as text of the shell's own operators
        "echo ${x:-inputs.x} ${x/inputs/steps} ${x:+error.message}",
        # what looks like ours and is none may stand where nothing is expanded
        "echo '${inputs.x +}' '${inputs.x'",
        "awk '{print ${x.y}}' file; node -e 'console.log(`${a.b}`)'",
        "cat <<'EOF'\n${foo.bar} it's\nEOF",
        "# ${inputs.x\n# ${foo.bar}",
        'echo \\${inputs.x} "\\${inputs.x}"',
        "if [[ $x -eq 1 && $y =~ ^(a|b)$ ]]; then ((x++)); fi; case $x in (a|b) ;; *) ;; esac",
        "echo ${x:-${y:-$(echo ${z})}} `echo ${z}`",
        "echo ${",
        "echo '${",
        'echo "${HOME',
        "cat <<EOF\n${HOME}",
    ],
)
def test_text_that_is_the_shells_alone_comes_back_as_it_is(text: str) -> None:
    assert rewrite(text) == ShellText(text, {}, ())


def test_the_same_expression_is_one_variable_and_no_two_share_a_name() -> None:
    shell = rewrite('echo ${inputs.a_b} ${ inputs.a_b } ${inputs.a.b} ${inputs["a b"]}')

    assert shell.text == 'echo "${_inputs_a_b}" "${_inputs_a_b}" "${_inputs_a_b_2}" "${_inputs_a_b_3}"'
    assert shell.bindings == {
        "_inputs_a_b": "inputs.a_b",
        "_inputs_a_b_2": "inputs.a.b",
        "_inputs_a_b_3": 'inputs["a b"]',
    }


def test_a_name_that_the_script_uses_itself_is_not_taken() -> None:
    shell = rewrite("_inputs_x=1; echo $_inputs_x ${inputs.x}")

    assert shell.text == '_inputs_x=1; echo $_inputs_x "${_inputs_x_2}"'


def test_a_name_without_letters_does_not_become_a_parameter_of_the_shells() -> None:
    assert rewrite("echo ${_}", frozenset({"_"})).text == 'echo "${_value}"'


def test_the_holes_are_known_with_their_places() -> None:
    shell = rewrite("echo ${inputs.x} ${item%.c}", BOUND)

    assert shell.placeholders == (Placeholder("inputs.x", 5, 11), Placeholder("item", 17, 10))


IN_QUOTES = "is in single quotes, where the shell does not expand it"
USE_DOUBLE = "use double quotes; for the characters themselves write '$${'"
IN_ARITHMETIC = "is in arithmetic, where the shell would evaluate the value again"
COMPUTE = "compute it in the expression, as in ${inputs.n + 1}, or write $(printf %d …) around it"
IS_SUBSCRIPT = "is the subscript of an array, where the shell would evaluate the value again"
PRINTF = "write $(printf %d …) around it"
IS_COMPARED = "is compared as a number in [[ … ]], where the shell would evaluate the value again"
IS_NAME = "is the name of a variable, which the shell would evaluate again if it has a subscript"
WRITE_NAME = "write the name of the variable itself"
IS_TYPED = "is assigned with an attribute that makes the shell evaluate the value again"
UNTYPED = "declare the variable without it"
IS_FED = "is part of the script that 'bash' reads, which evaluates the value again"
FEED = "pass the value as an argument, as in sh -s VALUE <<'EOF', and read it there as \"$1\""
IS_FAR = "is part of a command that 'ssh' passes to a shell, which evaluates the value again"
QUOTE_FAR = "quote it for that shell: $(printf %q VALUE)"
IS_RUN = "is printed in the place of a command, so the shell would run it"
QUOTE_COMMAND = "put the $(…) in double quotes, or write the command itself"
THE_COMMAND = "write the command itself"


IN_A_FILE = "write the command in a file, which takes the value from a variable"
IS_SPLIT = "is split into the words of a command by 'env -S'"
AS_WORDS = "write the command itself, and the value as its argument"
IS_ENV = "is assigned to 'ENV', which names the file that sh runs when it starts"
OTHER_VARIABLE = "use another variable, or write the name of the file itself"


def joined_by(name: str) -> str:
    return f"is part of the command that '{name}' gives to a shell, which evaluates the value again"


def evaluated_by(name: str) -> str:
    return f"is an argument of '{name}', which evaluates the value again"


def script_of(shell: str) -> str:
    return f"is part of the script of '{shell}', which evaluates the value again"


def as_argument(shell: str) -> str:
    return f"pass it as an argument: {shell} -c '… \"$1\" …' _ VALUE"


# `@` is the hole.
DANGERS = [
    ("echo '@'", IN_QUOTES, USE_DOUBLE),
    ("echo a'b@'c", IN_QUOTES, USE_DOUBLE),
    ("echo $'@'", IN_QUOTES, USE_DOUBLE),
    ("awk '{print @}'", IN_QUOTES, USE_DOUBLE),
    (
        "cat <<'EOF'\n@\nEOF",
        "is in a here-document with a quoted delimiter, where the shell does not expand it",
        "write the delimiter without quotes; for the characters themselves write '$${'",
    ),
    (
        "cat <<\\EOF\n@\nEOF",
        "is in a here-document with a quoted delimiter, where the shell does not expand it",
        "write the delimiter without quotes; for the characters themselves write '$${'",
    ),
    ("cat <<@", "is the delimiter of a here-document, which the shell does not expand", "write a word there"),
    ("echo `echo @`", "is in backticks, which change the quotes within", "write $(…) in place of the backticks"),
    ("echo $((@ + 1))", IN_ARITHMETIC, COMPUTE),
    ('echo "$((1 + (@)))"', IN_ARITHMETIC, COMPUTE),
    ("echo $[@]", IN_ARITHMETIC, COMPUTE),
    ("((@ > 1))", IN_ARITHMETIC, COMPUTE),
    ("for ((i = 0; i < @; i++)); do :; done", IN_ARITHMETIC, COMPUTE),
    ("let n=@", IN_ARITHMETIC, COMPUTE),
    ("echo ${x:@:1}", IN_ARITHMETIC, COMPUTE),
    ("$((echo @) | cat)", IN_ARITHMETIC, COMPUTE),
    ("[[ @ -eq 1 ]]", IS_COMPARED, "compare with [ … ]"),
    ("[[ a == b && 1 -lt @ ]]", IS_COMPARED, "compare with [ … ]"),
    ('if [[ "@" -ge 1 ]]; then :; fi', IS_COMPARED, "compare with [ … ]"),
    # what a command prints there is evaluated as well
    ("echo $(( $(echo @) + 1 ))", IN_ARITHMETIC, COMPUTE),
    ("echo $(( $(cat <<< @) + 1 ))", IN_ARITHMETIC, COMPUTE),
    ("echo $(($(cat <<EOF\n@\nEOF\n)))", IN_ARITHMETIC, COMPUTE),
    ("[[ $(basename @) -eq 1 ]]", IS_COMPARED, "compare with [ … ]"),
    ("a[$(echo @)]=1", IS_SUBSCRIPT, PRINTF),
    ("declare -i n=$(echo @)", IS_TYPED, UNTYPED),
    ("[[ -v @ ]]", IS_NAME, WRITE_NAME),
    ("[ -v @ ]", IS_NAME, WRITE_NAME),
    ("arr[@]=1", IS_SUBSCRIPT, PRINTF),
    ("arr[b[0]+@]=1", IS_SUBSCRIPT, PRINTF),
    ("a=([@]=1)", IS_SUBSCRIPT, PRINTF),
    ("echo ${arr[@]}", IS_SUBSCRIPT, PRINTF),
    ("declare a[@]=1", IS_SUBSCRIPT, PRINTF),
    ("unset @", IS_NAME, WRITE_NAME),
    ("read @", IS_NAME, WRITE_NAME),
    ("printf -v @ x", IS_NAME, WRITE_NAME),
    ("export @=1", IS_NAME, WRITE_NAME),
    ("declare -i n=@", IS_TYPED, UNTYPED),
    ("declare -ia n=(@)", IS_TYPED, UNTYPED),
    ("declare -i n\nn=@", IS_TYPED, UNTYPED),
    ("local -n ref=@", IS_TYPED, UNTYPED),
    ("PS4=@", "goes into a prompt, which the shell evaluates again", "put it in another variable"),
    ("PS4+=@", "goes into a prompt, which the shell evaluates again", "put it in another variable"),
    ("PS4=$(echo @) make", "goes into a prompt, which the shell evaluates again", "put it in another variable"),
    *(
        (text, "names the file that bash runs when it starts", "write the name of the file itself")
        for text in (
            "BASH_ENV=@ make",
            'export BASH_ENV="@"',
            'env "BASH_ENV=@" make',
            "BASH_ENV=conf/@ make",
            "BASH_ENV=$(cat @) make",
        )
    ),
    ("eval @", evaluated_by("eval"), THE_COMMAND),
    ('eval "echo $(cat @)"', evaluated_by("eval"), THE_COMMAND),
    ("e\"\"v'a'``\\l @", evaluated_by("eval"), THE_COMMAND),
    ("f() { eval @; }", evaluated_by("eval"), THE_COMMAND),
    ("if true; then A=1 command -p eval @; fi", evaluated_by("eval"), THE_COMMAND),
    ("case a in a) eval @;; esac", evaluated_by("eval"), THE_COMMAND),
    # A process substitution runs commands wherever bash expands one.
    ("[[ a = <(eval @) ]]", evaluated_by("eval"), THE_COMMAND),
    ("[[ ( a = b ) || -e >(eval @) ]]", evaluated_by("eval"), THE_COMMAND),
    ("echo ${y:-<(eval @)}", evaluated_by("eval"), THE_COMMAND),
    ('echo "${y#<(eval @)}"', evaluated_by("eval"), THE_COMMAND),
    ('trap "rm @" EXIT', evaluated_by("trap"), THE_COMMAND),
    ("alias a=@", evaluated_by("alias"), THE_COMMAND),
    ('bash -c "echo @"', script_of("bash -c"), as_argument("bash")),
    ('sudo /bin/sh -ec "echo @"', script_of("/bin/sh -ec"), as_argument("/bin/sh")),
    ("docker exec box sh -c @", script_of("sh -c"), as_argument("sh")),
    ("source <(echo @)", "is part of a script that 'source' reads and evaluates", "write the commands themselves"),
    ("bash <<EOF\necho @\nEOF", IS_FED, FEED),
    ("cat <<EOF | bash && echo\necho @\nEOF", IS_FED, FEED),
    ("bash <<< @", IS_FED, FEED),
    ("bash -e /dev/stdin a <<< @", IS_FED, FEED),
    ("eval eval . /dev/stdin <<< @", IS_FED.replace("bash", "."), FEED),
    (
        "eval source <(echo @)",
        "is part of a script that 'source' reads and evaluates",
        "write the commands themselves",
    ),
    ("<<< @ bash", IS_FED, FEED),
    ("cat <<< @ | bash", IS_FED, FEED),
    ('echo "rm @" | sudo bash\ntrue', IS_FED, FEED),
    # Whoever runs what prints it, and however it is called.
    ("command echo @ | bash", IS_FED, FEED),
    ("x=1 printf %s @ | bash", IS_FED, FEED),
    ("timeout -k 1 5 /bin/echo @ | bash", IS_FED, FEED),
    ('e""cho @ | bash', IS_FED, FEED),
    ("x=$(echo @ | bash)", IS_FED, FEED),
    ("x=$(\ntrue\necho @ | bash\n)", IS_FED, FEED),
    ("(echo @ | bash) 2>&1", IS_FED, FEED),
    ("cat <(echo @ | bash)", IS_FED, FEED),
    ("echo @ $(\ntrue\n) | bash", IS_FED, FEED),
    # The words that it prints would be a command.
    ("$(echo @)", IS_RUN, QUOTE_COMMAND),
    ("if x=1 command $(printf %s @ | cat) -v; then true; fi", IS_RUN, QUOTE_COMMAND),
    ("$(cat <<EOF\n@\nEOF\n)", IS_RUN, QUOTE_COMMAND),
    ("${y:-$(cat <<< @)}", IS_RUN, QUOTE_COMMAND),
    ("$(bash -c @)", script_of("bash -c"), as_argument("bash")),
    ("$(a[@]=1)", IS_SUBSCRIPT, PRINTF),
    (". /dev/stdin <<EOF\n@\nEOF", IS_FED.replace("bash", "."), FEED),
    ("ssh -p 22 host <<EOF\n@\nEOF", IS_FED.replace("bash", "ssh"), FEED),
    ("ssh -p 22 host rm @", IS_FAR, QUOTE_FAR),
    ('ssh host "rm @"', IS_FAR, QUOTE_FAR),
    # Programs that give an argument to a shell, however its option is written.
    ("flock F -c @", script_of("flock -c"), as_argument("sh")),
    ("flock -w 5 F --command @", script_of("flock --command"), as_argument("sh")),
    ("flock F --command=@", script_of("flock --command="), as_argument("sh")),
    ("script --command=@", script_of("script --command="), as_argument("sh")),
    ('su bob "--command=ls @"', script_of("su --command="), as_argument("sh")),
    ("su bob -c@", script_of("su -c"), as_argument("sh")),
    ("$SHELL -c @", script_of("$SHELL -c"), as_argument("$SHELL")),
    ('"$BASH" -c @', script_of('"$BASH" -c'), as_argument('"$BASH"')),
    ("${SHELL:-/bin/sh} -c @", script_of("${SHELL:-/bin/sh} -c"), as_argument("${SHELL:-/bin/sh}")),
    ("watch @", joined_by("watch"), IN_A_FILE),
    ('sudo watch -n 5 "ls @"', joined_by("watch"), IN_A_FILE),
    ("watch timeout 5 ls @", joined_by("watch"), IN_A_FILE),
    ("parallel rm @/{} ::: a b", joined_by("parallel"), IN_A_FILE),
    ("parallel ::: @", joined_by("parallel"), IN_A_FILE),
    ("env -S @", IS_SPLIT, AS_WORDS),
    ('env -i -S"ls @"', IS_SPLIT, AS_WORDS),
    ("env --split-string=@", IS_SPLIT, AS_WORDS),
    # What a shell reads from any descriptor, and what it reads by way of xargs.
    ("bash 0<<<@", IS_FED, FEED),
    ("bash /dev/fd/3 3<<<@", IS_FED, FEED),
    ("bash /proc/self/fd/3 3<<EOF\n@\nEOF", IS_FED, FEED),
    ("echo @ | $SHELL", IS_FED.replace("bash", "$SHELL"), FEED),
    ("echo @ | xargs -0 bash -c", IS_FED, FEED),
    ("echo @ | xargs -I{} bash -c '{}'", IS_FED, FEED),
    ('echo @ | xargs -I % bash -c "rm %"', IS_FED, FEED),
    ("echo @ | parallel", IS_FED.replace("bash", "parallel"), FEED),
    ("ENV=@ sh -i", IS_ENV, OTHER_VARIABLE),
    ('export ENV="@"\n/bin/dash -i', IS_ENV, OTHER_VARIABLE),
    ("ENV=$(echo @) sh -i", IS_ENV, OTHER_VARIABLE),
    ("echo $(case a\nin a) echo '@';; esac)", IN_QUOTES, USE_DOUBLE),
    (
        "cat <<EOF\n${x/@/b}\nEOF",
        "is part of a pattern within a here-document, where it cannot be quoted",
        "put the result in a variable first",
    ),
]


@pytest.mark.parametrize(
    "text",
    [
        "flock F tar -c @",
        "flock -w @ F ls",
        "watch -n @ date",
        "watch -x ls @",
        "timeout 5 @",
        "nice -n 5 @",
        "env @ -S",
        "env A=@ ls",
        "su @ -c ls",
        "xargs @",
        "find . -exec @ {} +",
        ". @",
        "parallel echo ::: @",
        "echo @ | xargs bash -c 'ls \"$1\"' _",
        "echo @ | xargs -I{} bash -c 'ls \"$1\"' _ {}",
        "cat 0<<<@",
        "bash run.sh 3<<<@",
        "ENV=@ make deploy.sh",
    ],
)
def test_a_program_that_runs_another_may_be_given_a_value(text: str) -> None:
    assert rewrite(text.replace("@", "${item}"), BOUND).text == text.replace("@", '"${_item}"')


@pytest.mark.parametrize(("text", "reason", "hint"), DANGERS)
def test_a_place_that_is_not_safe_is_refused_with_what_to_do(text: str, reason: str, hint: str) -> None:
    hole = "${inputs.n}"

    with pytest.raises(ShellRefused) as refused:
        rewrite(text.replace("@", hole, 1))

    error = refused.value
    assert (error.message, error.hint) == (f"'{hole}' {reason}", hint)
    assert (error.offset, error.length) == (text.index("@"), len(hole))


REFUSALS = [
    # No shell has calls there, so a function that is not there can only be a slip of ours.
    (
        "echo ${len(inputs.x)}",
        "'len(inputs.x)' is not an expression: there is no function 'len'",
        7,
        3,
        "did you mean 'size'?",
    ),
    # What was meant by an unknown name depends on the place, which the text alone does not know.
    ("echo ${inptus.x}", "'${inptus.x}' reads 'inptus', which is not known here", 7, 6, ""),
    ("echo ${itm.name}", "'${itm.name}' reads 'itm', which is not known here", 7, 3, ""),
    ("echo ${inputs.x + itm}", "'${inputs.x + itm}' reads 'itm', which is not known here", 18, 3, ""),
    ("echo ${item-x}", "'${item-x}' reads 'x', which is not known here", 12, 1, ""),
    # Python's word before an expression of ours: no shell reads that.
    (
        "echo ${not inputs.x}",
        "'not inputs.x' is not an expression: 'not' is not expected here",
        7,
        3,
        "did you mean '!'?",
    ),
    (
        "echo ${steps.build-image.output}",
        "'steps.build-image' subtracts 'image' from 'steps.build'",
        7,
        17,
        'write steps["build-image"]',
    ),
    ("echo ${inputs.x", "'${' is not closed by '}'", 5, 2, ""),
    ("echo ${inputs.x +}", "'inputs.x +' is not an expression: it ends too early", 17, 1, ""),
    (
        "echo ${secrets.A + inputs.b}",
        "'secrets.A + inputs.b' reads 'secrets.A' and 'inputs': a secret must be read on its own",
        7,
        20,
        "only workers know secrets: use two '${…}', one for each",
    ),
    (
        "echo ${item@P}",
        "'${item@P}' is expanded with '@P', which evaluates the value again",
        5,
        9,
        "leave out the '@P'",
    ),
    (
        "echo ${item:-'x'}",
        "'${item:-'x'}' has single quotes after its operator; within double quotes they are plain characters",
        5,
        12,
        "write the text without them",
    ),
    ("$(" * 70 + "${item}", "the shell text is nested more than 64 deep", 130, 1, ""),
]


@pytest.mark.parametrize(("text", "message", "offset", "length", "hint"), REFUSALS)
def test_a_hole_that_is_neither_ours_nor_the_shells_is_refused_at_its_place(
    text: str, message: str, offset: int, length: int, hint: str
) -> None:
    with pytest.raises(ShellRefused) as refused:
        rewrite(text, BOUND)

    error = refused.value
    assert (error.message, error.offset, error.length, error.hint) == (message, offset, length, hint)


@given(st.text(alphabet="a $'\"`\\(){}[]<>;&|#\n=-@%:/!inputs.x", max_size=80))
def test_any_text_is_rewritten_or_refused_within_its_bounds(text: str) -> None:
    try:
        rewrite(text, BOUND)
    except ShellRefused as refused:
        assert 0 <= refused.offset <= len(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a b", "a b"), ("", ""), (None, ""), (True, "true"), (3, "3"), (1.5, "1.5"), ({"a": [1]}, '{"a":[1]}')],
)
def test_a_value_goes_into_its_variable_as_it_goes_into_text(value: Any, text: str) -> None:
    assert environment_value("inputs.x", value) == text


def test_a_value_of_96_kib_still_fits() -> None:
    assert environment_value("inputs.x", "é" * (48 * 1024)) == "é" * (48 * 1024)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "é" * (48 * 1024) + "x",
            "the value of 'inputs.x' has 98305 bytes, and an environment variable holds at most 98304",
        ),
        ("a\0b", "the value of 'inputs.x' has a NUL, which no environment variable can hold"),
    ],
)
def test_a_value_that_no_variable_can_hold_is_invalid_and_points_to_other_ways(value: str, message: str) -> None:
    with pytest.raises(InputInvalid) as invalid:
        environment_value("inputs.x", value)

    assert invalid.value.message == message
    assert invalid.value.hint == "pass it with 'stdin:', or write it to a file and pass the name of the file"
    assert invalid.value.data["name"] == "inputs.x"
