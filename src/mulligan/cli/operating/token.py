"""`mulligan token`: who may do what with a server, made and revoked without one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson, By, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.ports.server_records import AuditRecord
from mulligan.service.authoring.values import parse_duration
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.server.tokens.tokens import NewToken, TokenForm, TokenView, read_limits
from mulligan.service.service import Service

HEADS = ("ID", "USER", "SCOPES", "PROJECT", "LIMITS", "STATUS", "NOTE")
_USAGE = {
    "create": "write: mulligan token create USER --scope SCOPE, or: mulligan token create --agent NAME",
    "list": "write: mulligan token list",
    "revoke": "write: mulligan token revoke ID",
}


def token(
    word: Annotated[str, Argument("create|list|revoke", "What to do.")],
    name: Annotated[
        str | None, Argument("USER|ID", "For 'create': in whose name; for 'revoke': the id of a token.")
    ] = None,
    scopes: Annotated[
        list[str] | None,
        Option(
            "SCOPE",
            "What it allows: read, send, run, decide, propose, write, admin or worker; may be repeated.",
            "--scope",
        ),
    ] = None,
    expires: Annotated[str | None, Option("DURATION", "How long it is valid, like 30d (default: for ever).")] = None,
    project: Annotated[str | None, Option("NAME", "The project that it sees (default: the first one).")] = None,
    is_for_all: Annotated[bool, Flag("It sees all projects of the store.", "--all-projects")] = False,
    workflows: Annotated[
        list[str] | None,
        Option("NAME", "A workflow whose runs it may start and change; may be repeated.", "--workflow"),
    ] = None,
    decisions: Annotated[
        int | None, Option("N", "How often it may decide for a person.", "--decisions-per-hour")
    ] = None,
    agent: Annotated[str, Option("NAME", "Instead of USER: it is for an agent, recorded as agent:NAME.")] = "",
    may: Annotated[
        str,
        Option("VERDICTS", "What it may decide: retry, fail, approve, refuse (default: all; for an agent retry,fail)."),
    ] = "",
    min_confidence: Annotated[str, Option("N", "How sure its decisions about failures have to be, like 0.8.")] = "",
    note: Annotated[str, Option("TEXT", "What it is for.")] = "",
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make, list or revoke the tokens of a server.

    The secret of a token is printed once, on stdout, when the token is made: the store keeps its SHA-256 alone. A
    revoked token lets nobody in from then on. The token of an agent may read and decide unless other scopes are given,
    answers failures with retry or fail unless --may says more, and makes 20 decisions an hour unless
    --decisions-per-hour says another number. The server need not be up,
    unless it is asked to do it: $MULLIGAN_SERVER or --home URL, with a token of an administrator.
    """
    if word not in _USAGE:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of token", hint="write create, list or revoke")
    options = (scopes, expires, project, is_for_all, workflows, decisions, agent, may, min_confidence, note)
    # A limit of 0 is one.
    has_options = any(one is not None and one is not False and one != "" for one in options)
    if (name is None) != (word == "list" or bool(agent)) or (word != "create" and has_options):
        raise UsageRefused(f"'token {word}' has other arguments", hint=_USAGE[word])
    if is_for_all and project is not None:
        raise UsageRefused("--all-projects and --project cannot be combined", hint="give one of them")
    with service_at(home, by=by) as service:
        if word == "list":
            found = service.tokens.list_tokens()
            show_result(found) if as_json else _show_list(found.tokens)
            return
        if word == "revoke" and name is not None:
            revoked = service.tokens.revoke(name)
            _note(service, "mulligan token revoke", revoked)
            show_result(revoked) if as_json else complain(f"token {revoked.id} of '{revoked.user}' is revoked")
            return
        limits = read_limits(may, decisions, min_confidence)
        form = TokenForm(
            user=name or "",
            scopes=tuple(scopes or ()),
            note=note,
            expires_in_seconds=None if expires is None else parse_duration(expires),
            workflows=tuple(workflows or ()),
            decisions_per_hour=limits.decisions_per_hour,
            agent=agent,
            verdicts=limits.verdicts,
            min_confidence=limits.min_confidence,
            project=project or "",
            all_projects=is_for_all,
        )
        made = service.tokens.create(form)
        _note(service, "mulligan token create", made.token)
    show_result(made) if as_json else _show_new(made)


def _note(service: Service, action: str, one: TokenView) -> None:
    """Leave a row in the audit, as a server does for the changes that it is asked for."""
    if service.home.is_remote:
        return
    record = AuditRecord(
        at=service.now(),
        who=service.by,
        action=action,
        target=one.id,
        status=200,
        project=one.project or "",
        why=one.note,
    )
    service.audit.add([record])


def _show_new(made: NewToken) -> None:
    """The secret alone goes to stdout, so that it can be put into a file or a variable."""
    one = made.token
    limits = "; ".join(text for text in (", ".join(one.scopes), *_limits(one), _valid(one)))
    complain(f"token {one.id} for '{one.user}' ({limits}), shown this once:")
    show(made.secret)


def _show_list(found: tuple[TokenView, ...]) -> None:
    if not found:
        complain("there is no token yet; make one: mulligan token create USER --scope SCOPE")
    show_table(HEADS, [_row(one) for one in found])


def _row(one: TokenView) -> tuple[str, ...]:
    project = "all" if one.project is None else one.project or "-"
    limits = "; ".join((*(f"only {name}" for name in one.workflows), *_limits(one))) or "-"
    return one.id, one.user, ",".join(one.scopes), project, limits, _valid(one), one.note


def _limits(one: TokenView) -> Iterator[str]:
    if one.verdicts:
        yield f"may decide {', '.join(one.verdicts)}"
    if one.decisions_per_hour is not None:
        yield f"{pluralize(one.decisions_per_hour, 'decision')} an hour"
    if one.min_confidence is not None:
        yield f"at least {one.min_confidence:.0%} sure"


def _valid(one: TokenView) -> str:
    if one.revoked_at is not None:
        return f"revoked {_day(one.revoked_at)}"
    if one.expires_at is None:
        return "valid"
    return f"valid until {_day(one.expires_at)}" if one.is_valid else f"expired {_day(one.expires_at)}"


def _day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")
