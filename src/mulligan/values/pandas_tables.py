"""Tables of pandas as Arrow tables that bring back the same columns, index and types.

What Arrow does not carry (columns of Python objects, labels of mixed types, the frequency of an index) is recorded in
the schema of the file. What cannot be brought back is refused.
"""

from __future__ import annotations

import io
import json

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The key in the schema's metadata for what we record.
RECORD = b"mulligan"
# The column of a Series without a name.
UNNAMED = "value"
_LABELS = (str, int, float, bool, type(None))


class TableRefused(Exception):
    """A table that a file would not bring back as it is; the message says why."""


class Frames:
    """Converts between pandas and Arrow with the libraries that are given."""

    def __init__(self, pandas: Any, pyarrow: Any, parquet: Any) -> None:
        self._pandas, self._pyarrow, self._parquet = pandas, pyarrow, parquet

    # -- writing

    def plan(self, value: Any) -> tuple[str, Callable[[str, bool], None]]:
        """Return the format that brings the value back, and what writes it to a path, compressed or not."""
        record: dict[str, Any] = {}
        if value.ndim == 1:
            record["is_unnamed"] = value.name is None
            value = value.to_frame(UNNAMED if value.name is None else value.name)
        frame = self._with_plain_labels(value, record)
        freq = getattr(frame.index, "freqstr", None)
        if freq and isinstance(frame.index, (self._pandas.DatetimeIndex, self._pandas.TimedeltaIndex)):
            record["freq"] = freq
        table = self._pyarrow.Table.from_pandas(frame)
        objects = self._object_columns(frame, table)
        if objects:
            record["objects"] = objects
        for format in ("parquet", "arrow"):
            dtypes = self._changed_dtypes(frame, table, objects, format)
            if dtypes is not None:
                break
        else:
            raise TableRefused("its column types would not be the same when it is read")
        if dtypes:
            record["dtypes"] = dtypes
        if record:
            metadata = {**(table.schema.metadata or {}), RECORD: json.dumps(record).encode()}
            table = table.replace_schema_metadata(metadata)
        if format == "parquet":
            return format, lambda path, is_compressed: self._parquet.write_table(
                table, path, compression="zstd" if is_compressed else "none"
            )
        return format, lambda path, is_compressed: write_ipc(self._pyarrow, table, path, is_compressed)

    def _with_plain_labels(self, frame: Any, record: dict[str, Any]) -> Any:
        """Number the columns if their labels are of mixed types or occur twice; the labels are recorded."""
        columns = frame.columns
        if isinstance(columns, self._pandas.CategoricalIndex):
            raise TableRefused("its column labels are a CategoricalIndex; set them to a list")
        if columns.is_unique and (columns.nlevels > 1 or columns.inferred_type not in ("mixed", "mixed-integer")):
            return frame
        labels = columns.tolist()
        if columns.nlevels > 1 or not all(type(label) in _LABELS for label in labels):
            raise TableRefused("its column labels are neither unique nor of one type")
        record["labels"] = labels
        return frame.set_axis([str(at) for at in range(len(labels))], axis="columns")

    def _object_columns(self, frame: Any, table: Any) -> list[int]:
        """Return the columns of Python objects that have to be made from Arrow's values one by one."""
        found = []
        for at, dtype in enumerate(frame.dtypes):
            if dtype.kind != "O" or dtype.name != "object":
                continue
            cells = [_plain(cell) for cell in frame.iloc[:, at].tolist() if not _is_missing(cell)]
            kinds = {type(cell) for cell in cells}
            if kinds and all(kind.__name__ == "ndarray" for kind in kinds):
                continue  # Arrow gives arrays back as arrays
            back = [cell for cell in table.column(at).to_pylist() if cell is not None]
            if kinds != {type(cell) for cell in back} or cells != back:
                raise TableRefused(
                    f"column {frame.columns[at]!r} has objects that would not be the same when they are read "
                    f"({', '.join(sorted(kind.__name__ for kind in kinds))}); use one type that Arrow has, or text"
                )
            found.append(at)
        return found

    def _changed_dtypes(self, frame: Any, table: Any, objects: list[int], format: str) -> dict[str, str] | None:
        """Return the types to set again when the file is read; None if the format loses a type."""
        empty = io.BytesIO()
        head = table.slice(0, 0)
        if format == "parquet":
            self._parquet.write_table(head, empty)
            empty.seek(0)
            back = self._parquet.read_table(empty).to_pandas()
        else:
            write_ipc(self._pyarrow, head, empty, False)
            empty.seek(0)
            back = self._pyarrow.ipc.open_file(empty).read_all().to_pandas()
        if not back.columns.equals(frame.columns) or back.index.names != frame.index.names:
            raise TableRefused("its column labels or its index would not be the same when it is read")
        if back.index.dtype != frame.index.dtype and not _is_kept_index(frame.index, back.index):
            raise TableRefused(f"its index of type {frame.index.dtype} would not be the same when it is read")
        changed: dict[str, str] = {}
        for at, (before, after) in enumerate(zip(frame.dtypes, back.dtypes)):  # noqa: B905 - not before Python 3.10
            is_category = isinstance(before, self._pandas.CategoricalDtype)
            if is_category != isinstance(after, self._pandas.CategoricalDtype):
                return None
            if _full_name(before) != _full_name(after) and at not in objects and not is_category:
                changed[str(at)] = _full_name(before)
        for name in changed.values():
            self._pandas.api.types.pandas_dtype(name)  # raises if there is no such name
        return changed

    # -- reading

    def from_table(self, table: Any, *, is_series: bool) -> Any:
        """Return the DataFrame or the Series."""
        record = json.loads((table.schema.metadata or {}).get(RECORD, b"{}"))
        # No column of numbers has nulls, except one of objects.
        frame = table.to_pandas(integer_object_nulls=True)
        for at in record.get("objects", ()):
            cells = self._pandas.Series(table.column(at).to_pylist(), dtype=object, index=frame.index)
            frame.isetitem(at, cells)
        for at, name in record.get("dtypes", {}).items():
            frame.isetitem(int(at), frame.iloc[:, int(at)].astype(name))
        if "labels" in record:
            frame.columns = record["labels"]
        if "freq" in record:
            frame.index.freq = record["freq"]
        if not is_series:
            return frame
        series = frame.iloc[:, 0]
        return series.rename(None) if record.get("is_unnamed") else series


def write_ipc(pyarrow: Any, table: Any, target: Any, is_compressed: bool) -> None:
    """Write an Arrow table as an IPC file."""
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd" if is_compressed else None)
    with pyarrow.ipc.new_file(target, table.schema, options=options) as writer:
        writer.write_table(table)


def _full_name(dtype: Any) -> str:
    """Return the name of a column type, which for texts does not say how they are stored."""
    name = str(dtype)
    return f"string[{dtype.storage}]" if name == "string" and hasattr(dtype, "storage") else name


def _plain(cell: Any) -> Any:
    """Return a number of numpy as one of Python's, which is what comes back."""
    return cell.item() if type(cell).__module__ == "numpy" and not hasattr(cell, "__len__") else cell


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and cell != cell) or type(cell).__name__ in ("NAType", "NaTType")


def _is_kept_index(before: Any, after: Any) -> bool:
    """Whether two index types differ only in how an empty index shows them."""
    return bool(before.nlevels > 1 or before.inferred_type == "empty" or "category" in (before.dtype, after.dtype))
