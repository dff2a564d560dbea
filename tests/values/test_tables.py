"""Tables and arrays: written as files, read back as what they were."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

import mulligan
from mulligan.values.decoding import ArgumentMisfit, convert_value
from mulligan.values.encoding import PREVIEWS_MAX, ValueRefused
from mulligan.values.files import StoredFile, load_files, load_output
from mulligan.values.table_previews import preview
from mulligan.values.tables import TableUnreadable

from .sinks import FolderSink


def round_trip(sink: FolderSink, value: Any) -> Any:
    """What a step gets of what another returned; and what a program reads is the same."""
    output = sink.encode(value)
    assert_same(load_output(output, sink.read_bytes), value)
    return load_files(sink.with_files(output))


def assert_same(found: Any, value: Any) -> None:
    assert type(found) is type(value)
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(found, value, check_freq=True)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(found, value, check_freq=True)
    elif isinstance(value, pl.DataFrame):
        assert found.schema == value.schema
        assert found.equals(value)
    elif isinstance(value, pl.Series):
        assert (found.name, found.dtype) == (value.name, value.dtype)
        assert found.equals(value)
    elif isinstance(value, np.ndarray):
        np.testing.assert_array_equal(found, value)
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
    else:
        assert found.equals(value)
        assert found.schema.equals(value.schema, check_metadata=True)


# -- previews ---------------------------------------------------------------------------------------------------------


class Unreadable:
    def __str__(self) -> str:
        raise ValueError("never")


def preview_of(value: Any) -> Any:
    package = "pyarrow" if isinstance(value, pa.Table | pa.RecordBatch) else type(value).__module__.partition(".")[0]
    return preview(value, f"{package}.{type(value).__name__}")


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame({"day": [dt.date(2026, 1, 1), None], "n": [1.5, float("nan")], "b": [b"12", None]}),
        pl.DataFrame({"day": [dt.date(2026, 1, 1), None], "n": [1.5, None], "b": [b"12", None]}),
        pa.table({"day": [dt.date(2026, 1, 1), None], "n": [1.5, None], "b": [b"12", None]}),
        pa.RecordBatch.from_pydict({"day": [dt.date(2026, 1, 1), None], "n": [1.5, None], "b": [b"12", None]}),
    ],
)
def test_a_preview_has_the_columns_and_the_first_rows_as_text(value: Any):
    found = preview_of(value)

    assert [name for name, _ in found["columns"]] == ["day", "n", "b"]
    assert found["rows"] == [["2026-01-01", "1.5", "2 bytes"], ["null", "null", "null"]]


def test_the_index_of_pandas_comes_first():
    sums = pd.DataFrame({"region": ["a", "b", "a"], "sold": [1, 2, 3]}).groupby("region").sum()

    found = preview_of(sums)

    assert ([name for name, _ in found["columns"]], found["rows"], found["index"]) == (
        ["region", "sold"],
        [["a", "4"], ["b", "2"]],
        1,
    )


@pytest.mark.parametrize(
    ("value", "columns", "rows"),
    [
        (pd.DataFrame(), 0, 0),
        (pl.DataFrame(), 0, 0),
        (pd.DataFrame({"a": []}), 1, 0),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), 2, 1),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), 2, 1),
        (pd.DataFrame(np.zeros((3, 10_000))), 40, 3),
        (lambda: pd.DataFrame({"o": [Unreadable(), ["x"] * 100_000]}), 1, 2),
        (pl.Series("s", range(100)), 1, 5),
    ],
)
def test_a_preview_of_an_odd_table_is_small(value: Any, columns: int, rows: int):
    # Pytest would show what cannot be shown.
    found = preview_of(value() if callable(value) else value)

    assert (len(found["columns"]), len(found["rows"])) == (columns, rows)
    assert all(len(row) <= 12 and all(len(cell) <= 100 for cell in row) for row in found["rows"])


def test_an_array_has_no_preview_and_of_many_tables_the_first_ones_have_one(sink: FolderSink):
    sink.encode([np.zeros(3), *[pd.DataFrame({"a": [1]})] * 40])

    assert sink.previews[0] is None
    assert [one is not None for one in sink.previews].count(True) == PREVIEWS_MAX - 1


# -- pandas -----------------------------------------------------------------------------------------------------------

DAYS = pd.date_range("2026-03-28", periods=3, freq="D", tz="Europe/Berlin")
FRAMES: dict[str, Callable[[], pd.DataFrame | pd.Series]] = {
    "numbers": lambda: pd.DataFrame({"a": [1, 2], "b": [0.5, float("nan")], "c": np.array([1, 2**64 - 1], "uint64")}),
    "small numbers": lambda: pd.DataFrame({"a": np.array([1, 2], "int8"), "b": np.array([1, 2], "float16")}),
    "text": lambda: pd.DataFrame({"a": ["x", None], "b": pd.array(["x", None], dtype="string[python]")}),
    "objects": lambda: pd.DataFrame(
        {"a": pd.Series(["x", None], dtype=object), "b": pd.Series([1, None], dtype=object)}
    ),
    "booleans": lambda: pd.DataFrame({"a": pd.array([True, None], dtype="boolean"), "b": [True, False]}),
    "nullable": lambda: pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
    "ordered categories": lambda: pd.DataFrame(
        {"a": pd.Categorical(["x", "y", None], categories=["y", "x", "unused"], ordered=True)}
    ),
    "categories of numbers": lambda: pd.DataFrame({"a": pd.Categorical([3, 1, 3])}),
    "times": lambda: pd.DataFrame({"zone": DAYS, "utc": DAYS.tz_convert("UTC"), "none": DAYS.tz_localize(None)}),
    "units of times": lambda: pd.DataFrame({u: pd.to_datetime([1, 2], unit="s").as_unit(u) for u in ("s", "ms", "ns")}),
    "offset": lambda: pd.DataFrame({"a": pd.to_datetime(["2026-01-01T00:00:00+02:30"])}),
    "durations": lambda: pd.DataFrame({"a": pd.to_timedelta([1, None], unit="s")}),
    "periods": lambda: pd.DataFrame({"a": pd.period_range("2026", periods=2, freq="M")}),
    "intervals": lambda: pd.DataFrame({"a": pd.interval_range(0, 2)}),
    "dates and decimals": lambda: pd.DataFrame({"a": [dt.date(2026, 1, 1)], "b": [decimal.Decimal("1.20")]}),
    "bytes, times, uuids": lambda: pd.DataFrame({"a": [b"\x00"], "b": [dt.time(1)], "c": [uuid.UUID(int=1)]}),
    "numbers of numpy as objects": lambda: pd.DataFrame({"a": pd.Series([np.int64(1), np.int64(2)], dtype=object)}),
    "lists": lambda: pd.DataFrame({"a": [[1, 2], [3]]}),
    "arrays": lambda: pd.DataFrame({"a": [np.array([1.0, 2.0]), np.array([3.0])]}),
    "named index": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k")),
    "range index": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 9, 2)),
    "days as index": lambda: pd.DataFrame({"a": [1, 2, 3]}, index=DAYS),
    "index of levels": lambda: pd.DataFrame(
        {"a": [1, 2]}, index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", None])
    ),
    "index of categories": lambda: pd.DataFrame({"a": [1, 2]}, index=pd.CategoricalIndex(["x", "y"])),
    "numbered columns": lambda: pd.DataFrame({0: [1], 1: [2]}),
    "columns of levels": lambda: pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")])),
    "dates as columns": lambda: pd.DataFrame([[1, 2, 3]], columns=pd.DatetimeIndex(DAYS, freq=None)),
    "mixed columns": lambda: pd.DataFrame({0: [1], "a": [2]}),
    "equal columns": lambda: pd.DataFrame([[1, "x"]], columns=["a", "a"]),
    "named columns": lambda: pd.DataFrame({"a": [1]}).rename_axis(columns="cols"),
    "no columns": lambda: pd.DataFrame(index=[1, 2]),
    "no rows": lambda: pd.DataFrame({"a": pd.Series([], dtype="int32"), "b": pd.Series([], dtype=object)}),
    "nothing": pd.DataFrame,
    "series": lambda: pd.Series([1, 2], name="n", index=["a", "b"]),
    "series without name": lambda: pd.Series([1.5, 2.5]),
    "series with a number as name": lambda: pd.Series([1], name=7),
    "series of times": lambda: pd.Series([1, 2, 3], index=DAYS, dtype="int16"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_table_of_pandas_comes_back_as_it_was(sink: FolderSink, name: str) -> None:
    value = FRAMES[name]()

    found = round_trip(sink, value)

    assert_same(found, value)


COLUMNS = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=3, max_size=3).map(
        lambda c: pd.Series(c, dtype=object)
    ),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(pd.Series),
    st.lists(st.one_of(st.none(), st.integers(0, 255)), min_size=3, max_size=3).map(
        lambda c: pd.Series(c, dtype="UInt8")
    ),
    st.lists(st.floats(), min_size=3, max_size=3).map(pd.Series),
    st.lists(st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)), min_size=3, max_size=3).map(pd.Series),
    st.lists(st.sampled_from("abc"), min_size=3, max_size=3).map(lambda c: pd.Series(c, dtype="category")),
    st.lists(st.decimals(-1000, 1000, places=2), min_size=3, max_size=3).map(lambda c: pd.Series(c, dtype=object)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(20, 60))
@given(columns=st.dictionaries(st.one_of(st.text(max_size=3), st.integers(0, 5)), COLUMNS, max_size=4))
def test_any_mixture_of_columns_comes_back_as_it_was(sink: FolderSink, columns: dict[Any, pd.Series]) -> None:
    value = pd.DataFrame(columns)

    assert_same(load_output(sink.encode(value), sink.read_bytes), value)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"a": pd.Series(["x", 1], dtype=object)}, "Conversion failed for column a with type object"),
        ({"a": [{"x": 1}, {"y": 2}]}, "column 'a' has objects that would not be the same when they are read (dict)"),
        ({"a": [(1, 2)]}, "column 'a' has objects that would not be the same when they are read (tuple)"),
        ({"a": [1j]}, "Conversion failed for column a with type complex128"),
        ({"a": pd.arrays.SparseArray([0, 1])}, "Sparse pandas data (column a) not supported."),
    ],
)
def test_a_table_that_would_come_back_changed_is_refused(sink: FolderSink, frame: Any, reason: str) -> None:
    with pytest.raises(ValueRefused) as caught:
        sink.encode({"train": pd.DataFrame(frame)})

    assert str(caught.value).startswith("the result['train'] is of type 'pandas.DataFrame' and cannot be stored: ")
    assert reason in str(caught.value)


# -- polars, Arrow, numpy ---------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1], []], "d": [{"x": 1}, {"x": None}]}),
    "polars times": lambda: pl.DataFrame(
        {
            "a": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
            "b": [dt.date(2026, 1, 1)],
            "c": [dt.timedelta(1)],
            "d": [dt.time(1)],
        }
    ),
    "polars categories": lambda: pl.DataFrame(
        {"a": pl.Series(["x", "y"], dtype=pl.Categorical), "b": pl.Series(["x", "y"], dtype=pl.Enum(["y", "x", "z"]))}
    ),
    "polars numbers": lambda: pl.DataFrame(
        {str(t): pl.Series([1, None], dtype=t) for t in (pl.Int8, pl.UInt64, pl.Float32, pl.Decimal(10, 2), pl.Int128)}
    ),
    "polars nulls": lambda: pl.DataFrame({"a": [None, None]}),
    "polars array": lambda: pl.DataFrame({"a": pl.Series([[1, 2]], dtype=pl.Array(pl.Int16, 2))}),
    "polars empty": pl.DataFrame,
    "polars series": lambda: pl.Series("n", [1, 2, None]),
    "polars series without name": lambda: pl.Series([b"x"]),
    "arrow": lambda: pa.table({"a": [1, None], "b": pa.array(["x", "y"]).dictionary_encode()}),
    "arrow metadata": lambda: pa.table({"a": [1]}).replace_schema_metadata({"k": "v"}),
    "arrow union": lambda: pa.table(
        {"a": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])}
    ),
    "arrow types": lambda: pa.table(
        {"a": pa.array([1], pa.duration("s")), "b": pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string()))}
    ),
    "arrow empty": lambda: pa.table({"a": pa.array([], pa.int32())}),
    "arrow batch": lambda: pa.record_batch({"a": [1, 2]}),
    "arrow empty batch": lambda: pa.record_batch({"a": pa.array([], pa.int32())}),
    "array": lambda: np.arange(6, dtype="int16").reshape(2, 3),
    "array in the order of Fortran": lambda: np.asfortranarray(np.ones((2, 3))),
    "array of one": lambda: np.array(3.5),
    "array of nothing": lambda: np.zeros((0, 3)),
    "array of texts": lambda: np.array(["a", "ü"]),
    "array of times": lambda: np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
    "array of records": lambda: np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "array of complex numbers": lambda: np.array([1 + 2j]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_arrays_come_back_as_they_were(sink: FolderSink, name: str) -> None:
    value = TABLES[name]()

    found = round_trip(sink, value)

    assert_same(found, value)


def test_a_reference_says_what_the_file_is(sink: FolderSink) -> None:
    output = sink.encode(
        {"frame": pd.DataFrame({"a": [1, 2]}), "array": np.ones((2, 3)), "union": TABLES["arrow union"](), "n": 3}
    )

    shown = {
        name: {key: value for key, value in one["$artifact"].items() if key not in ("name", "size", "sha256")}
        for name, one in output.items()
        if name != "n"
    }
    assert shown == {
        "frame": {"format": "parquet", "type": "pandas.DataFrame", "rows": 2, "columns": 1},
        "array": {"format": "npy", "type": "numpy.ndarray", "shape": [2, 3]},
        "union": {"format": "arrow", "type": "pyarrow.Table", "rows": 2, "columns": 1},
    }
    assert output["n"] == 3


# -- as something else ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (pd.DataFrame({"a": [1]}), pl.DataFrame, pl.DataFrame({"a": [1]})),
        (pd.DataFrame({"a": [1]}), pa.Table, None),
        (pl.DataFrame({"a": [1]}), pd.DataFrame, pd.DataFrame({"a": [1]})),
        (pl.DataFrame({"a": [1]}), list[pd.DataFrame], pd.DataFrame({"a": [1]})),
        (pa.table({"a": [1]}), pl.DataFrame, pl.DataFrame({"a": [1]})),
        (pa.record_batch({"a": [1]}), pl.DataFrame, pl.DataFrame({"a": [1]})),
        (pa.record_batch({"a": [1]}), pd.DataFrame, pd.DataFrame({"a": [1]})),
        (pa.table({"a": [1]}), pd.DataFrame | None, pd.DataFrame({"a": [1]})),
        (np.ones(2), np.ndarray, np.ones(2)),
        (np.ones(2), np.ndarray[Any, np.dtype[np.float64]], np.ones(2)),
    ],
)
def test_an_annotation_chooses_the_library_that_reads_a_table(
    sink: FolderSink, value: Any, annotation: Any, expected: Any
) -> None:
    given_value = sink.with_files(sink.encode(value))
    is_list = getattr(annotation, "__origin__", None) is list

    found = convert_value([given_value] if is_list else given_value, annotation)

    found = found[0] if is_list else found
    if expected is None:
        assert found.to_pydict() == {"a": [1]}
    else:
        assert_same(found, expected)


def test_a_lazy_frame_a_path_and_bytes_read_the_file_itself(sink: FolderSink) -> None:
    stored = sink.with_files(sink.encode(pl.DataFrame({"a": [1, 2]})))

    assert convert_value(stored, pl.LazyFrame).select("a").collect().height == 2
    assert convert_value(sink.with_files(sink.encode(TABLES["arrow batch"]())), pl.LazyFrame).collect().height == 2
    assert convert_value(stored, Path).suffix == ".parquet"
    assert convert_value(stored, bytes).startswith(b"PAR1")


@pytest.mark.parametrize("name", ["item[0]", "a*", "day=3", "a b%20"])
def test_a_path_is_one_file_whatever_characters_are_in_it(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    sink = FolderSink(folder)

    for value in (
        pl.DataFrame({"a": [1]}),
        pd.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
        pa.record_batch({"a": [1]}),
    ):
        stored = sink.with_files(sink.encode(value))
        assert_same(stored.load(), value)
        assert convert_value(stored, pl.LazyFrame).collect().columns == ["a"]


def test_a_table_that_cannot_be_read_as_what_is_wanted_is_refused(sink: FolderSink) -> None:
    table, array = (sink.with_files(sink.encode(value)) for value in (pl.DataFrame({"a": [1]}), np.ones(2)))

    with pytest.raises(TableUnreadable, match=r"it is a polars.DataFrame, which cannot be read as numpy.ndarray"):
        convert_value(table, np.ndarray)
    with pytest.raises(TableUnreadable, match=r"it is a numpy.ndarray, which cannot be read as pandas.DataFrame"):
        convert_value(array, pd.DataFrame)
    with pytest.raises(ArgumentMisfit, match=r"the value must be a pandas.DataFrame, and is \[1\]"):
        convert_value([1], pd.DataFrame)


def test_tables_inside_of_typed_values_come_back(sink: FolderSink) -> None:
    output = sink.encode({"a": {"b": [pl.DataFrame({"a": [1]}), 3]}})

    found = load_files(sink.with_files(output))

    assert found["a"]["b"][0].equals(pl.DataFrame({"a": [1]}))
    assert found["a"]["b"][1] == 3


def test_a_damaged_file_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)

    with pytest.raises(TableUnreadable, match=r"cannot be read as numpy.ndarray"):
        StoredFile(str(path), {"$artifact": {"format": "npy", "type": "numpy.ndarray"}}).load()


def test_a_missing_library_is_named_with_the_interpreter(sink: FolderSink) -> None:
    output = sink.encode(pl.DataFrame({"a": [1]}))
    path = sink.with_files(output).path
    program = f"""
import sys
sys.path.append({str(Path(mulligan.__file__).parent.parent)!r})
from mulligan.values.files import StoredFile
try:
    StoredFile({path!r}, {output!r}).load()
except Exception as error:
    print(error)
"""

    found = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == (
        f"it is a polars.DataFrame, and reading it needs polars; '{sys.executable}' cannot import polars: "
        "install it there, or annotate the parameter as pathlib.Path"
    )
