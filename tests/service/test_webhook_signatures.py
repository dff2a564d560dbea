"""The signatures of deliveries, against what the Standard Webhooks publish and what `hmac` computes."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import pytest

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
