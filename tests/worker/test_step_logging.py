"""What a Python step says with `logging`. In children of their own: pytest has set up logging in forked ones."""

from __future__ import annotations

import re

import pytest
from tests.support.work import Work

from mulligan.language.readers import settings
from mulligan.ports import Lease
from mulligan.step_context import log_records

LOGGING = "import logging\nlog = logging.getLogger('sales.load')\n"
AT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "


def test_the_language_sets_the_variable_that_steps_read() -> None:
    assert settings.LEVEL_VARIABLE == log_records.LEVEL_VARIABLE


def logged(work: Work, lease: Lease) -> list[str]:
    work.run(lease)
    log = work.log(lease, "err")
    return log.read_text().splitlines() if log.exists() else []


def test_records_are_printed_from_info_on_with_time_level_and_logger(work: Work) -> None:
    code = f"{LOGGING}def main():\n  log.debug('a')\n  log.info('b %d', 2)\n  logging.warning('c')\n  log.error('d')"

    lines = logged(work, work.python(code))

    assert [re.sub(f"^{AT}", "", line) for line in lines] == [
        "INFO sales.load: b 2",
        "WARNING root: c",
        "ERROR sales.load: d",
    ]
    assert all(re.match(AT, line) for line in lines)


def test_an_exception_stands_below_its_record(work: Work) -> None:
    code = f"{LOGGING}def main():\n  try: 1 / 0\n  except ArithmeticError: log.exception('bad row')"

    first, *rest = logged(work, work.python(code))

    assert first.endswith(" ERROR sales.load: bad row")
    assert (rest[0], rest[-1]) == ("Traceback (most recent call last):", "ZeroDivisionError: division by zero")


def test_each_step_of_a_child_has_its_own_level(work: Work) -> None:
    code = f"{LOGGING}def main():\n  log.debug('a')\n  log.info('b')\n  log.error('c')"
    levels = ("info", "debug", "error", None)
    variables = [{"MULLIGAN_LOG_LEVEL": level} if level else {} for level in levels]

    counts = [len(logged(work, work.python(code, env=env))) for env in variables]

    assert counts == [2, 3, 1, 2]


@pytest.mark.parametrize(
    "own",
    [
        "logging.basicConfig(format='own %(message)s', level='INFO')",
        "import sys; log.addHandler(logging.StreamHandler(sys.stderr)); log.handlers[0].setFormatter("
        "logging.Formatter('own %(message)s'))",
        "import logging.config; logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False, "
        "'formatters': {'f': {'format': 'own %(message)s'}}, "
        "'handlers': {'h': {'class': 'logging.StreamHandler', 'formatter': 'f'}}, "
        "'root': {'handlers': ['h'], 'level': 'INFO'}})",
    ],
)
def test_code_that_sets_up_logging_itself_gets_that_and_nothing_twice(work: Work, own: str) -> None:
    code = f"{LOGGING}{own}\ndef main(): log.info('a')"

    assert logged(work, work.python(code)) == ["own a"]


def test_a_level_with_another_name_and_a_record_that_cannot_be_formatted_fail_no_step(work: Work) -> None:
    code = f"{LOGGING}logging.addLevelName(25, 'well done')\ndef main():\n  log.log(25, 'a')\n  log.info('%d', 'b')"
    lease = work.python(code)

    lines = logged(work, lease)

    assert lines[0].endswith(" well_done sales.load: a")
    assert "--- Logging error ---" in lines


def test_a_step_that_does_not_log_does_not_load_logging(work: Work) -> None:
    report = work.run_python("import sys\ndef main(): return 'logging' in sys.modules")

    assert report.output is False
