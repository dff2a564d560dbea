"""Proof by bash itself: whatever a value is and wherever it stands, it arrives unchanged and nothing in it is run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.language.shell.shell import ShellRefused, ShellText, environment_value, rewrite

Expected = Callable[[str], list[str]]

BOUND = frozenset({"item", "index"})
# `show` prints each of its arguments and a NUL, so that no value can be mistaken for two.
PRELUDE = "show() { printf '%s\\0' \"$@\"; }\n"

HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "&& touch pwned",
    "| touch pwned",
    '"; touch pwned; "',
    "'; touch pwned; '",
    "a[$(touch pwned)]",
    "x=$(touch pwned)",
    "<(touch pwned)",
    "${x:=$(touch pwned)}",
    "$((a[$(touch pwned)]))",
    "> pwned",
    "\n touch pwned\n",
    "EOF\ntouch pwned\n",
    "*",
    "?",
    "[a-z]*",
    "~",
    "{a,b}",
    "-n",
    "-e \\n",
    "--",
    "!",
    "(",
    "]]",
    "a b",
    " leading and trailing ",
    "tab\there",
    "line\nbreak",
    "\\",
    "back\\slash\\n",
    "&",
    "%s %d",
    "'",
    '"',
    "$HOME",
    "${HOME}",
    "#not a comment",
    "日本 é 😀",
    "a.json",
    "dir/a.json",
    "",
]


def one(value: str) -> list[str]:
    return [value]


def printed(value: str) -> list[str]:
    """As `$(…)` gives it: without its last newlines."""
    return [value.rstrip("\n")]


def line(value: str) -> list[str]:
    """As a here-document or here-string gives it through `$(cat …)`."""
    return [value.rstrip("\n")]


# The hole in every place where a value may stand, and what `show` is to be given there.
PLACES: list[tuple[str, Expected]] = [
    # words and quotes
    ("show ${inputs.x}", one),
    ('show "${inputs.x}"', one),
    ("show a${inputs.x}b", lambda v: [f"a{v}b"]),
    ("show ${inputs.x}${inputs.x}", lambda v: [v + v]),
    ('show "a ${inputs.x} b"', lambda v: [f"a {v} b"]),
    ("show 'it'\"'\"'s'${inputs.x}", lambda v: ["it's" + v]),
    ("show $'a\\'b'${inputs.x}", lambda v: ["a'b" + v]),
    ("show --name=${inputs.x} ${inputs.x}", lambda v: [f"--name={v}", v]),
    ("show \\\n  ${inputs.x}", one),
    ('show \\${inputs.x} "\\${inputs.x}"', lambda v: ["${inputs.x}", "${inputs.x}"]),
    ("show {a,${inputs.x}}", lambda v: ["a", v]),
    # expressions and names
    ('show ${inputs.x + ""}', one),
    ('show "${inputs["x"]}"', one),
    ("show ${ inputs.x }", one),
    ('show ${true ? inputs.x : "}"}', one),
    ("show ${item} ${item.name}", lambda v: [v, v]),
    ("show ${HOME:+home} ${inputs.x}", lambda v: ["home", v]),
    # the shell's operators on a value of ours
    ("show ${item%.json}", lambda v: [v.removesuffix(".json")]),
    ('show "${item%.json}"', lambda v: [v.removesuffix(".json")]),
    ("show ${item##*/}", lambda v: [v.rpartition("/")[2]]),
    ("show ${item:-empty}", lambda v: [v or "empty"]),
    ('show ${item:-"em pty"}', lambda v: [v or "em pty"]),
    ("show ${#item}", lambda v: [str(len(v))]),
    ("show ${item//a/b}", lambda v: [v.replace("a", "b")]),
    ("show ${item//'a'/b}", lambda v: [v.replace("a", "b")]),
    ("show ${item%${inputs.x}}", lambda v: [""]),
    ("show ${item/#${inputs.x}/${inputs.x}}", one),
    # a value of ours in the shell's own parameters
    ("show ${nope:-${inputs.x}}", one),
    ('show "${nope:-${inputs.x}}"', one),
    ('show "${nope:-"${inputs.x}"}"', one),
    ('p=${inputs.x}; show "${p#${inputs.x}}" "${p/${inputs.x}/${inputs.x}}"', lambda v: ["", v]),
    ("p=${inputs.x}; show ${p#${inputs.x}}.", lambda v: ["."]),
    # assignments and declarations
    ('y=${inputs.x}; show "$y"', one),
    ('y="${inputs.x}" z=a${inputs.x}; show "$y" "$z"', lambda v: [v, "a" + v]),
    ('export Y=${inputs.x}; show "$Y"', one),
    ('f() { local y=${inputs.x}; show "$y"; }; f', one),
    ('declare y="${inputs.x}"; show "$y"', one),
    ('readonly r=${inputs.x}; show "$r"', one),
    ('a=(${inputs.x} b "${inputs.x}"); show "${a[@]}"', lambda v: [v, "b", v]),
    ('a=([1]=${inputs.x}); a+=(${inputs.x}); show "${a[@]}"', lambda v: [v, v]),
    # control flow
    ('for y in ${inputs.x} b; do show "$y"; done', lambda v: [v, "b"]),
    ("case ${inputs.x} in ${inputs.x}) show yes ;; *) show no ;; esac", lambda v: ["yes"]),
    ("case a in (b|c) ;; a) show ${inputs.x};; esac", one),
    ("if [ ${inputs.x} = ${inputs.x}a ]; then show same; else show other; fi", lambda v: ["other"]),
    ("if [[ ${inputs.x} == ${inputs.x} ]]; then show same; fi", lambda v: ["same"]),
    ("if [[ ${inputs.x}a =~ ^${inputs.x}a$ ]]; then show same; fi", lambda v: ["same"]),
    ("true && show ${inputs.x}", one),
    ("[[ -z ${inputs.x} ]] && show empty || show ${inputs.x}", lambda v: [v or "empty"]),
    ("while true; do show ${inputs.x}; break; done", one),
    ("{ show ${inputs.x}; }", one),
    ("( show ${inputs.x} )", one),
    ("! false && show ${inputs.x}", one),
    ('g() { show "$1"; }; g ${inputs.x}', one),
    ('set -- ${inputs.x}; show "$#" "$1"', lambda v: ["1", v]),
    # substitutions
    ('show "$(printf %s ${inputs.x})"', printed),
    ('show "$(printf %s "${inputs.x}")"', printed),
    ('show "$(printf %s "$(printf %s ${inputs.x})")"', printed),
    ('show "$(case a in a) printf %s ${inputs.x};; esac)"', printed),
    ('show "$(cat <(printf %s ${inputs.x}))"', printed),
    ('y=$(printf %s ${inputs.x}); show "$y"', printed),
    ("show $(( 0 * $(printf %d ${inputs.x} 2> /dev/null) )) ${inputs.x}", lambda v: ["0", v]),
    # redirections and here-documents
    ('show "$(cat <<< ${inputs.x})"', line),
    ('show "$(cat <<EOF\n${inputs.x}\nEOF\n)"', line),
    ('show "$(cat <<-EOF\n\t${inputs.x}\n\tEOF\n)"', line),
    ("cat <<EOF | tr '\\n' '\\0'\nit's \"a\" \\${inputs.x} $(printf %s x)\nEOF", lambda v: ['it\'s "a" ${inputs.x} x']),
    ("cat > out <<EOF; show ${inputs.x}\n${inputs.x}\nEOF", one),
    ("cat <<'EOF' | tr '\\n' '\\0'\n$${inputs.x} $HOME\nEOF\nshow ${inputs.x}", lambda v: ["${inputs.x} $HOME", v]),
    ("cat <<A > out; cat <<B > out; show ${inputs.x}\n${inputs.x}\nA\n'${inputs.x}\nB", one),
    ('d=out; printf %s ${inputs.x} > "$d"; show "$(cat out)"', printed),
    # what must not confuse the lexer
    ("show ${inputs.x} # it's a ${inputs.x} comment", one),
    ("# don't\nshow ${inputs.x}", one),
    ("show a#b ${inputs.x}", lambda v: ["a#b", v]),
    ("x=5; show ${x} ${#x} ${x:0:1} $((x+1)) ${inputs.x}", lambda v: ["5", "1", "5", "6", v]),
    ('bash -c \'printf "%s\\0" "$1"\' _ ${inputs.x}', one),
    ('a=(1 2); show "${a[@]}" "${a[1]}" ${inputs.x}', lambda v: ["1", "2", "2", v]),
    ('show "$(echo ")")" ${inputs.x}', lambda v: [")", v]),
]


def rewritten(text: str, value: str) -> tuple[ShellText, dict[str, str]]:
    shell = rewrite(text, BOUND)
    return shell, {name: environment_value(source, value) for name, source in shell.bindings.items()}


def run(text: str, value: str, folder: Path) -> list[str]:
    """What `show` printed, run by bash in an empty folder with nothing else in its environment."""
    shell, variables = rewritten(text, value)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8", **variables}
    done = subprocess.run(
        ["bash", "-c", PRELUDE + shell.text], cwd=folder, env=environment, capture_output=True, timeout=20, check=False
    )
    return done.stdout.decode().split("\0")[:-1]


def all_places(value: str) -> tuple[str, list[list[str]]]:
    """One script with every place in it, each in a subshell of its own, and what it prints."""
    script = "".join(f"(\n{text}\n)\nprintf 'next\\0'\n" for text, _ in PLACES)
    return script, [expected(value) for _, expected in PLACES]


def split_at_next(printed: list[str], expected: list[list[str]]) -> list[list[str]]:
    """`printed` cut where `expected` says that a place ends: a value may itself be the word `next`."""
    parts, position = [], 0
    for arguments in expected:
        parts.append(printed[position : position + len(arguments)])
        position += len(arguments) + 1
    return [*parts, printed[position:]]


def assert_every_place_is_safe(value: str, folder: Path) -> None:
    script, expected = all_places(value)

    result = split_at_next(run(script, value, folder), expected)

    for (text, _), got, wanted in zip(PLACES, result, expected, strict=False):
        assert got == wanted, text
    assert result[-1] == []
    assert set(os.listdir(folder)) <= {"out"}


# One of each kind by day: commands, quotes, the end of a document, a pattern, an option, blanks, nothing.
HOSTILE_BY_DAY = {"a[$(touch pwned)]", "`touch pwned`", "'; touch pwned; '", "EOF\ntouch pwned\n", "[a-z]*", "-e \\n"}
HOSTILE_BY_DAY |= {" leading and trailing ", "back\\slash\\n", "%s %d", '"', "${HOME}", "日本 é 😀", "dir/a.json", ""}


@pytest.mark.parametrize(
    "value", [pytest.param(one, marks=() if one in HOSTILE_BY_DAY else pytest.mark.nightly) for one in HOSTILE]
)
def test_a_hostile_value_arrives_unchanged_at_every_place_and_runs_nothing(value: str, tmp_path: Path) -> None:
    assert_every_place_is_safe(value, tmp_path)


# More of both: `make fuzz`, target `shell`.
@settings(max_examples=examples(4, 20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(HOSTILE) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        max_size=4,
    ).map("".join)
)
def test_any_value_arrives_unchanged_at_every_place(tmp_path: Path, value: str) -> None:
    assert_every_place_is_safe(value, tmp_path)


@pytest.mark.parametrize(("text", "expected"), PLACES)
def test_each_place_alone_takes_the_worst_value(text: str, expected: Expected, tmp_path: Path) -> None:
    value = "-n $(touch pwned) `touch pwned` '\" ; a[$(touch pwned)]\n*\\"

    result = run(text, value, tmp_path)

    assert result == expected(value)
    assert set(os.listdir(tmp_path)) <= {"out"}


HOLES = [
    "${inputs.x}",
    "${item}",
    "${item%x}",
    "${y:-${inputs.x}}",
    "${y:${inputs.x}:1}",
    "${y[${inputs.x}]}",
    "${y/${item}/x}",
]
CONTEXTS = ["{}", '"{}"', "'{}'", "$({})", "`{}`", "$(({}))", "[[ {} -eq 1 ]]", "a[{}]=1", "eval {}", "bash -c {}"]
CONTEXTS += ["echo {}", "x={}", "(\n{}\n)", "if true; then {}; fi", "let {}"]
CONTEXTS += ["cat <<EOF\n{}\nEOF\n", "cat <<'EOF'\n{}\nEOF\n", "case a in a) {};; esac", "f() {{ {}; }}; f", "<({})"]
CONTEXTS += [
    "declare -i n={}",
    "# {}\n",
    "unset {}",
    "printf -v {} x",
    "[ {} -eq 1 ]",
    "(({}))",
    "trap {} EXIT",
    "a=({})",
]
CONTEXTS += [
    "true && {}",
    "{} | cat",
    "! {}",
    "time {}",
    "{} # '",
    "printf %d {}",
    "cat <<< {}",
    "bash <<< {}",
    "x=1 {}",
]
CONTEXTS += [
    "declare -a a={}",
    "export {}=1",
    "[[ -v {} ]]",
    "read {} <<< 1",
    ". /dev/stdin <<< {}",
    "PS4={} bash -x",
    "$[{}]",
]
CONTEXTS += [
    "function f {{ {}; }}; f",
    "for x in {}; do :; done",
    "for (({};0;)); do :; done",
    "while {}; do break; done",
]


@settings(max_examples=examples(50, 75), deadline=None)
@given(st.sampled_from(HOLES), st.lists(st.sampled_from(CONTEXTS), max_size=4))
def test_in_contexts_nested_at_random_nothing_of_the_value_is_ever_run(text: str, contexts: list[str]) -> None:
    for context in contexts:
        text = context.format(text)
    try:
        rewrite(text, BOUND)
    except ShellRefused:
        return

    with tempfile.TemporaryDirectory() as folder:
        for value in ("$(touch pwned)", "a[$(touch pwned)]", "`touch pwned`", "; touch pwned"):
            run(text, value, Path(folder))
            assert "pwned" not in os.listdir(folder), text


@given(st.text(alphabet="a $'\"`\\(){}[]<>;&|#\n=-@%:/!EOF", max_size=60))
def test_text_without_holes_comes_back_as_it_is(text: str) -> None:
    assert rewrite(text, frozenset()) == ShellText(text, {}, ())
