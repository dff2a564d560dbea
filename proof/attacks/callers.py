"""Who calls: every kind of token in the attacker's project, tokens that count no more, browsers, and nobody at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from mulligan.ports.server_records import Scope, TokenLimits, TokenRecord
from mulligan.service.server.logins import digest_of

# The attacker is in one project, and the victim in the other.
RED, BLUE = "red", "blue"
# Since when some tokens count no more: not for so long that they are forgotten.
AT = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
# What a scope allows besides itself, said again here: a checker does not ask what it checks.
IMPLIED: dict[str, frozenset[str]] = {
    "read": frozenset(),
    "send": frozenset(),
    "run": frozenset({"read", "send"}),
    "decide": frozenset({"read"}),
    "propose": frozenset({"read"}),
    "write": frozenset({"read", "send", "run", "propose"}),
    "admin": frozenset({"read", "send", "run", "propose", "write", "decide"}),
    "worker": frozenset(),
}


class Caller(NamedTuple):
    """One who sends requests. Without scopes it has no token that counts."""

    name: str
    scopes: tuple[Scope, ...] = ()
    project: str = RED
    limits: TokenLimits = TokenLimits()
    # "bearer", "cookie", "cross_site" (a cookie that a page of another site sends) or "none".
    how: str = "bearer"
    is_counted: bool = True
    # What the token record has; `scopes` is what it is worth.
    recorded: tuple[Scope, ...] = ()

    @property
    def secret(self) -> str:
        return f"mul_{self.name.replace(':', '_'):_<43}"

    @property
    def id(self) -> str:
        return f"session-0-{self.name}" if self.how in ("cookie", "cross_site") else f"id-{self.name}".replace(":", "-")

    def may(self, scope: str) -> bool:
        """Whether one of its scopes is this one or implies it."""
        return scope == "public" or any(scope == own or scope in IMPLIED[own] for own in self.scopes)

    @property
    def headers(self) -> dict[str, str]:
        if self.how == "bearer":
            return {"Authorization": f"Bearer {self.secret}"}
        if self.how == "none":
            return {}
        same_site = {} if self.how == "cross_site" else {"X-Mulligan-Request": "1"}
        return {"Cookie": f"mulligan_session={self.secret}", **same_site}

    @property
    def record(self) -> TokenRecord | None:
        """Its token, as the store has it; None if there is none."""
        if self.how == "none" or self.name == "unknown":
            return None
        return TokenRecord(
            id=self.id,
            digest=digest_of(self.secret),
            user=self.name,
            scopes=self.recorded or self.scopes,
            created_at=AT,
            project=self.project,
            limits=self.limits,
            expires_at=AT if "expired" in self.name else None,
            revoked_at=AT if "revoked" in self.name else None,
        )


_SCOPES: tuple[Scope, ...] = ("read", "send", "run", "decide", "propose", "write", "admin", "worker")
_NARROW = TokenLimits(workflows=("letters",), decisions_per_hour=3, verdicts=("retry",), min_confidence=0.8)
_USUAL = TokenLimits(decisions_per_hour=20, verdicts=("retry", "fail"))
ATTACKERS: tuple[Caller, ...] = (
    *(Caller(scope, (scope,)) for scope in _SCOPES),
    Caller("worker two", ("worker",)),
    Caller("agent:usual", ("run", "decide"), limits=_USUAL),
    Caller("agent:writer", ("write",), limits=_USUAL),
    Caller("agent:narrow", ("run", "decide"), limits=_NARROW),
    Caller("agent:reader", ("read",), limits=_USUAL),
    Caller("browser", ("admin",), how="cookie"),
    # It may look; a change that its cookie was sent with is refused.
    Caller("cross site", ("admin",), how="cross_site"),
    Caller("revoked", recorded=("admin",)),
    Caller("expired", recorded=("admin",)),
    Caller("blue revoked", project=BLUE, recorded=("admin",)),
    Caller("blue expired", project=BLUE, recorded=("admin",)),
    Caller("unknown"),
    Caller("nobody", how="none"),
    # It may see all that the victim has, and change nothing of it.
    Caller("blue read", ("read",), BLUE),
)
# The victim: publishes, starts runs and looks at them while the attack goes on. Nobody else has this token.
VICTIM = Caller("blue owner", ("admin",), BLUE)
# Made to be revoked by an attacker who may.
SPARE = Caller("spare", ("read",))
CALLERS = {caller.name: caller for caller in (*ATTACKERS, VICTIM, SPARE)}


def records() -> Iterator[TokenRecord]:
    """All tokens that there are."""
    for caller in CALLERS.values():
        if (record := caller.record) is not None:
            yield record
