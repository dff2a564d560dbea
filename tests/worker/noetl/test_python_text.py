"""Templates in Python code: what they become, and that no value becomes code."""

from __future__ import annotations

from typing import Any

import pytest

from .asking import python, reported, result

WORKLOAD = {
    "n": 3,
    "name": 'O\'Brien "x"\n\\n {{ n }}',
    "list": [1, "a'b", None, True],
    "flag": False,
    "nothing": None,
    "evil": "1); __import__('os').system('touch evil'); (",
    "number": "12",
}


def given(code: str, **known: Any) -> Any:
    return result(name="a", tool=python(code), workload=WORKLOAD, **known)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("result = {{ workload.n }} + {{ n }}", 6),
        ("result = '{{ name }}'", WORKLOAD["name"]),
        ('result = """<{{ name }}>"""', f"<{WORKLOAD['name']}>"),
        ("result = f'{1 + 1} {{ name }}'", f"2 {WORKLOAD['name']}"),
        ("result = b'{{ evil }}'", "MSk7IF9faW1wb3J0X18oJ29zJykuc3lzdGVtKCd0b3VjaCBldmlsJyk7ICg="),
        ("result = {{ list }}", WORKLOAD["list"]),
        ("result = {{ workload.list | tojson }}", WORKLOAD["list"]),
        ("import json\nresult = json.loads('{{ list | tojson }}')", WORKLOAD["list"]),
        ("result = [{{ flag }}, {{ nothing }}, {{ number }}]", [False, None, 12]),
        ("{% for one in list %}\nx = {{ loop.index }}\n{% endfor %}\nresult = x", 4),
        ("{% if flag %}result = 1{% else %}result = 2{% endif %}", 2),
        ("# {{ evil }}\nresult = 1", 1),
        ("def main():\n    return '{{ evil }}'", WORKLOAD["evil"]),
        ("return {{ list }}[0]", 1),
        ("result = '{{ evil }}' + '_value0_'", f"{WORKLOAD['evil']}_value0_"),
        ("result = '{% raw %}{{ n }}{% endraw %}'", "{{ n }}"),
        # Braces of Python, in which nothing is known here.
        ("x = 1\nresult = f'{{x}}'", "{x}"),
        ("result = '{{}}'.format()", "{}"),
        ("result = '{%s}' % 1", "{1}"),
    ],
)
def test_a_value_in_code_is_the_value(code: str, value: Any) -> None:
    assert given(code) == value


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("result = {{ evil }}", "'{{ evil }}' is code without quotes around it"),
        ("result = x.{{ name }}", "'{{ name }}' is a name in the code"),
        ("result = '{{ name }}\n", "the Python code is invalid in line 1"),
        ("{{ evil }} = 1\nresult = 1", "'{{ evil }}' is a name in the code"),
        ("result = x_{{ evil }}", "'{{ evil }}' is a name in the code"),
        ("result = dict({{ evil }}=1)", "'{{ evil }}' is a name in the code"),
        ("import {{ evil }}", "'{{ evil }}' is a name in the code"),
        ("def f({{ evil }}): pass", "'{{ evil }}' is a name in the code"),
        ("result = {{ evil }}{{ evil }}", "'{{ evil }}' is a name in the code"),
        ("result = '{{ workload.nmae }}'", "'nmae'"),
        ("result = '{{ n }} {{ unknown }}'", "'unknown' is not defined"),
    ],
)
def test_a_value_that_would_be_code_is_refused(code: str, message: str) -> None:
    report = reported(name="a", tool=python(code), workload=WORKLOAD)

    assert report["code"] in ("INPUT_INVALID", "EXPRESSION_FAILED")
    assert message in report["message"]


def test_values_of_the_file_are_code_and_so_are_all_where_templates_are_trusted() -> None:
    code = "import {{ module }}\nresult = {{ module }}.{{ call }}"
    workload = {"module": "math", "call": "floor(1.5)"}

    assert result(tool=python(code), workload=workload, defaults=workload) == 1
    assert result(tool=python(code), workload=workload, trust_templates=True) == 1
    assert "is a name in the code" in reported(tool=python(code), workload=workload)["message"]


def test_a_traceback_shows_the_line_as_it_is_in_the_file() -> None:
    report = reported(name="a", tool=python("x = 1\nraise ValueError('{{ name }}')"), workload=WORKLOAD)

    assert report["message"].startswith("ValueError: O'Brien")
