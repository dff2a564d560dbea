"""One answer for several callers: who may have it, and who may not."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from tests.support.api_client import Client, start_run

from mulligan.api.access.shared_answers import BYTES_MAX, KEPT_SECONDS, SharedAnswers
from mulligan.api.http.routing import Answer
from mulligan.service.home import Home
from mulligan.service.runs.area import Runs
from mulligan.service.service import Service


class Counting:
    """Makes answers, each with its number."""

    def __init__(self, size: int = 1) -> None:
        self.made = 0
        self._size = size

    def __call__(self) -> Answer:
        self.made += 1
        return Answer(b"x" * self._size)


class Moved(Service):
    """A service whose store has the version that a test says."""

    version: int | str | None = None
    asked = 0

    @cached_property
    def runs(self) -> Runs:
        return MovedRuns(self)


class MovedRuns(Runs):
    def __init__(self, service: Moved) -> None:
        self._service = service

    def store_version(self) -> int | str | None:
        self._service.asked += 1
        return self._service.version


def test_those_who_asked_before_an_answer_was_begun_get_it(tmp_path: Path) -> None:
    moment, make, service = [10.0], Counting(), Moved(Home(tmp_path))
    shared = SharedAnswers(lambda: moment[0])

    shared.get(service, "list", 9.0, make)
    shared.get(service, "list", 9.9, make)
    assert make.made == 1
    shared.get(service, "other", 9.9, make)
    assert make.made == 2
    moment[0] = 10.5
    shared.get(service, "list", 10.1, make)
    assert make.made == 3


def test_an_answer_serves_until_something_is_written_or_too_much_time_has_passed(tmp_path: Path) -> None:
    moment, make, service = [10.0], Counting(), Moved(Home(tmp_path))
    service.version = 1
    shared = SharedAnswers(lambda: moment[0])

    shared.get(service, "list", 10.0, make)
    moment[0] += KEPT_SECONDS / 2
    shared.get(service, "list", moment[0], make)
    assert make.made == 1
    service.version = 2
    shared.get(service, "list", moment[0] + 0.1, make)
    assert make.made == 2
    moment[0] += 2 * KEPT_SECONDS
    shared.get(service, "list", moment[0], make)
    assert make.made == 3
    # Another connection counts from the beginning.
    other = Moved(Home(tmp_path))
    other.version = 2
    shared.get(other, "list", 0.0, make)
    assert make.made == 4


def test_a_timeless_answer_serves_until_something_is_written_and_one_question_serves_all_who_wait(
    tmp_path: Path,
) -> None:
    moment, service, made = [10.0], Moved(Home(tmp_path)), [0]
    service.version = "12:12:"
    shared = SharedAnswers(lambda: moment[0])

    def make() -> Answer:
        made[0] += 1
        return Answer(b"x", is_timeless=True)

    for key in ("a", "b", "a", "b"):
        shared.get(service, key, 9.0, make)
    assert (made, service.asked) == ([2], 1)
    moment[0] += 100 * KEPT_SECONDS
    for key in ("a", "b"):
        shared.get(service, key, moment[0] - 0.1, make)
    assert (made, service.asked) == ([2], 2)
    service.version = "12:13:"
    shared.get(service, "a", moment[0] + 0.1, make)
    assert made == [3]


def test_only_so_much_is_kept(tmp_path: Path) -> None:
    make, service = Counting(BYTES_MAX // 2), Moved(Home(tmp_path))
    shared = SharedAnswers(lambda: 10.0)

    for key in ("a", "b", "c", "c", "b", "a"):
        shared.get(service, key, 9.0, make)

    assert make.made == 4


def test_a_list_shows_what_was_written_the_moment_before(client: Client, service: Service) -> None:
    counts = []
    for _ in range(3):
        counts.append(len(client.get("runs").json["runs"]))
        start_run(service)

    assert counts == [0, 1, 2]
