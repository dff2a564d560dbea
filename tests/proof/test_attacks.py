"""Attacks, for a moment: a sample of what `make attacks` does for an hour, and whether it would notice anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.support.nightly import IS_NIGHTLY

from mulligan.core.model.workflow import Workflow
from mulligan.store.http.http_calls import CALLS, arguments_type
from proof.attacks.attacked_server import CANARY, Ids, Reply
from proof.attacks.callers import ATTACKERS, BLUE, RED
from proof.attacks.campaign import Battlefield, Campaign, Finding
from proof.attacks.defects import DEFECTS, unfound
from proof.attacks.laws import broken
from proof.attacks.named_attacks import ATTACKS, hold
from proof.attacks.requests import Request, RequestMaker, body_of, operations
from proof.attacks.typed_values import TypedValues

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.nightly))
# The others take more than a few seconds, or leave a store that nobody can use.
SHORT = [name for name, attack in ATTACKS.items() if not attack.is_alone]
# Twelve hundred requests, and one to every route for each of three or a dozen runs: at night.
DEAR = {"refused_callers", "unreadable_runs", "forged_results"}
# By which random requests find nothing today, on either store.
SEED, REQUESTS = 0, 150
IDS = Ids(
    runs={BLUE: {"letters": 1}, RED: {"letters": 2}},
    artifacts=({"name": "1/large/1/1/output.txt", "size": 1, "sha256": "0" * 64, "format": "text"},),
    versions=("0" * 16,),
    definitions=(b'{"name":"a","steps":[{"name":"b"}]}',),
    tokens=("t",),
    workers=("host.1.a",),
)


@pytest.fixture(scope="module")
def battlefield(tmp_path_factory: pytest.TempPathFactory, server_url: str) -> Iterator[Battlefield]:
    with Battlefield(tmp_path_factory.mktemp("attacks"), server_url) as battlefield:
        yield battlefield


# -- a sample --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_a_server_under_attack_serves_others_keeps_what_they_have_and_ends_by_one_signal(
    battlefield: Battlefield, store: str
) -> None:
    campaign = Campaign(battlefield, store, SEED, clients=1)

    campaign.session(0, batches=1, size=REQUESTS, shrink=False)

    assert [(one.words, [str(sent) for sent in one.requests[-1:]]) for one in campaign.found.values()] == []
    assert campaign.requests == REQUESTS


@pytest.mark.parametrize("store", STORES)
def test_attacks_that_worked_once_work_no_more(battlefield: Battlefield, store: str) -> None:
    with battlefield.server(store) as server:
        wrong = [*hold(server, [name for name in SHORT if IS_NIGHTLY or name not in DEAR]), *server.end()]

    assert wrong == []


# -- whether it would notice anything --------------------------------------------------------------------------------


def test_there_is_a_deliberate_defect_for_each_law_that_holds_of_any_server() -> None:
    assert len({defect.law for defect in DEFECTS}) == len(DEFECTS)


@pytest.mark.nightly
def test_a_server_that_is_broken_on_purpose_is_found(tmp_path: Path) -> None:
    assert unfound(tmp_path, defects=[one for one in DEFECTS if one.name == "show_all_projects"]) == []


def test_an_answer_with_the_words_of_another_project_breaks_a_law() -> None:
    request = Request("read", "GET", "/api/v1/runs/1", scope="read")

    assert [one.partition(":")[0] for one in broken(request, Reply(200, "", CANARY.encode()))] == [
        "others_are_not_read"
    ]
    assert list(broken(msgspec.structs.replace(request, who="blue read"), Reply(200, "", CANARY.encode()))) == []


@pytest.mark.parametrize(
    ("who", "scope", "status", "law"),
    [
        ("read", "write", 200, "a_scope_is_needed"),
        ("revoked", "read", 200, "a_scope_is_needed"),
        ("admin", "read", 500, "no_request_is_a_bug"),
        ("admin", "read", 0, "every_request_is_answered"),
    ],
)
def test_an_answer_that_must_not_be_breaks_a_law(who: str, scope: str, status: int, law: str) -> None:
    found = list(broken(Request(who, "GET", "/", scope=scope), Reply(status, "", b"{}")))

    assert [one.partition(":")[0] for one in found] == [law]


# -- what is sent ----------------------------------------------------------------------------------------------------


def test_every_route_every_call_and_every_tool_is_asked_by_everybody() -> None:
    maker = RequestMaker(Random(1), IDS)

    sent = [maker.make() for _ in range(8_000)]

    assert {one.call for one in sent} == {one.name for one in operations()}
    assert {one.who for one in sent} == {one.name for one in ATTACKERS}
    assert {f"store {name}" for name in CALLS} <= {one.call for one in sent}


def test_the_same_seed_sends_the_same_requests() -> None:
    first, second = (RequestMaker(Random("7/0/0"), IDS) for _ in range(2))

    assert [first.make() for _ in range(200)] == [second.make() for _ in range(200)]


def test_plain_values_are_of_their_types_and_odd_ones_often_are_not() -> None:
    random = Random(1)
    accepted: Counter[float] = Counter()

    for hostility in (0.0, 0.5):
        for name in CALLS:
            for _ in range(5):
                body = body_of(TypedValues(random, {}, hostility).of(arguments_type(name)))
                try:
                    msgspec.json.decode(body, type=arguments_type(name))
                except (msgspec.DecodeError, UnicodeError, RecursionError):
                    continue
                accepted[hostility] += 1

    assert accepted[0.0] == 5 * len(CALLS)
    assert 0 < accepted[0.5] < accepted[0.0]


def test_a_definition_of_random_parts_is_one_that_a_client_could_send() -> None:
    random = Random(1)

    found = [TypedValues(random).of(Workflow) for _ in range(30)]

    assert any(_is_readable(one) for one in found)


def _is_readable(tree: object) -> bool:
    try:
        msgspec.json.decode(msgspec.json.encode(tree), type=Workflow)
    except msgspec.ValidationError:
        return False
    return True


def test_two_findings_of_one_cause_have_one_signature() -> None:
    one, other = (Finding(f"no_bug_is_logged: run {n} is paused", "sqlite", attack="a") for n in (7, 12))

    assert one.signature == other.signature
