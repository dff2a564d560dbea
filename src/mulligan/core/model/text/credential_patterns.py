"""Find text that looks like a credential, and hide it.

Workers redact declared secrets exactly. This is for undeclared ones: a password in a stack trace, a token in the output
of a failed command. It is a guess by shape, for agents and failure contexts; it never changes a result, a log or an
event.

Each row of the table has a pattern whose group `hidden` is replaced; the rest of the match stays readable. Patterns
take linear time for any text: quantifiers are bounded, and a lookbehind keeps a pattern from starting inside a
sequence of its own characters, so that no sequence is scanned twice.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mulligan.core.model.artifacts import is_artifact
from mulligan.core.model.text.lazy_regex import lazy_regex as compiled_later

HIDDEN = "[hidden]"

# Names of credentials, also at the end of a longer name: DB_PASSWORD, my-api-key, clientSecret.
# Any value assigned to one of the first is hidden; for the others it must look like a token.
_PLAIN_NAMES = (
    # `PWD=/srv/app` is a folder.
    r"passw(?:or)?d|passwd|passphrase|[_-]pass(?=\s{0,2}=)|pwd(?![\"']?\s{0,4}[:=]\s{0,4}[\"']?[/~])|secret|(?:api|access|account|private|shared|secret|encryption)[_-]?key"
)
_NAMES = rf"{_PLAIN_NAMES}|token|credentials?|x-amz-signature"
_NEEDLES = "passw passphrase _pass -pass pwd secret key token credential x-amz-signature sig="
_SCHEMES = r"bearer|basic|digest|token|negotiate|apikey|aws4-hmac-sha256"
# Placeholders instead of a value: a variable, a template, a type, a mask.
_NO_VALUE = (
    r"(?!\$|\{\{|\$\{|<|\*|\.\.\.|%[({sA-Za-z_]|\[hidden\]"
    r"|(?:null|none|nil|true|false|undefined|empty|required|missing|invalid|unset|str|string|bytes|text)(?![\w-])"
    # Code: `password=self.password`, `token=get_token()`, `os.environ["KEY"]`, `password=password`.
    rf"|[A-Za-z_]{{1,60}}(?:\.[A-Za-z_]{{1,60}}){{1,8}}(?![\w.])|[A-Za-z_][\w.]{{0,100}}[(\[]|(?:{_NAMES})(?:[\s,;)\]}}]|$))"
)
# Six characters or more with a digit among them, but not a number.
_ODD = r"(?=[^\s\"'&;,|]{0,200}\d)(?![\d.,:]{1,40}(?:[\s,;)\]}]|$))[^\s\"'&;,|]{6,1024}"
_WORD = r"[A-Za-z0-9_-]"


class Credential(msgspec.Struct, frozen=True):
    """One kind of credential: its name, its pattern, and an example with the credential hidden.

    A text without any of `needles` (in lower case) has no credential of this kind, so most patterns are never run.
    """

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    example: str


def _row(name: str, needles: str, pattern: str, example: str, flags: int = 0) -> Credential:
    return Credential(name, tuple(needles.split()), compiled_later(pattern, flags), example)


def _token(name: str, needles: str, pattern: str) -> Credential:
    """A token with a known prefix, delimited by other characters."""
    return _row(name, needles, rf"(?<!{_WORD})(?P<hidden>{pattern})(?!{_WORD})", HIDDEN)


CREDENTIALS: tuple[Credential, ...] = (
    _row(
        "user and password in an address",
        "://",
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/@:\"'<>]{0,256}:(?!\d{1,5}[/?#])"
        r"(?P<hidden>[^\s\"'<>/?#]{1,512}|[^\s\"'<>]{1,512})@(?=[\w\[.-])",
        f"postgresql://user:{HIDDEN}@host/db",
    ),
    _row(
        "token in an address",
        "://",
        r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<hidden>[A-Za-z0-9_.~-]{20,512})@(?=[\w\[.-])",
        f"https://{HIDDEN}@host/repository",
    ),
    _row(
        "Authorization header",
        "authorization",
        rf"\b(?:proxy-)?authorization[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?(?:(?:{_SCHEMES})\s{{1,4}}|(?!{_SCHEMES}))"
        r"(?!\$|\{\{|<|\*|\[hidden\])(?P<hidden>[^\s\"',;]{4,4096})",
        f"Authorization: Bearer {HIDDEN}",
        re.IGNORECASE,
    ),
    _row(
        "bearer token",
        "bearer",
        r"\bbearer\s{1,4}(?P<hidden>[A-Za-z0-9._~+/=-]{16,4096})",
        f"Bearer {HIDDEN}",
        re.IGNORECASE,
    ),
    _row(
        "cookie",
        "cookie",
        r"\b(?:set-)?cookie\s{0,4}:\s{0,4}(?P<hidden>[A-Za-z0-9_.-]{1,100}=[^\r\n\"']{1,4096})",
        f"Set-Cookie: {HIDDEN}",
        re.IGNORECASE,
    ),
    _row(
        "quoted value",
        _NEEDLES,
        rf"(?<!unexpected )(?:{_NAMES})(?:\\?[\"'])?\s{{0,8}}(?:=>?|:)\s{{0,8}}(?P<quote>\\?[\"'])"
        # An escaped quote is part of the value, and truncated text has no closing quote.
        rf"{_NO_VALUE}(?P<hidden>(?:[^\"'\\\r\n]|\\[^\r\n]){{1,1024}}?)(?:(?P=quote)|(?=[\r\n])|\Z)",
        f'"password": "{HIDDEN}"',
        re.IGNORECASE,
    ),
    _row(
        "assigned value",
        _NEEDLES,
        rf"(?:{_PLAIN_NAMES})={_NO_VALUE}(?P<hidden>[^\s\"'&;,|)\]}}]{{1,1024}})",
        f"password={HIDDEN}",
        re.IGNORECASE,
    ),
    # After a colon or a blank, and for tokens, ordinary words are common: six characters with a digit are required.
    _row(
        "named value",
        _NEEDLES,
        rf"(?<!unexpected )(?:{_NAMES}|[?&]sig)\s{{0,4}}[:=]\s{{0,4}}{_NO_VALUE}(?P<hidden>{_ODD})",
        f"token: {HIDDEN}",
        re.IGNORECASE,
    ),
    _row(
        "value of an option",
        _NEEDLES,
        rf"(?<![A-Za-z0-9-])--[A-Za-z0-9-]{{0,40}}?(?:{_NAMES})\s{{1,2}}[\"']?{_NO_VALUE}(?P<hidden>{_ODD})",
        f"--password {HIDDEN}",
        re.IGNORECASE,
    ),
    _row(
        "element",
        _NEEDLES,
        rf"<[A-Za-z0-9_:-]{{0,40}}?(?:{_NAMES})>(?P<hidden>[^<>\s]{{1,512}})</",
        f"<password>{HIDDEN}</password>",
        re.IGNORECASE,
    ),
    _token("AWS access key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    _token("Google key", "aiza", r"AIza[A-Za-z0-9_-]{35}"),
    _token("Google token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,512}"),
    _token(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255}",
    ),
    _token("GitLab token", "gl", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{20,255}"),
    _token("Slack token", "xox xapp-", r"xox[abeoprs]-[A-Za-z0-9-]{10,255}|xapp-[A-Za-z0-9-]{10,255}"),
    _row("Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/(?P<hidden>[A-Za-z0-9_/-]{20,255})", ""),
    _token("key of a model provider", "sk-", r"sk-(?:[a-z]{2,8}-){0,2}[A-Za-z0-9_-]{20,255}"),
    _token("Stripe key", "sk_ rk_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,255}"),
    _token("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("PyPI token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,512}"),
    _token("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,255}"),
    _token("SendGrid key", "sg.", r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}"),
    _token("DigitalOcean token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token("JSON web token", "eyj", r"eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}(?:\.[A-Za-z0-9_-]{0,4096}){0,3}"),
)

# The name of a value in an object, and placeholders that are not values.
_NAME = compiled_later(rf"(?:{_NAMES})$", re.IGNORECASE)
_MASK = compiled_later(rf"(?!{_NO_VALUE}.)", re.IGNORECASE)

_KEY_BEGIN = compiled_later(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = compiled_later(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
# The most characters hidden for a key whose end was cut off.
_KEY_CHARS_MAX = 16_384
_KEY_LINE = compiled_later(r"[A-Za-z0-9+/=]{16,80}")
_KEY_LINE_CUT = compiled_later(r"[A-Za-z0-9+/=]{1,80}")


def hide_credentials(text: str) -> str:
    """The text with `[hidden]` instead of anything that looks like a credential. Deterministic."""
    text = _without_private_keys(text)
    lower = text.lower()
    for credential in CREDENTIALS:
        if any(needle in lower for needle in credential.needles):
            text = credential.pattern.sub(_hide, text)
    return text


def hide_at_ends(text: str, shown: int) -> str:
    """The same for a text of which only the first and last `shown` characters are shown, in bounded time.

    The middle is left as it is. A credential across the end of a part is too far inside to be shown.
    """
    part = 4 * shown + 2 * _KEY_CHARS_MAX
    if len(text) > 2 * part:
        head, tail = hide_credentials(text[:part]), hide_credentials(text[-part:])
        if min(len(head), len(tail)) >= shown + _KEY_CHARS_MAX:
            return head + text[part:-part] + tail
    return hide_credentials(text)


def is_credential_name(name: str) -> bool:
    """Whether a value of this name is a credential, whatever it looks like."""
    return _NAME.search(name) is not None


def hide_in(value: Any) -> Any:
    """A JSON value with credentials hidden in its strings. Artifacts are not fetched."""
    if isinstance(value, str):
        return hide_credentials(value)
    if isinstance(value, dict) and not is_artifact(value):
        return {key: _hide_named(key, inner) for key, inner in value.items()}
    return [hide_in(inner) for inner in value] if isinstance(value, list) else value


def _hide_named(name: str, value: Any) -> Any:
    """Hide a named value: {"password": "hunter"} as well as "password=hunter"."""
    if isinstance(value, str) and _NAME.search(name) and not _MASK.match(value):
        return HIDDEN
    return hide_in(value)


def _hide(match: re.Match[str]) -> str:
    start, end = match.span("hidden")
    return match.string[match.start() : start] + HIDDEN + match.string[end : match.end()]


def _without_private_keys(text: str) -> str:
    """Hide the blocks of private keys, also truncated ones."""
    if "PRIVATE KEY" not in text:
        return text
    parts, at = [], 0
    ends = [match.span() for match in _KEY_END.finditer(text)]
    for begin in _KEY_BEGIN.finditer(text):
        if begin.start() < at:
            continue
        while ends and ends[0][0] < begin.end():
            parts.append(_without_orphan(text[at : ends[0][0]]))
            at = ends.pop(0)[1]
        parts.append(text[at : begin.start()] + HIDDEN)
        at = min(len(text), begin.end() + _KEY_CHARS_MAX)
        if ends and ends[0][0] <= at:
            at = ends.pop(0)[1]
    for start, end in ends:
        if start >= at:
            parts.append(_without_orphan(text[at:start]))
            at = end
    return "".join((*parts, text[at:]))


def _without_orphan(before: str) -> str:
    """The text before the end of a key that has no beginning, without the lines of the key."""
    lines = before.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    whole = len(lines)
    while lines and _KEY_LINE.fullmatch(lines[-1].strip()):
        lines.pop()
    if len(lines) < whole and lines and _KEY_LINE_CUT.fullmatch(lines[-1].strip()):
        # The first line, of which only the end is left.
        lines.pop()
    return "\n".join((*lines, HIDDEN))
