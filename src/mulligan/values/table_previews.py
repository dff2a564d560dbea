"""The first rows and the columns of a table as text, with the library that the step has loaded.

The worker bounds, redacts and checks it: see `core.model.table_preview`.
"""

from __future__ import annotations

import reprlib

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROWS_MAX, COLUMNS_MAX, CELLS_MAX, CHARS_MAX = 5, 40, 12, 100
MISSING = "null"


def preview(value: Any, name: str) -> dict[str, Any] | None:
    """Columns as pairs of name and type, and rows as texts; None of an array, or if the library refuses.

    `name` is the type's. The first `index` columns are the index of pandas, if it is not only numbers.
    """
    read = _READERS.get(name)
    if read is None:
        return None
    try:
        columns, cells, index = read(value)
        heads = [[_text(label), _text(kind)] for label, kind in columns]
        shown = ([_cell(one) for one in column] for column in cells[:CELLS_MAX])
        rows = [[*row] for row in zip(*shown)]  # noqa: B905 - not before 3.10
    except Exception:
        # It is only a preview: the table itself is stored.
        return None
    return {"columns": heads, "rows": rows, "index": index}


def _read_pandas(value: Any) -> Any:
    frame = value.to_frame() if value.ndim == 1 else value
    head = frame.iloc[:ROWS_MAX, :COLUMNS_MAX]
    columns = [*zip(head.columns, head.dtypes)]  # noqa: B905 - not before 3.10
    cells = [head.iloc[:, at].tolist() for at in range(len(columns))]
    index = head.index
    if type(index).__name__ == "RangeIndex":
        return columns, cells, 0
    levels = range(index.nlevels)
    names = [("" if name is None else name, index.get_level_values(at).dtype) for at, name in enumerate(index.names)]
    return [*names, *columns], [*(index.get_level_values(at).tolist() for at in levels), *cells], index.nlevels


def _read_polars(value: Any) -> Any:
    frame = value.to_frame() if not hasattr(value, "columns") else value
    names = frame.columns[:COLUMNS_MAX]
    head = frame.select(names).head(ROWS_MAX)
    return [(name, head.schema[name]) for name in names], [head[name].to_list() for name in names], 0


def _read_arrow(value: Any) -> Any:
    fields = [value.schema.field(at) for at in range(min(value.num_columns, COLUMNS_MAX))]
    cells = [value.column(at).slice(0, ROWS_MAX).to_pylist() for at in range(len(fields))]
    return [(field.name, field.type) for field in fields], cells, 0


_READERS: dict[str, Callable[[Any], Any]] = {
    "pandas.DataFrame": _read_pandas,
    "pandas.Series": _read_pandas,
    "polars.DataFrame": _read_polars,
    "polars.Series": _read_polars,
    "pyarrow.Table": _read_arrow,
    "pyarrow.RecordBatch": _read_arrow,
}


def _cell(value: Any) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return MISSING
    if isinstance(value, float):
        return MISSING if value != value else repr(float(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value):,} bytes"
    return _text(value)


def _text(value: Any) -> str:
    """A short text of anything, whatever its class does; UTF-8 can hold it."""
    try:
        if isinstance(value, str):
            text = str.__str__(value[:CHARS_MAX])
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            # The beginning of it, however large or deep it is.
            text = reprlib.repr(value)
        else:
            text = str(value)[:CHARS_MAX]
    except Exception:
        text = f"a {type(value).__name__} that cannot be shown"
    return text[:CHARS_MAX].encode("utf-8", "replace").decode()
