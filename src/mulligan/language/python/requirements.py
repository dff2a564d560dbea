"""Reads requirements of Python packages (PEP 508), so that a typing error is found before anything is installed.

The installer decides what a requirement means. Here it is only refused if no installer could read it, or if it is
something other than a requirement: an option, a path, an address with a password.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.keys.value_schemas import ListOf, Value
from mulligan.language.text.nodes import Node, Scalar, Source, describe

_SPACE = r"[ \t]*"
_NAME_TEXT = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = lazy_regex(_NAME_TEXT)
_EXTRAS = lazy_regex(rf"\[{_SPACE}(?:{_NAME_TEXT}{_SPACE}(?:,{_SPACE}{_NAME_TEXT}{_SPACE})*)?\]")
_COMPARISON = lazy_regex(r"===|==|~=|!=|<=|>=|<|>")
# PEP 440, and `.*` after == and !=. After === anything may stand.
_VERSION = lazy_regex(
    r"v?(?:\d+!)?\d+(?:\.\d+)*(?:[-_.]?(?:alpha|beta|preview|pre|rc|a|b|c)[-_.]?\d*)?"
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?(?:\.\*)?",
    re.IGNORECASE,
)
_ONE_NUMBER = lazy_regex(r"v?(?:\d+!)?\d+[^.]*")
_ANY_VERSION = lazy_regex(r"[^\s,;)]+")
_ADDRESS = lazy_regex(r"(?:https?|git\+https?|git\+ssh|hg\+https?|bzr\+https?|svn\+https?)://[^\s]+")
_BARE_ADDRESS = lazy_regex(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# A password in an address. The user name alone is allowed, since git+ssh needs it.
_PASSWORD = lazy_regex(r"://[^/@\s]*:[^/@\s]*@")
_FILE = lazy_regex(r"\.{0,2}/|~|.*\.(?:whl|tar\.gz|tar\.bz2|zip|txt|toml)$|.*/", re.IGNORECASE)

_MARKER_TOKEN = lazy_regex(
    rf"{_SPACE}(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<bracket>[()])|(?P<comparison>===|==|~=|!=|<=|>=|<|>)"
    r"|(?P<word>[A-Za-z_][A-Za-z_.]*))"
)
_MARKERS = frozenset(
    "python_version python_full_version os_name sys_platform platform_release platform_system platform_version "
    "platform_machine platform_python_implementation implementation_name implementation_version extra extras "
    "dependency_groups os.name sys.platform platform.version platform.machine platform.python_implementation "
    "python_implementation".split()
)

_DEPTH_MAX = 20
_EXAMPLES = "such as pandas>=2 or 'pandas[parquet]==2.2.*'"


class Mistake(NamedTuple):
    """What is wrong with a requirement, where in its text, and what to write instead."""

    message: str
    offset: int
    length: int
    hint: str = ""


class RequirementSchema(Value, frozen=True):
    """One requirement: a package, the versions that will do, and where it is needed."""

    def read(self, node: Node, label: str, source: Source) -> str:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            raise source.refuse("requirement", f"{label} is {describe(node)}, {self.expected} is expected", node)
        text = node.value.rstrip()
        if (mistake := find_mistake(text)) is not None:
            message, offset, length, hint = mistake
            if offset == 0 and length >= len(text):
                raise source.refuse("requirement", message, node, hint=hint)
            raise source.refuse_in("requirement", message, node, offset, length, hint=hint)
        return text.strip()


class RequirementsSchema(ListOf, frozen=True):
    """Requirements, each once. One text is refused: whether it holds one or several would be a guess."""

    @property
    def expected(self) -> str:
        return "a list such as [pandas>=2, pyarrow]"

    def read(self, node: Node, label: str, source: Source) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(super().read(node, label, source)))


REQUIREMENT = RequirementSchema(
    "a requirement such as pandas>=2", str, {"type": "string", "pattern": r"^\s*[A-Za-z0-9]"}
)
REQUIREMENTS = RequirementsSchema(REQUIREMENT)


def find_mistake(text: str) -> Mistake | None:
    """Return the first mistake in a requirement, or None."""
    begin = len(text) - len(text.lstrip())
    if (found := _find_other_thing(text, begin)) is not None:
        return found
    name = _NAME.match(text, begin)
    if name is None:
        return Mistake(f"'{text.strip()}' is no requirement", begin, len(text) - begin, f"write a package, {_EXAMPLES}")
    at = _skip_space(text, name.end())
    if text.startswith("[", at):
        extras = _EXTRAS.match(text, at)
        if extras is None:
            return Mistake("the extras of a requirement do not end", at, len(text) - at, "write NAME[EXTRA,EXTRA]")
        at = _skip_space(text, extras.end())
    if text.startswith("@", at):
        return _check_address(text, _skip_space(text, at + 1))
    end = _check_versions(text, at, name[0])
    if isinstance(end, Mistake):
        return end
    return None if end == len(text) else _check_marker(text, end + 1)


def _find_other_thing(text: str, begin: int) -> Mistake | None:
    """Find what is not a requirement, though pip accepts it in a file or on its command line."""
    length = max(1, len(text) - begin)
    if begin == len(text):
        return Mistake("a requirement is empty", 0, length, f"write a package, {_EXAMPLES}")
    if (at := text.find("${")) >= 0:
        message = "requirements are read before the run starts, so '${…}' cannot be used in them"
        return Mistake(message, at, 2, "write the requirement itself")
    if (at := text.find("\n")) >= 0:
        return Mistake("a requirement is one line", at, 1, "make each line an entry of the list")
    if text[begin] == "-":
        hint = "options belong to the worker's environment: PIP_INDEX_URL or UV_DEFAULT_INDEX"
        return Mistake(f"'{text.split()[0]}' is an option, and a requirement is expected", begin, length, hint)
    if text[begin] == "#":
        return Mistake("a requirement cannot be a comment", begin, length, "remove it")
    if _BARE_ADDRESS.match(text, begin):
        return Mistake("an address needs the name of its package", begin, length, "write 'NAME @ ADDRESS'")
    if _FILE.match(text.split(";")[0].split("@")[0].strip()):
        hint = (
            "put its wheel into a folder that PIP_FIND_LINKS or UV_FIND_LINKS of the worker names, and write its name"
        )
        return Mistake("a path cannot be a requirement: a worker may be on another machine", begin, length, hint)
    return None


def _check_address(text: str, at: int) -> Mistake | None:
    address = _ADDRESS.match(text, at)
    if address is None:
        schemes = "https://…, git+https://… or git+ssh://…"
        return Mistake("'@' is followed by an address", at, max(1, len(text) - at), f"write {schemes}")
    if password := _PASSWORD.search(address[0]):
        hint = "the worker's pip or git can have it: ~/.netrc, or a credential helper"
        message = "an address with a password cannot be a requirement, since it is shown and stored"
        return Mistake(message, at + password.start() + 3, len(password[0]) - 4, hint)
    at = _skip_space(text, address.end())
    if at == len(text):
        return None
    if text[at] != ";":
        return Mistake("this does not belong to the address", at, len(text) - at)
    return _check_marker(text, at + 1)


def _check_versions(text: str, at: int, name: str) -> int | Mistake:
    """Return where the versions end: at the end of the text, or at a `;`."""
    is_bracketed = text.startswith("(", at)
    at = _skip_space(text, at + is_bracketed)
    is_next_expected = False
    while is_next_expected or (at < len(text) and text[at] not in ");"):
        comparison = _COMPARISON.match(text, at)
        if comparison is None:
            return _explain_missing_comparison(text, at, name)
        begin = _skip_space(text, comparison.end())
        version = (_ANY_VERSION if comparison[0] == "===" else _VERSION).match(text, begin)
        end = version.end() if version else begin
        if version is None or (end < len(text) and text[end] not in ",;) \t"):
            written = re.split(r"[,;)\s]", text[begin:])[0]
            message = f"'{written}' is no version" if written else f"no version follows '{comparison[0]}'"
            return Mistake(message, begin, max(1, len(written)), f"write it like {name}{comparison[0]}2.1")
        if (mistake := _check_comparison(comparison[0], version[0], begin, name)) is not None:
            return mistake
        at = _skip_space(text, end)
        is_next_expected = text.startswith(",", at)
        if is_next_expected:
            at = _skip_space(text, at + 1)
        elif at < len(text) and text[at] not in ");":
            return Mistake("this does not belong to the version", at, len(text) - at, _SEPARATE)
    if is_bracketed:
        if not text.startswith(")", at):
            return Mistake("the bracket around the versions does not end", at, 1, "write ')' there")
        at = _skip_space(text, at + 1)
    if at < len(text) and text[at] != ";":
        return Mistake("this does not belong to the version", at, len(text) - at, _SEPARATE)
    return at


def _check_comparison(comparison: str, version: str, at: int, name: str) -> Mistake | None:
    """Check what PEP 440 says of some comparisons."""
    if version.endswith(".*") and comparison not in ("==", "!=", "==="):
        message = f"'.*' may follow '==' and '!=', not '{comparison}'"
        return Mistake(message, at, len(version), f"write {name}{comparison}{version[:-2]}")
    if "+" in version and comparison not in ("==", "!=", "==="):
        message = f"a version with '+' may follow '==' and '!=', not '{comparison}'"
        return Mistake(message, at, len(version), f"write {name}{comparison}{version.partition('+')[0]}")
    if comparison == "~=" and _ONE_NUMBER.fullmatch(version):
        return Mistake("'~=' needs a version of two numbers", at, len(version), f"write {name}~={version}.0")
    return None


_SEPARATE = "versions are separated by ',', and each package is an entry of the list"


def _explain_missing_comparison(text: str, at: int, name: str) -> Mistake:
    rest = text[at:]
    if rest.startswith("="):
        version = rest[1:].strip()
        return Mistake("'=' does not compare versions", at, 1, f"write {name}=={version or '2.1'}")
    if rest[:1].isdigit():
        return Mistake("a version needs a comparison", at, len(rest), f"write {name}=={rest.split()[0]}")
    if rest[:1].isalpha():
        return Mistake("a requirement names one package", at, len(rest), "make each package an entry of the list")
    return Mistake("a comparison such as '>=' is expected", at, max(1, len(rest)), f"write it like {name}>=2")


# -- markers


def _check_marker(text: str, at: int) -> Mistake | None:
    """Check `python_version < '3.12' and …`: comparisons with `and` and `or` between them, with brackets.

    What it comes to is the installer's question.
    """
    tokens = _tokenize_marker(text, at)
    if isinstance(tokens, Mistake):
        return tokens
    # What is expected, and how many brackets are open.
    expected, depth = "first value", 0
    for token in [*tokens, _Token("end", "", len(text))]:
        length = max(1, len(token.text))
        if expected.endswith("value"):
            if expected == "first value" and token.text == "(":
                depth += 1
                if depth > _DEPTH_MAX:
                    return Mistake("the brackets are nested too deep", token.offset, 1)
            elif token.kind == "text" or (token.kind == "word" and token.text in _MARKERS):
                expected = "comparison" if expected == "first value" else "end"
            elif token.kind == "word" and token.text not in ("and", "or", "in", "not"):
                message = f"'{token.text}' is not known in a condition"
                return Mistake(message, token.offset, length, f"{_CONDITION}; values are in quotes")
            else:
                return Mistake("a value is expected", token.offset, length, _CONDITION)
        elif expected != "end":
            if token.kind == "comparison" or token.text == "in":
                expected = "second value"
            elif token.text == "not" and expected == "comparison":
                expected = "comparison after not"
            else:
                return Mistake("a comparison is expected", token.offset, length, _CONDITION)
        elif token.text in ("and", "or"):
            expected = "first value"
        elif depth and token.text == ")":
            depth -= 1
        elif depth:
            return Mistake("a bracket does not end", token.offset, 1, "write ')' there")
        elif token.kind != "end":
            return Mistake(f"'{token.text}' is not expected here", token.offset, len(token.text), _CONDITION)
    return None


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


def _tokenize_marker(text: str, at: int) -> list[_Token] | Mistake:
    tokens: list[_Token] = []
    while _skip_space(text, at) < len(text):
        found = _MARKER_TOKEN.match(text, at)
        if found is None:
            at = _skip_space(text, at)
            hint = "write it like ; python_version < '3.12', with the value in quotes"
            return Mistake("the condition after ';' is not understood", at, len(text) - at, hint)
        kind = str(found.lastgroup)
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        at = found.end()
    return tokens


_CONDITION = "write it like ; python_version < '3.12'"


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at
