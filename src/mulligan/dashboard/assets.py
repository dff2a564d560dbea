"""The files that pages load: style sheets and ES modules, with the colours of the drawings.

All of them stand below one address that has the digest of their contents, so that a browser keeps them for ever, and a
new version has new addresses. Modules import each other by relative names.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from mulligan.api.http.routing import Answer, Call, Route
from mulligan.errors import UnknownPath
from mulligan.service.rendering.page.styles import chart_styles, read_styles

_MEDIA = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
# Between the names of style sheets that are one file.
_JOINED, _JOINED_MAX = "+", 8
# A static import; one of the vendored files is not loaded ahead, since it is large and its page asks for it at once.
_IMPORT = re.compile(r'^import [^"]*"\./([\w.]+)";$', re.MULTILINE)
_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
# Nothing is loaded from elsewhere, nothing runs that is not a file of ours. Our SVG and HTML have no style attributes.
# A worker has the policy of its own file, not that of the page.
POLICY = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'; "
    "img-src 'self' data:"
)


@cache
def contents() -> dict[str, bytes]:
    """All files by name: `dashboard.css`, `vendor/codemirror.js`."""
    found = {"charts.css": chart_styles().encode(), "coverage.css": read_styles("coverage.css").encode()}
    for name, file in _walk(files(__package__) / "assets", ""):
        found[name] = file.read_bytes()
    return found


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            found += _walk(one, f"{prefix}{one.name}/")
        elif one.name.rpartition(".")[2] in _MEDIA:
            found.append((prefix + one.name, one))
    return found


@cache
def digest() -> str:
    """A name for the contents of all files together."""
    found = hashlib.sha256()
    for name, content in contents().items():
        found.update(b"%d %b %d " % (len(name), name.encode(), len(content)))
        found.update(content)
    return found.hexdigest()[:16]


def url_of(name: str) -> str:
    """The address of a file. KeyError if there is no such file."""
    if name not in contents():
        raise KeyError(name)
    return f"/static/{digest()}/{name}"


def url_of_styles(names: tuple[str, ...]) -> str:
    """The address of several style sheets as one file: a page is not painted before it has all of them."""
    missing = [name for name in names if name not in contents()]
    if missing:
        raise KeyError(*missing)
    return f"/static/{digest()}/{_JOINED.join(name.removesuffix('.css') for name in names)}.css"


@cache
def modules_behind(names: tuple[str, ...]) -> tuple[str, ...]:
    """The modules that these import, directly or not, and that a browser would find one after the other."""
    found: dict[str, None] = dict.fromkeys(names)
    for name in (queue := list(names)):
        for imported in _IMPORT.findall(contents()[name].decode()):
            if imported not in found and imported in contents():
                found[imported] = None
                queue.append(imported)
    return tuple(name for name in found if name not in names)


async def answer_file(call: Call) -> Answer:
    """A file. Under the digest of another version the newest one, which is not kept by the browser."""
    return _file(call.path["digest"], call.path["name"])


async def answer_vendored(call: Call) -> Answer:
    return _file(call.path["digest"], f"vendor/{call.path['name']}")


def _file(version: str, name: str) -> Answer:
    content = _joined_styles(name) if _JOINED in name else contents().get(name)
    if content is None:
        raise UnknownPath(f"there is no file '{name}'", hint="load the page again")
    headers = {"content-security-policy": POLICY, **(_FOREVER if version == digest() else {})}
    return Answer(content, headers=headers, media=_MEDIA[name.rpartition(".")[2]])


@lru_cache(64)
def _joined_styles(name: str) -> bytes | None:
    """Style sheets that `url_of_styles` names together; None if one of them is not there."""
    parts = [contents().get(f"{part}.css") for part in name.removesuffix(".css").split(_JOINED)[:_JOINED_MAX]]
    return b"\n".join(part for part in parts if part is not None) if all(parts) and name.endswith(".css") else None


ROUTES = (
    Route("GET", "/static/{digest}/{name}", answer_file, "public", "A file that pages load.", media="*/*"),
    Route("GET", "/static/{digest}/vendor/{name}", answer_vendored, "public", "A file of others.", media="*/*"),
)
