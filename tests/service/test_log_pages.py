"""Parts of logs: always bounded, whatever a step wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands import mulligan

from mulligan.errors import InputInvalid
from mulligan.service.home import Home
from mulligan.service.logs.log_pages import LogPage
from mulligan.service.service import Service

FLOW = """
name: talkative
steps:
  - step: many
    shell: 'seq 1 3000; printf tail'
  - step: long
    shell: 'head -c 3000000 /dev/zero | tr "\\0" x; echo; printf "\\377 end\\r\\n"'
  - step: quiet
    shell: 'true'
  - step: wide
    map: {over: [1, 2], as: n}
    do:
      - shell: echo ${n}
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("flow.yaml").write_text(FLOW, encoding="utf-8")
        assert mulligan("run", "flow.yaml").code == 0
        with Service(Home(folder / ".mulligan")) as service:
            yield service


def numbers(page: LogPage) -> list[int]:
    return [one.line for one in page.lines]


def test_the_end_is_shown_first_and_a_last_line_without_an_end_counts(service: Service) -> None:
    page = service.logs.pages.read(1, "many", limit=3)

    assert [(one.line, one.text) for one in page.lines] == [(2999, "2999"), (3000, "3000"), (3001, "tail")]
    assert (page.total_lines, page.next, page.stream) == (3001, None, "stdout")


def test_pages_follow_each_other_without_a_gap(service: Service) -> None:
    seen: list[int] = []
    first: int | None = 1
    while first is not None:
        page = service.logs.pages.read(1, "many", first=first, limit=10_000)
        seen += numbers(page)
        first = page.next

    assert seen == [*range(1, 3002)]


def test_behind_the_end_there_is_nothing(service: Service) -> None:
    page = service.logs.pages.read(1, "many", first=9000)

    assert (page.lines, page.next) == ([], None)


def test_a_long_line_is_cut_and_bytes_that_are_no_text_are_replaced(service: Service) -> None:
    page = service.logs.pages.read(1, "long")

    assert [len(one.text) for one in page.lines] == [2000, len("� end")]
    assert page.lines[1].text == "� end"
    assert page.is_cut and page.size > 3_000_000


def test_a_search_goes_on_where_it_ended(service: Service) -> None:
    first = service.logs.pages.read(1, "many", search="99", limit=2)
    second = service.logs.pages.read(1, "many", search="99", limit=2, first=first.next)
    nothing = service.logs.pages.read(1, "many", search="no such text")

    assert (numbers(first), first.next) == ([99, 199], 299)
    assert numbers(second) == [299, 399]
    assert (nothing.lines, nothing.next) == ([], None)


def test_a_step_that_wrote_nothing_has_an_empty_log(service: Service) -> None:
    page = service.logs.pages.read(1, "quiet")

    assert (page.lines, page.total_lines, page.size) == ([], 0, 0)


def test_of_several_logs_one_has_to_be_named(service: Service) -> None:
    with pytest.raises(InputInvalid) as refused:
        service.logs.pages.read(1, "wide")

    assert "'wide[0]'" in refused.value.hint
    assert service.logs.pages.read(1, "wide[1]").lines[0].text == "2"
