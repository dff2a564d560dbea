"""Which line of a command's output is shown beside its code."""

from __future__ import annotations

import pytest

from mulligan.core.model.text.failure_line import most_useful_line

GCC = """
main.c: In function 'main':
main.c:3:12: error: expected ';' before 'return'
    3 |     int x = 1
      |            ^
      |            ;
main.c:4:5: error: 'y' undeclared (first use in this function)
    4 |     return y;
      |            ^
make: *** [Makefile:2: main.o] Error 1
"""
RUST = """
error[E0308]: mismatched types
 --> src/main.rs:2:18
  |
2 |     let x: i32 = "a";
  |            ---   ^^^ expected `i32`, found `&str`

error: aborting due to previous error

For more information about this error, try `rustc --explain E0308`.
error: could not compile `x` (bin "x") due to 1 previous error
"""
PYTHON = """
Traceback (most recent call last):
  File "fit.py", line 3, in <module>
    fit(data)
    ~~~^^^^^^
ValueError: Input contains NaN
"""
SYNTAX = """
  File "a.py", line 1
    print(
         ^
SyntaxError: '(' was never closed
"""
NPM = """
npm error code ENOENT
npm error path /app/package.json
npm error enoent Could not read package.json: Error: ENOENT: no such file or directory
npm error A complete log of this run can be found in:
npm error     /root/.npm/_logs/x.log
"""
CURL = "curl: (7) Failed to connect to localhost port 1: Connection refused\n"
PROGRESS = (
    "  % Total    % Received\n  0 1024    0     0\r 45 1024   45\rcurl: (18) transfer closed with 3 bytes remaining\n"
)
BAR = "loading model\n 12%|#         | 3/25 [00:01]\r 48%|####      | 12/25 [00:05]\n"
PYTEST = """
=================================== FAILURES ===================================
E       assert 2 == 3
=========================== short test summary info ============================
FAILED test_x.py::test_a - assert (1 + 1) == 3
========================= 1 failed, 1 passed in 0.03s ==========================
"""
MPI = "Segmentation fault\n------------------------------\nrank 3 left the job\n------------------------------\n"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (GCC, "main.c:3:12: error: expected ';' before 'return'"),
        (RUST, "error[E0308]: mismatched types"),
        (PYTHON, "ValueError: Input contains NaN"),
        (SYNTAX, "SyntaxError: '(' was never closed"),
        (NPM, "npm error enoent Could not read package.json: Error: ENOENT: no such file or directory"),
        (CURL, "curl: (7) Failed to connect to localhost port 1: Connection refused"),
        (PROGRESS, "curl: (18) transfer closed with 3 bytes remaining"),
        (MPI, "Segmentation fault"),
        (PYTEST, "FAILED test_x.py::test_a - assert (1 + 1) == 3"),
        ("real problem: disk gone\nwarning: x is deprecated, this may be an error\n", "real problem: disk gone"),
        ("no key\n   ^^^^\n\n", "no key"),
        ("first\r\nlast\r\n", "last"),
        ("make: *** [all] Error 2\n", "make: *** [all] Error 2"),
        ("^\n", "^"),
        ("\n \n", ""),
        ("", ""),
    ],
)
def test_the_line_is_the_one_that_a_person_would_search_for(output: str, line: str) -> None:
    assert most_useful_line(output) == line


def test_a_progress_bar_is_target_skipped() -> None:
    assert most_useful_line("loading model\n 45% [####    ]\n") == "loading model"
    assert most_useful_line("fetching\n 45.5 % 1.2 MB/s eta\n100%\n") == "fetching"
