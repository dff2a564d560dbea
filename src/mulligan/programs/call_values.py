"""Arguments and results of calls: as canonical JSON to the engine, and back as what annotations say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_origin, get_type_hints

from mulligan.core.model.artifacts import KEY_AS_JSON, references
from mulligan.programs.errors import NotStorable
from mulligan.values.annotations import (
    ArgumentRefused,
    ArtifactUnreadable,
    TableUnreadable,
    has_typed_parameters,
    is_surely_annotated,
)
from mulligan.values.artifact_contents import VALUE_FORMATS, check_file, checked_bytes
from mulligan.values.encoding import DEPTH_MAX, ValueRefused, encode
from mulligan.values.files import KEY, StoredFile, load_arguments

# What such a function yields is its progress, so its annotation says nothing about its result.
_GENERATORS = ("Generator", "Iterator", "Iterable", "AsyncGenerator", "AsyncIterator", "AsyncIterable")

_RESERVED = f"has the key '{KEY}', which is reserved for files that steps have stored"


def _refuse_type(value: object) -> Any:
    raise TypeError


_canonical = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_refuse_type
).encode


def canonical_json(value: Any) -> str:
    """A JSON value as text that is the same for equal values: keys sorted, no spaces."""
    return _canonical(value)


# A number that may have more than 64 bits.
_LONG_NUMBER = re.compile(rb"\d{19}")


def encode_arguments(bound: Mapping[str, Any], what: str) -> bytes:
    """The arguments of a call by parameter as canonical JSON; raise NotStorable with the name of the argument."""
    if not bound:
        return b"{}"
    try:
        text = _canonical(bound).encode()
        if _LONG_NUMBER.search(text) is None and not _is_deep(bound, text):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    return canonical_json(
        {name: storable(value, f"the argument '{name}' of {what}") for name, value in bound.items()}
    ).encode()


def _is_deep(bound: Mapping[str, Any], text: bytes) -> bool:
    """Whether values are nested deeper than a result may be."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    level: list[Any] = [bound]
    for _ in range(DEPTH_MAX):
        inner = [value for one in level for value in (one.values() if isinstance(one, dict) else one)]
        level = [one for one in inner if isinstance(one, dict | list | tuple)]
        if not level:
            return False
    return True


def storable(value: Any, label: str, *, code: str = "EXCEPTION") -> Any:
    """The value as JSON has it; raise NotStorable. `label` names it in the message; `code` is that of the failure."""
    if value is None or type(value) is bool:
        return value
    try:
        return json.loads(encode(value, _open_no_sink, label=label))
    except ValueRefused as refusal:
        # The sentence is about what a step returns.
        said = str(refusal) if label.startswith("the result") else str(refusal).replace("; return ", "; pass ")
        raise NotStorable(said, code=code) from None
    except _TableMade:
        message = f"{label} contains a table or an array that the program has made"
        hint = "let a step make it and return it: then it is stored as a file"
        raise NotStorable(message, hint=hint, code=code) from None


class _TableMade(Exception):
    """A table that would have to be stored as a file."""


def _open_no_sink() -> Any:
    raise _TableMade


class ResultFile(StoredFile):
    """A file or a table that a step has returned. A program passes it on to other steps; `load()` reads it.

    It is looked at when it is read, not in each replay.
    """

    def load(self, wanted: str = "") -> Any:
        self._check()
        return super().load(wanted)

    def as_path(self) -> Any:
        self._check()
        return self.path

    def read_bytes(self) -> bytes:
        self._check()
        return super().read_bytes()

    def _check(self) -> None:
        if not self.path:
            raise NotStorable(f"the file '{self.reference[KEY]['name']}' of a step is not here")
        try:
            check_file(self.reference[KEY], self.path)
        except ArtifactUnreadable as problem:
            raise NotStorable(str(problem)) from None

    @property
    def __mulligan_artifact__(self) -> dict[str, Any]:
        return self.reference

    def __repr__(self) -> str:
        return f"<{self.describe()} of a step>"


def storable_defaults(function: Any) -> dict[str, Any]:
    """The defaults of the parameters that can be stored: handlers and undo read them."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    given = function.__defaults__ or ()
    defaults = {**dict(zip(names[len(names) - len(given) :], given, strict=True)), **(function.__kwdefaults__ or {})}
    found = {}
    for name, value in defaults.items():
        try:
            found[name] = storable(value, name)
        except NotStorable:
            continue  # the step has it where it runs
    return found


def reader_of(function: Any) -> Callable[[Any], Any] | None:
    """What makes a result of the JSON that was stored, as the function is annotated; None if it returns JSON."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if annotation is None or not has_typed_parameters(_Annotated({"value": annotation})):  # type: ignore[arg-type]
        return None
    try:
        hint = get_type_hints(function, include_extras=True).get("return")
    except Exception:
        return None  # it names something that is not there at run time
    if getattr(get_origin(hint) or hint, "__name__", "") in _GENERATORS:
        return None
    from mulligan.values.decoding import convert_value

    return lambda value: convert_value(value, hint)


def check_returned(function: Any, result: object) -> None:
    """Raise NotStorable if a result is not what its function is annotated with."""
    if is_surely_annotated(function, result):
        return
    from mulligan.values.results import ResultMisfit, check_result

    try:
        check_result(function, result)
    except ResultMisfit as misfit:
        raise NotStorable(str(misfit), code="OUTPUT_INVALID") from None


class _Annotated:
    """Something with annotations."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations


def given_arguments(function: Callable[..., Any], encoded: bytes, files: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a call as a worker gives them to its function: new values, as the annotations say."""
    arguments: dict[str, Any] = json.loads(encoded)
    if KEY_AS_JSON in encoded:
        arguments = {name: _with_files(one, files, f"argument '{name}'") for name, one in arguments.items()}
    if has_typed_parameters(function):
        from mulligan.values.decoding import convert_arguments

        return convert_arguments(function, arguments)
    return load_arguments(arguments) if KEY_AS_JSON in encoded else arguments


def read_result(output: Any, read: Callable[[Any], Any] | None, files: Mapping[str, str], what: str) -> Any:
    """The result of a call. `files` has the paths of the artifacts that the output may refer to."""
    if isinstance(output, dict | list):
        try:
            output = _with_files(output, files, what)
        except RecursionError:
            raise NotStorable(f"the result of {what} cannot be read: it is nested too deep") from None
    if read is None or isinstance(output, ResultFile):
        return output
    try:
        return read(output)
    except (ArgumentRefused, TableUnreadable) as problem:
        raise NotStorable(f"the result of {what} cannot be read: {problem}") from None


def _with_files(value: Any, files: Mapping[str, str], what: str) -> Any:
    """The value with the content of large parts, and with an object for each file."""
    if isinstance(value, list):
        return [_with_files(one, files, what) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or KEY not in value:
        return {key: _with_files(one, files, what) for key, one in value.items()}
    artifact = value[KEY]
    if not _name_of(artifact):
        raise NotStorable(f"{what} {_RESERVED}", code="OUTPUT_INVALID")
    path = files.get(artifact["name"], "")
    if artifact["format"] not in VALUE_FORMATS:
        return ResultFile(path, value)
    if not path:
        raise NotStorable(f"the result of {what} cannot be read: its file '{artifact['name']}' is not here")
    try:
        text = checked_bytes(artifact, path).decode()
    except ArtifactUnreadable as problem:
        raise NotStorable(f"the result of {what} cannot be read: {problem}") from None
    return text if artifact["format"] == "text" else json.loads(text)


def _name_of(described: Any) -> str:
    """The name of an artifact; "" if this is none: a user may have any key."""
    is_described = isinstance(described, dict) and "format" in described
    return described["name"] if is_described and isinstance(described.get("name"), str) else ""


def as_stored(value: Any, read: Callable[[Any], Any] | None, what: str, files: Mapping[str, str]) -> Any:
    """What an inline step has returned, as JSON that can be read as the program gets it; otherwise NotStorable.

    It may return files of other steps, and make no new ones. `files`: those that the program has got.
    """
    plain = storable(value, f"the result of {what}", code="OUTPUT_INVALID")
    if isinstance(plain, dict | list):
        text = json.dumps(plain)
        if KEY in text and not all(_name_of(one[KEY]) in files for one in references(plain)):
            raise NotStorable(f"the result of {what} {_RESERVED}", code="OUTPUT_INVALID")
        # A copy: what is recorded stays, whatever a reader does with it.
        read_result(json.loads(text), read, files, what)
    elif read is not None:
        read_result(plain, read, files, what)
    return plain
