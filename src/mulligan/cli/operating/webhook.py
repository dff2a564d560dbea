"""`mulligan webhook`: addresses of a server at which programs outside send events and start workflows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from mulligan.cli.output.tables import cut, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_json, show_result
from mulligan.cli.words.options import AsJson, By, HomeFolder, service_at
from mulligan.cli.words.parameters import Argument, Flag
from mulligan.service.rendering.json_output import to_json
from mulligan.service.server.webhooks.area import WebhookView
from mulligan.service.server.webhooks.webhook_forms import read_form
from mulligan.service.service import Service

_WORDS = ("list", "show", "put", "delete")
_USAGE = {"list": "write: mulligan webhook list", "put": "write: mulligan webhook put NAME FILE"}


def webhook(
    word: Annotated[str, Argument("|".join(_WORDS), "What to do (default: list).")] = "list",
    name: Annotated[str | None, Argument("NAME", "The name of the webhook: it is at /hooks/NAME of a server.")] = None,
    file: Annotated[str | None, Argument("FILE", "put: what it does, as YAML or JSON.")] = None,
    is_dry: Annotated[bool, Flag("put: check it, and stop.", "--dry-run")] = False,
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Let programs outside send events to runs and start published workflows: list, show, put or delete webhooks.

    A server answers at /hooks/NAME whoever signs with the secret of the webhook. Where the secret is, the section
    [webhook_secrets] of its configuration says.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of webhook", hint=f"write one of: {', '.join(_WORDS)}")
    if (name is None) != (word == "list") or (file is None) != (word != "put"):
        hint = _USAGE.get(word, f"write: mulligan webhook {word} NAME")
        raise UsageRefused(f"'webhook {word}' has other arguments", hint=hint)
    with service_at(home, by) as service:
        if name is None:
            _list(service, as_json=as_json)
        elif file is not None:
            form = read_form(_read(file), file)
            _show(service.webhooks.put(name, form, dry_run=is_dry), as_json=as_json)
        elif word == "delete":
            service.webhooks.delete(name)
            if as_json:
                show_json({"name": name, "is_deleted": True})
            else:
                complain(f"webhook '{name}' is deleted; its runs stay")
        else:
            _show(service.webhooks.show(name), as_json=as_json)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UsageRefused(f"'{file}' cannot be read: {(error.strerror or str(error)).lower()}") from None


def _list(service: Service, *, as_json: bool) -> None:
    found = service.webhooks.all()
    if as_json:
        show_json({"webhooks": to_json(found), "next": None})
    elif not found:
        complain(f"there is no webhook; {_USAGE['put']}")
    else:
        show_table(("WEBHOOK", "ADDRESS", "DOES", ""), [(one.name, one.path, _does(one), one.problem) for one in found])


def _does(one: WebhookView) -> str:
    if one.start is not None:
        return f"starts {one.start.workflow}" + (f"@{one.start.version}" if one.start.version else "")
    return f"sends {one.send.event}" if one.send is not None else ""


def _show(one: WebhookView, *, as_json: bool) -> None:
    if as_json:
        show_result(one)
        return
    show(f"webhook '{one.name}'{' (not written: a dry run)' if one.dry_run else ''}")
    header = f", in the header {one.header}" if one.header else ""
    lines = [("address", f"POST {one.path} of the server"), ("signed", f"{one.auth}, with '{one.secret}'{header}")]
    lines += [(title, text) for title, text in (("filter", one.filter), ("id", one.id)) if text]
    lines.append(("does", _does(one)))
    details = msgspec.to_builtins(one.send or one.start)
    lines += [
        (f"  {key}", cut(_text(value), 200)) for key, value in details.items() if key not in ("event", "workflow")
    ]
    lines += [("problem", one.problem)] if one.problem else []
    for title, text in lines:
        show(f"  {title:<12} {text}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
