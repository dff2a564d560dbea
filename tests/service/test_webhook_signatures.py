"""The signatures of deliveries, against what the Standard Webhooks publish and what `hmac` computes."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import pytest

from mulligan.service.server.notices.targets import sign, signing_key
from mulligan.service.server.webhooks.signatures import SignatureRefused, TimeRefused, verify

# The example of the specification and of its libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
BODY = b'{"test": 2432232314}'
AT = datetime.fromtimestamp(1614265330, UTC)


def standard(body: bytes = BODY, at: datetime = AT, **changed: str) -> str:
    headers = {**HEADERS, **{f"webhook-{name}": value for name, value in changed.items()}}
    return verify("standard", "", [SECRET], headers, body, at)


def test_the_example_of_the_specification_is_accepted() -> None:
    assert standard() == "id msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert standard(signature=f"v1a,x v1,AAAA {HEADERS['webhook-signature']}")


def test_whatever_is_changed_in_it_is_refused() -> None:
    for changed in (
        {"body": BODY + b" "},
        {"id": "msg_p5jXN8AQM9LWM0D4loKWxJeK"},
        {"timestamp": "1614265331"},
        {"signature": HEADERS["webhook-signature"].lower()},
        {"signature": HEADERS["webhook-signature"].removeprefix("v1,")},
        {"signature": ""},
    ):
        with pytest.raises(SignatureRefused):
            standard(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-301, 301])
def test_a_right_signature_of_another_time_is_refused(seconds: int) -> None:
    with pytest.raises(TimeRefused):
        standard(at=datetime.fromtimestamp(1614265330 + seconds, UTC))


def test_the_example_of_github_is_accepted() -> None:
    """https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"""
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() == signature.removeprefix("sha256=")

    found = verify("github", "", ["another", secret], {"x-hub-signature-256": signature}, body, AT)

    assert found == f"sha256 {hashlib.sha256(body).hexdigest()}"
    for wrong in (signature.upper(), signature.replace("sha256=", "sha1="), "", "sha256="):
        with pytest.raises(SignatureRefused):
            verify("github", "", [secret], {"x-hub-signature-256": wrong}, body, AT)


def test_an_empty_header_is_no_secret() -> None:
    for headers in ({}, {"x-token": ""}, {"x-token": " a secret"}):
        with pytest.raises(SignatureRefused):
            verify("secret", "X-Token", ["a secret"], headers, BODY, AT)


def test_either_of_two_secrets_counts_and_each_has_a_signature() -> None:
    for secrets in ([SECRET, "whsec_bmV3"], ["whsec_bmV3", SECRET]):
        assert verify("standard", "", secrets, HEADERS, BODY, AT)
    with pytest.raises(SignatureRefused):
        verify("standard", "", ["whsec_bmV3"], HEADERS, BODY, AT)


def test_the_time_may_differ_by_five_minutes_to_the_second() -> None:
    for seconds in (-300, 300):
        assert standard(at=datetime.fromtimestamp(1614265330 + seconds, UTC))


def secret(sent: dict[str, str], header: str = "X-Token", body: bytes = BODY) -> str:
    return verify("secret", header, ["another", "a secret"], sent, body, AT)


def test_a_secret_in_a_header_says_which_delivery_it_is_by_its_id_or_its_content() -> None:
    good = {"x-token": "a secret"}
    now, late = str(int(AT.timestamp())), str(int(AT.timestamp()) + 60)

    assert secret({**good, "idempotency-key": "7", "webhook-id": "8"}) == "id 7"
    assert secret({**good, "webhook-id": "8", "x-github-delivery": "9"}) == "id 8"
    assert secret({**good, "x-github-delivery": "9"}) == "id 9"
    plain = secret(good)
    assert plain.startswith("sha256 ") and plain == secret(good)
    others = [secret(good, body=b"another"), *(secret({**good, "webhook-timestamp": one}) for one in (now, late))]
    assert len({plain, *others}) == 4


def test_a_secret_in_a_header_with_a_wrong_time_is_refused() -> None:
    for timestamp in ("1", "soon", "-1614265330", "1614265330.0", "1" * 13):
        with pytest.raises(TimeRefused):
            secret({"x-token": "a secret", "webhook-timestamp": timestamp})


def test_a_bearer_is_the_secret_in_the_header_for_that_alone() -> None:
    assert secret({"authorization": "Bearer a secret"}, "Authorization")
    assert secret({"authorization": "a secret"}, "Authorization")
    for sent, header in (
        ({"authorization": "Basic a secret"}, "Authorization"),
        ({"x-token": "Bearer a secret"}, "X-Token"),
    ):
        with pytest.raises(SignatureRefused):
            secret(sent, header)


def test_a_delivery_without_an_id_is_refused_although_it_is_signed() -> None:
    now = int(AT.timestamp())
    headers = {"webhook-timestamp": str(now), "webhook-signature": sign([signing_key(SECRET)], "", now, BODY)}

    with pytest.raises(SignatureRefused):
        verify("standard", "", [SECRET], headers, BODY, AT)
