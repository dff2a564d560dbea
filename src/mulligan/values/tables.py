"""Tables and arrays as files, with the library of the user: Parquet or Arrow IPC for tables, npy for arrays.

Never a pickle: a file must be safe to read, and other programs must be able to read it.
"""

from __future__ import annotations

import importlib
import io
import sys

from mulligan.values import pandas_tables
from mulligan.values.annotations import TableUnreadable, type_name
from mulligan.values.pandas_tables import Frames, TableRefused
from mulligan.values.table_previews import preview

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ENDINGS = {"parquet": ".parquet", "arrow": ".arrow", "npy": ".npy"}
# The packages that read a type.
_NEEDED = {"numpy": ("numpy",), "pandas": ("pandas", "pyarrow"), "polars": ("polars",), "pyarrow": ("pyarrow",)}


# -- writing ----------------------------------------------------------------------------------------------------------


def write(value: Any, new_path: Callable[[str], str], *, is_compressed: bool = True) -> tuple[str, dict[str, Any]]:
    """Write a table or an array to a new file. Return its path, and what its description says of it, with a preview.

    Raises TableRefused if the file would not bring back the same value.
    """
    kind = next(base for base in type(value).__mro__ if type_name(base) in _WRITERS)
    name = type_name(kind)
    if type(value) is not kind and type_name(type(value)) != "numpy.memmap":
        raise TableRefused(f"it is a subclass of {name}, which would be lost; return a {name}")
    try:
        path, format = _WRITERS[name](value, new_path, is_compressed)
    except (TableRefused, OSError, MemoryError):
        raise
    except Exception as error:
        # Any error of the library: it knows best which column it is about.
        raise TableRefused(_first_line(error)) from None
    return path, {"format": format, "type": name, **_describe(value, name), "preview": preview(value, name)}


def _describe(value: Any, name: str) -> dict[str, Any]:
    if name == "numpy.ndarray":
        return {"shape": list(value.shape)}
    if name.endswith(".Series"):
        return {"rows": len(value)}
    return {"rows": value.shape[0], "columns": value.shape[1]}


def _write_array(array: Any, new_path: Callable[[str], str], _is_compressed: bool) -> tuple[str, str]:
    if array.dtype.hasobject:
        raise TableRefused("its elements are Python objects, which would need a pickle; return a list, or use a dtype")
    path = new_path(ENDINGS["npy"])
    with open(path, "wb") as file:
        sys.modules["numpy"].save(file, array, allow_pickle=False)
    return path, "npy"


def _write_frame(frame: Any, new_path: Callable[[str], str], is_compressed: bool) -> tuple[str, str]:
    """Write a table of pandas by pyarrow, or by fastparquet if that is what the user has."""
    try:
        frames = Frames(sys.modules["pandas"], _library("pyarrow"), _library("pyarrow.parquet"))
    except ImportError:
        return _write_by_fastparquet(frame, new_path, is_compressed), "parquet"
    format, write_file = frames.plan(frame)
    path = new_path(ENDINGS[format])
    write_file(path, is_compressed)
    return path, format


def _write_by_fastparquet(frame: Any, new_path: Callable[[str], str], is_compressed: bool) -> str:
    try:
        _library("fastparquet")
    except ImportError:
        raise TableRefused(f"pandas needs pyarrow to write tables; install pyarrow for '{sys.executable}'") from None
    if type_name(type(frame)) == "pandas.Series":
        raise TableRefused(f"a Series needs pyarrow; install pyarrow for '{sys.executable}', or return a DataFrame")
    path = new_path(ENDINGS["parquet"])
    frame.to_parquet(path, engine="fastparquet", compression="snappy" if is_compressed else None)
    return path


def _write_polars(value: Any, new_path: Callable[[str], str], is_compressed: bool) -> tuple[str, str]:
    """Write Parquet if that keeps all types, otherwise Arrow IPC."""
    polars = sys.modules["polars"]
    frame = value.to_frame() if type_name(type(value)) == "polars.Series" else value
    format = _format_that_keeps(
        lambda file: frame.clear().write_parquet(file), lambda file: polars.read_parquet(file).schema == frame.schema
    )
    path = new_path(ENDINGS[format])
    if format == "parquet":
        frame.write_parquet(path, compression="zstd" if is_compressed else "uncompressed")
    else:
        frame.write_ipc(path, compression="zstd" if is_compressed else "uncompressed")
    return path, format


def _write_arrow(value: Any, new_path: Callable[[str], str], is_compressed: bool) -> tuple[str, str]:
    pyarrow = sys.modules["pyarrow"]
    if type_name(type(value)) == "pyarrow.RecordBatch":
        path = new_path(ENDINGS["arrow"])
        pandas_tables.write_ipc(pyarrow, pyarrow.Table.from_batches([value]), path, is_compressed)
        return path, "arrow"
    format = _format_that_keeps(
        lambda file: _library("pyarrow.parquet").write_table(value.schema.empty_table(), file),
        lambda file: _library("pyarrow.parquet").read_table(file).schema.equals(value.schema, check_metadata=True),
    )
    path = new_path(ENDINGS[format])
    if format == "parquet":
        _library("pyarrow.parquet").write_table(value, path, compression="zstd" if is_compressed else "none")
    else:
        pandas_tables.write_ipc(pyarrow, value, path, is_compressed)
    return path, format


def _format_that_keeps(write: Callable[[Any], Any], is_same: Callable[[Any], Any]) -> str:
    """Return Parquet if an empty table of these columns comes back from it as it was, otherwise Arrow IPC."""
    empty = io.BytesIO()
    try:
        write(empty)
        empty.seek(0)
        return "parquet" if is_same(empty) else "arrow"
    except Exception:
        return "arrow"


_WRITERS: dict[str, Callable[..., tuple[str, str]]] = {
    "numpy.ndarray": _write_array,
    "pandas.DataFrame": _write_frame,
    "pandas.Series": _write_frame,
    "polars.DataFrame": _write_polars,
    "polars.Series": _write_polars,
    "pyarrow.Table": _write_arrow,
    "pyarrow.RecordBatch": _write_arrow,
}


# -- reading ----------------------------------------------------------------------------------------------------------


def read(description: dict[str, Any], source: str | bytes, wanted: str = "") -> Any:
    """Return the value of a file, given by its path or its content: as what it was, or as the `wanted` type.

    Raises TableUnreadable.
    """
    recorded = str(description.get("type", ""))
    name = wanted or recorded
    format = description["format"]
    if name not in _READERS or (format == "npy") != (name == "numpy.ndarray"):
        what = f"is a {recorded}" if recorded else f"has the format '{format}'"
        raise TableUnreadable(f"it {what}, which cannot be read as {name or 'a value'}")
    package = name.partition(".")[0]
    try:
        for library in _NEEDED[package]:
            _library(library)
    except ImportError as error:
        raise TableUnreadable(
            f"it is a {name}, and reading it needs {' and '.join(_NEEDED[package])}; "
            f"'{sys.executable}' cannot import {error.name}: install it there, "
            "or annotate the parameter as pathlib.Path"
        ) from None
    try:
        return _READERS[name](source if isinstance(source, str) else io.BytesIO(source), format, name)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise TableUnreadable(f"it cannot be read as {name}: {_first_line(error)}") from None


def _read_array(source: Any, _format: str, _name: str) -> Any:
    return _library("numpy").load(source, allow_pickle=False)


def _read_frame(source: Any, format: str, name: str) -> Any:
    pyarrow = _library("pyarrow")
    frames = Frames(_library("pandas"), pyarrow, None)
    return frames.from_table(_arrow_table(source, format), is_series=name.endswith(".Series"))


def _read_polars(source: Any, format: str, name: str) -> Any:
    polars = _library("polars")
    if name == "polars.LazyFrame" and isinstance(source, str):
        scan = polars.scan_parquet if format == "parquet" else polars.scan_ipc
        # A path is one file: the name of an item has brackets, and a folder may be called `day=3`.
        return scan(source, glob=False, hive_partitioning=False)
    read_file = polars.read_parquet if format == "parquet" else polars.read_ipc
    if isinstance(source, str):
        with open(source, "rb") as file:
            frame = read_file(file)
    else:
        frame = read_file(source)
    if name == "polars.LazyFrame":
        return frame.lazy()
    return frame.to_series() if name == "polars.Series" else frame


def _read_arrow(source: Any, format: str, name: str) -> Any:
    table = _arrow_table(source, format)
    if name == "pyarrow.Table":
        return table
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else _library("pyarrow").RecordBatch.from_pylist([], schema=table.schema)


def _arrow_table(source: Any, format: str) -> Any:
    if format == "parquet":
        # Not `read_table`, which would read columns from the names of folders.
        return _library("pyarrow.parquet").ParquetFile(source).read()
    with _library("pyarrow").ipc.open_file(source) as reader:
        return reader.read_all()


_READERS: dict[str, Callable[[Any, str, str], Any]] = {
    "numpy.ndarray": _read_array,
    "pandas.DataFrame": _read_frame,
    "pandas.Series": _read_frame,
    "polars.DataFrame": _read_polars,
    "polars.LazyFrame": _read_polars,
    "polars.Series": _read_polars,
    "pyarrow.Table": _read_arrow,
    "pyarrow.RecordBatch": _read_arrow,
}


def _library(name: str) -> Any:
    """Import a library of the user."""
    return importlib.import_module(name)


def _first_line(error: Exception) -> str:
    # pyarrow raises with several arguments; the last one names the column.
    parts = [str(one) for one in error.args] if error.args else [str(error)]
    text = "; ".join(part.strip().splitlines()[0] for part in parts if part.strip())
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
