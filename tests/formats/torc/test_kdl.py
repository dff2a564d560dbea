"""KDL: its texts and numbers, the tree that Torc's nodes become, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.errors import LanguageError
from mulligan.formats.kdl_text import KdlNode, read
from mulligan.formats.torc.kdl import parse
from mulligan.formats.writing import write_yaml
from mulligan.language.text.nodes import Refusal, Source, plain


def argument(text: str) -> Any:
    """The one argument of the node `n`."""
    (node,) = read(Source(f"n {text}", "w.kdl"))
    (found,) = node.arguments
    return found.value


def tree(text: str) -> Any:
    return plain(parse(Source(text, "w.kdl")))


def refusal(text: str) -> str:
    """The whole text of all that is refused."""
    try:
        parse(Source(text, "w.kdl"))
    except Refusal as refused:
        return refused.problem.render()
    except LanguageError as refused:
        return "\n".join(problem.render() for problem in refused.problems)
    raise AssertionError("it was accepted")


VALUES = [
    ('"text"', "text"),
    ("bare-word.1", "bare-word.1"),
    (r'"\n\t\\\"\s\u{e9}\/"', '\n\t\\" é/'),
    # what stands between a backslash and the next word is not there
    ('"one \\\n     two"', "one two"),
    # raw texts, of KDL 2 and of KDL 1
    (r'#"a "b" \n"#', r'a "b" \n'),
    (r'##"a "# b"##', r'a "# b'),
    (r'r"a\b"', r"a\b"),
    (r'r#"a"b"#', r'a"b'),
    # lines, without what the closing quotes are indented by
    ('"""\n  one\n    two\n\n  three\n  """', "one\n  two\n\nthree"),
    ('#"""\n  one\\n\n  """#', "one\\n"),
    ('"""\n  a\\tb \\\n    c\n  """', "a\tb c"),
    ('"""\r\n  one\r\n  two\r\n  """', "one\ntwo"),
    ('"""\n"""', ""),
    ('""', ""),
    # words that mean something, also as KDL 1 wrote them
    ("#true", True),
    ("#false", False),
    ("#null", None),
    ("true", True),
    ("false", False),
    ("null", None),
    # numbers
    ("10", 10),
    ("-1_000", -1000),
    ("007", 7),
    ("0xFF", 255),
    ("-0x1f", -31),
    ("0o17", 15),
    ("0b1_01", 5),
    ("1.5", 1.5),
    ("-2.5e-3", -0.0025),
    ("#inf", float("inf")),
    ("#-inf", float("-inf")),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_value_means_what_kdl_says(text: str, value: Any) -> None:
    found = argument(text)

    assert found == value
    assert type(found) is type(value)


def test_what_is_taken_out_is_not_there() -> None:
    (node,) = read(
        Source('/- gone { a }\nkept /-"a" "b" /-x=1 y=2 /-{ c } { d; /- e\n f } // end\n/* all /* of */ it */', "w.kdl")
    )

    assert _shown(node) == ("kept", ["b"], {"y": 2}, [("d", [], {}, []), ("f", [], {}, [])])


def test_a_line_may_go_on_in_the_next() -> None:
    nodes = read(Source('a "1" \\\n  "2" \\ // why\n  k = "v"\nb', "w.kdl"))

    assert [_shown(node) for node in nodes] == [("a", ["1", "2"], {"k": "v"}, []), ("b", [], {}, [])]


def _shown(node: KdlNode) -> tuple[str, list[Any], dict[str, Any], list[Any]]:
    properties = {key.text: value.value for key, value in node.properties}
    return node.name.text, [each.value for each in node.arguments], properties, [_shown(e) for e in node.children]


def test_every_value_knows_where_it_stands() -> None:
    (node,) = read(Source('job "größe"  {\n  command "make"\n}', "w.kdl"))

    (name,), (command,) = node.arguments, node.children[0].arguments
    assert (name.line, name.column, name.end_column) == (0, 4, 11)
    assert (command.line, command.column, command.end_column) == (1, 10, 16)


def test_nodes_become_the_tree_that_torcs_yaml_gives() -> None:
    found = tree("""
        name "sweep"
        use_pending_failed #true
        jobs_sort_method "none"
        parameters { lr "[0.1,0.2]"; n 3 }
        job "train_{lr}" {
            command "train"
            use_parameters "lr" "n"
            depends_on "prepare"
            resource_requirements "small"
        }
        job "prepare" command="prepare" cancel_on_blocking_job_failure=#false
        file "model" path="m.bin"
        user_data "config" { is_ephemeral #true; data #"{"a": [1, null]}"# }
        resource_requirements "small" { num_cpus 1; memory "1g" }
        failure_handler "flaky" {
            rule { exit_codes 10 11; recovery_script "./fix.sh"; max_retries 3 }
            rule { match_all_exit_codes #true }
        }
        slurm_scheduler "short" { account "a"; nodes 2 }
        slurm_defaults { qos "high" }
        resource_monitor { enabled #true }
        action { trigger_type "on_jobs_ready"; action_type "run_commands"; jobs "prepare"; command "a"; command "b" }
    """)

    assert found == {
        "name": "sweep",
        "use_pending_failed": True,
        "jobs_sort_method": "none",
        "parameters": {"lr": "[0.1,0.2]", "n": 3},
        "jobs": [
            {
                "name": "train_{lr}",
                "command": "train",
                "use_parameters": ["lr", "n"],
                "depends_on": ["prepare"],
                "resource_requirements": "small",
            },
            {"name": "prepare", "command": "prepare", "cancel_on_blocking_job_failure": False},
        ],
        "files": [{"name": "model", "path": "m.bin"}],
        "user_data": [{"name": "config", "is_ephemeral": True, "data": {"a": [1, None]}}],
        "resource_requirements": [{"name": "small", "num_cpus": 1, "memory": "1g"}],
        "failure_handlers": [
            {
                "name": "flaky",
                "rules": [
                    {"exit_codes": [10, 11], "recovery_script": "./fix.sh", "max_retries": 3},
                    {"match_all_exit_codes": True},
                ],
            }
        ],
        "slurm_schedulers": [{"name": "short", "account": "a", "nodes": 2}],
        "slurm_defaults": {"qos": "high"},
        "resource_monitor": {"enabled": True},
        "actions": [
            {
                "trigger_type": "on_jobs_ready",
                "action_type": "run_commands",
                "jobs": ["prepare"],
                "commands": ["a", "b"],
            }
        ],
    }


# Torc ignores the first of each pair, or all but one of its values.
FORMS = [
    ('depends_on_job "a" "b"', {"depends_on": ["a", "b"]}),
    ('depends_on "a"; depends_on_jobs "b"', {"depends_on": ["a", "b"]}),
    ('depends_on_regexes "a" "b"', {"depends_on_regexes": ["a", "b"]}),
    ('depends_on_regex "a"', {"depends_on_regexes": ["a"]}),
    ('input_file "a"; input_files "b" "c"', {"input_files": ["a", "b", "c"]}),
    ('output_files "a"', {"output_files": ["a"]}),
    ('input_file_regexes "a"', {"input_file_regexes": ["a"]}),
    ('output_user_data "a"', {"output_user_data": ["a"]}),
    ('input_user_data_regexes "a"', {"input_user_data_regexes": ["a"]}),
    ('parameters i="1:5" { j "2" }', {"parameters": {"i": "1:5", "j": "2"}}),
]


@pytest.mark.parametrize(("text", "meant"), FORMS)
def test_every_word_for_a_thing_counts_with_all_its_values(text: str, meant: dict[str, Any]) -> None:
    assert tree(f'job "x" {{ {text} }}')["jobs"] == [{"name": "x", **meant}]


REFUSALS = [
    ("", "error[language.empty]: w.kdl:1:1: the file is empty\n"
     "  1 | \n    | ^ a Torc workflow has a 'name' and a 'job'"),
    ('name "a', "error[language.kdl]: w.kdl:1:6: the quotes that start here are not closed in this line\n"
     '  1 | name "a\n    |      ^ write """ for a text of several lines'),
    ('name """a"""', "error[language.kdl]: w.kdl:1:6: the text that starts here needs its lines between "
     '""" and """\n  1 | name """a"""\n    |      ^'),
    ('name """\n  a\n b\n  """', "error[language.kdl]: w.kdl:1:6: line 2 of the text that starts here is indented "
     'less than its closing quotes\n  1 | name """\n    |      ^'),
    ('name """\n  a"""', "error[language.kdl]: w.kdl:1:6: the closing quotes of a text of several lines must "
     'stand on a separate line\n  1 | name """\n    |      ^'),
    ('name #"a"', "error[language.kdl]: w.kdl:1:6: the raw text that starts here is not closed by \"# in this line\n"
     '  1 | name #"a"\n    |      ^'),
    ("name #yes", "error[language.kdl]: w.kdl:1:6: '#yes' is unknown\n"
     "  1 | name #yes\n    |      ^^^^ there are #true, #false, #null, #inf, #-inf and #nan"),
    ("name 1.2.3", "error[language.kdl]: w.kdl:1:6: '1.2.3' is not a number\n"
     "  1 | name 1.2.3\n    |      ^^^^^ quote it"),
    (r'name "\q"', "error[language.kdl]: w.kdl:1:7: the escape '\\q' is unknown\n"
     "  1 | name \"\\q\"\n    |       ^^ write '\\\\' for a backslash, '\\u{e9}' for a character"),
    (r'name "\u{110000}"', "error[language.kdl]: w.kdl:1:7: the escape '\\u{110000}' is unknown\n"
     "  1 | name \"\\u{110000}\"\n    |       ^^^^^^^^^^ write '\\\\' for a backslash, '\\u{e9}' for a character"),
    (r'name "\u{d800}"', "error[language.character]: w.kdl:1:6: the text contains the character U+D800, "
     'which is not allowed\n  1 | name "\\u{d800}"\n    |      ^^^^^^^^^^ remove it'),
    ("name 99999999999999999999", "error[language.number]: w.kdl:1:6: the number 99999999999999999999 does not fit "
     "into 64 bits\n  1 | name 99999999999999999999\n    |      ^^^^^^^^^^^^^^^^^^^^ quote it to keep it as text"),
    ('job "a" {', "error[language.kdl]: w.kdl:1:9: the brace that starts here is not closed\n"
     "  1 | job \"a\" {\n    |         ^ add '}'"),
    ("name x }", "error[language.kdl]: w.kdl:1:8: this brace closes nothing\n"
     "  1 | name x }\n    |        ^ remove it"),
    ("/* a", "error[language.kdl]: w.kdl:1:1: the comment that starts here is not closed\n"
     "  1 | /* a\n    | ^ add '*/'"),
    ('name "a"b', "error[language.kdl]: w.kdl:1:9: a space is missing before this\n  1 | name \"a\"b\n    |         ^"),
    ("job a {} b", "error[language.kdl]: w.kdl:1:10: a ';' or a new line is missing before this\n"
     "  1 | job a {} b\n    |          ^"),
    ("1 2", "error[language.kdl]: w.kdl:1:1: a name is expected here\n  1 | 1 2\n    | ^"),
    ("name a=", "error[language.kdl]: w.kdl:1:8: a value is expected here\n  1 | name a=\n    |        ^"),
    ("name (t", "error[language.kdl]: w.kdl:1:6: the '(' that starts here is not closed\n"
     "  1 | name (t\n    |      ^ add ')'"),
    ("name 1=2", "error[language.kdl]: w.kdl:1:6: the name of a property is a text\n"
     "  1 | name 1=2\n    |      ^ quote it"),
    ("nmae x", "error[language.unknown_key]: w.kdl:1:1: 'nmae' is not a node of the workflow\n"
     "  1 | nmae x\n    | ^^^^ did you mean 'name'?"),
    ('job "a" {\n  comand "x"\n  depend_on "b"\n}', "error[language.unknown_key]: w.kdl:2:3: 'comand' is not a node "
     "of 'job'\n  2 |   comand \"x\"\n    |   ^^^^^^ did you mean 'command'?\n"
     "error[language.unknown_key]: w.kdl:3:3: 'depend_on' is not a node of 'job'\n"
     "  3 |   depend_on \"b\"\n    |   ^^^^^^^^^ did you mean 'depends_on'?"),
    ('job "a" "b"', "error[language.kdl]: w.kdl:1:9: 'b' is an extra value in 'job'\n"
     "  1 | job \"a\" \"b\"\n    |         ^^^ write it as key=value"),
    ('name "a" "b"', "error[language.kdl]: w.kdl:1:10: 'name' takes one value, but 'b' is another\n"
     "  1 | name \"a\" \"b\"\n    |          ^^^ put the whole value in quotes"),
    ("name", "error[language.kdl]: w.kdl:1:1: 'name' has no value\n  1 | name\n    | ^^^^ write it as name …"),
    ("job a { depends_on }", "error[language.kdl]: w.kdl:1:9: 'depends_on' has no value\n"
     "  1 | job a { depends_on }\n    |         ^^^^^^^^^^ write it as depends_on …"),
    ("job a { command x { y } }", "error[language.kdl]: w.kdl:1:21: 'y' is not allowed in 'command', which only takes "
     "values\n  1 | job a { command x { y } }\n    |                     ^"),
    ("job a { command x; command y }", "error[language.duplicate_key]: w.kdl:1:20: 'command' appears twice: first in "
     "line 1\n  1 | job a { command x; command y }\n    |                    ^^^^^^^ remove one of them"),
    ("parameters x", "error[language.kdl]: w.kdl:1:12: 'x' has no name in 'parameters'\n"
     "  1 | parameters x\n    |            ^ write it as parameters { name value }"),
    ("user_data u { data x }", "error[language.kdl]: w.kdl:1:20: 'data' must be JSON\n"
     '  1 | user_data u { data x }\n    |                    ^ quote a JSON string twice: #""text""#'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSALS)
def test_what_cannot_be_read_is_refused_at_its_place(text: str, said: str) -> None:
    assert refusal(text) == said


def test_a_file_that_is_nested_without_end_is_refused() -> None:
    said = refusal("a {" * 10_000).partition("\n")[0]

    assert said == "error[language.too_deep]: w.kdl:1:241: more than 80 lists and mappings inside each other"


def test_so_many_mistakes_are_not_all_told() -> None:
    assert refusal("x\n" * 1000).count("error[") == 100


def test_a_type_is_warned_of_and_changes_nothing() -> None:
    source = Source('name (text)"x"', "w.kdl")

    found = parse(source)

    assert plain(found) == {"name": "x", "jobs": []}
    assert [warning.render() for warning in source.warnings] == [
        "warning[language.kdl_type]: w.kdl:1:6: the type '(text)' means nothing here\n"
        '  1 | name (text)"x"\n    |      ^^^^^^ remove it'
    ]


def test_every_key_is_called_what_it_is_in_yaml() -> None:
    root = parse(Source("name x\njob a { command x; input_file f }\nslurm_scheduler s { account a }", "w.kdl"))

    assert write_yaml(root, {}) == (
        "name: x\n\njobs:\n  - name: a\n    command: x\n    input_files: [f]\n\n"
        "slurm_schedulers:\n  - name: s\n    account: a\n"
    )
