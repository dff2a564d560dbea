"""The functions that a query may call: kinds of nodes of the tree, and the names that a database is sent.

A function is here if it computes a value from its arguments, in time and space that its arguments bound. Whatever reads
files, settings, catalogues or the network, sleeps, locks, writes, or makes long texts from short ones is not.
"""

from __future__ import annotations

from sqlglot import exp

_ANYWHERE = (
    "abs avg case cast ceil ceiling coalesce concat count cume_dist date dense_rank exp first_value floor lag "
    "last_value lead length ln log lower ltrim max min mod nth_value ntile nullif percent_rank pow power rank round "
    "row_number rtrim sign sqrt substr substring sum trim upper"
)
_BY_DIALECT = {
    "sqlite": "datetime group_concat ifnull iif instr julianday strftime time total unixepoch",
    "duckdb": (
        "age any_value approx_count_distinct arg_max arg_min avg bool_and bool_or concat_ws contains count_if "
        "date_add date_diff date_part date_sub date_trunc datepart day dayname dayofmonth dayofweek dayofyear "
        "ends_with epoch extract greatest hour ifnull isodow last_day least left listagg make_date median minute "
        "mode month monthname now position quantile_cont quantile_disc quarter right second starts_with stddev "
        "stddev_pop stddev_samp strftime string_agg strpos strptime trunc try_cast var_pop var_samp variance "
        "week weekday weekofyear year"
    ),
    "postgres": (
        "age bool_and bool_or btrim char_length concat_ws date_part date_trunc every extract greatest initcap isfinite "
        "least left make_date mode now percentile_cont percentile_disc position right split_part stddev stddev_pop "
        "stddev_samp string_agg strpos to_char to_date to_timestamp trunc var_pop var_samp variance"
    ),
}
# In lower case, as they are called in each dialect.
NAMES: dict[str, frozenset[str]] = {
    dialect: frozenset(f"{_ANYWHERE} {names}".split()) for dialect, names in _BY_DIALECT.items()
}

KINDS: frozenset[type[exp.Expr]] = frozenset(
    {
        # Conditions and casts.
        *(exp.And, exp.Or, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.Coalesce, exp.Nullif, exp.Exists),
        # Aggregates.
        *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.GroupConcat, exp.AnyValue),
        *(exp.ApproxDistinct, exp.ArgMax, exp.ArgMin, exp.LogicalAnd, exp.LogicalOr, exp.Median, exp.Mode),
        *(exp.PercentileCont, exp.PercentileDisc),
        *(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
        # Windows.
        *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
        *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
        # Numbers.
        *(exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Log, exp.Sign),
        *(exp.Greatest, exp.Least),
        # Texts.
        *(exp.Concat, exp.ConcatWs, exp.Contains, exp.EndsWith, exp.Initcap, exp.Left, exp.Length, exp.Lower),
        *(exp.Right, exp.SplitPart, exp.StartsWith, exp.StrPosition, exp.Substring, exp.Trim, exp.Upper),
        # Dates.
        *(exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Date, exp.DateAdd, exp.DateDiff, exp.DateSub),
        *(exp.DateTrunc, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Dayname, exp.Extract, exp.Hour),
        *(exp.LastDay, exp.Minute, exp.Month, exp.Monthname, exp.Quarter, exp.Second, exp.StrToDate, exp.StrToTime),
        *(exp.TimeToStr, exp.TimeToUnix, exp.TimestampTrunc, exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.Week),
        *(exp.WeekOfYear, exp.Year),
    }
)

# Functions that nobody calls by mistake. The list decides how severe a refusal is, and nothing else: what is on neither
# list is refused too.
_DANGEROUS_PREFIXES = tuple(
    "pg_ lo_ dblink query_to_ table_to_ schema_to_ database_to_ cursor_to_ xml binary_upgrade_ load_ read_ write fts3_ "
    "sqlite_ duckdb_ pragma_ has_ inet_ txid_ set_ current_setting getenv sniff_ parquet_ glob query json_execute "
    "postgres_ mysql_ iceberg_ delta_ http curl shell system exec sleep".split()
)
_DANGEROUS = frozenset(
    "edit generate_series nextval setval lastval currval readfile writefile zeroblob randomblob repeat lpad rpad "
    "version current_version user current_user session_user current_database current_catalog current_schema "
    "current_schemas to_regclass to_regproc format_type obj_description col_description shobj_description row_to_json "
    "to_json to_jsonb getvariable which_secret benchmark crypt decrypt".split()
)


def is_dangerous(name: str) -> bool:
    lowered = name.lower()
    return lowered in _DANGEROUS or lowered.startswith(_DANGEROUS_PREFIXES)
