"""The last look at the SQL that is sent to a database, without the parser that read it and the writer that wrote it.

The text was written from a checked tree: every name stands in double quotes, and there are no comments. So every other
word is a keyword, a type or a function, and all of them are known. A word that is not on the lists means that the
tree and its text do not say the same, and the text is refused.
"""

from __future__ import annotations

import re

from mulligan_nl2sql.checking.allowed_functions import NAMES
from mulligan_nl2sql.checking.refusals import refuse
from mulligan_nl2sql.failures import Code

_TOKEN = re.compile(
    r"""(?P<space>[ \n]+)
    |(?P<name>"[^"\0]*(?:""[^"\0]*)*")
    |(?P<text>'[^'\0]*(?:''[^'\0]*)*')
    |(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign><>|<=|>=|!=|\|\||//|==|-(?!-)|/(?!\*)|[+*%(),.=<>])""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(
    "ALL AND AS ASC AT BETWEEN BY CASE COLLATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DESC DISTINCT "
    "ELSE END ESCAPE EXCEPT EXISTS FALSE FILTER FIRST FOLLOWING FOR FROM FULL GLOB GROUP GROUPS HAVING IGNORE ILIKE IN "
    "INNER INTERSECT INTERVAL IS JOIN LAST LEFT LIKE LIMIT MATERIALIZED NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER "
    "PARTITION PRECEDING QUALIFY RANGE RIGHT ROW ROWS SELECT THEN TIME TRUE UNBOUNDED UNION USING WHEN WHERE WINDOW "
    "WITH WITHIN ZONE BOTH LEADING TRAILING "
    # Units and collations.
    "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND YEARS QUARTERS MONTHS WEEKS DAYS HOURS MINUTES SECONDS DECADE "
    "CENTURY DOW ISODOW DOY ISOYEAR EPOCH DAYOFWEEK DAYOFYEAR WEEKDAY NOCASE BINARY RTRIM "
    # Types.
    "TEXT VARCHAR CHAR INT INTEGER BIGINT SMALLINT TINYINT REAL FLOAT DOUBLE PRECISION DECIMAL NUMERIC BOOLEAN DATE "
    "TIMESTAMP TIMESTAMPTZ DATETIME UUID".split()
)
# Keywords that a parenthesis may follow without being a call.
_BEFORE_PARENTHESIS = frozenset(
    "ALL AND AS BETWEEN BY CASE DISTINCT ELSE EXCEPT EXISTS FILTER FROM GLOB HAVING ILIKE IN INTERSECT IS JOIN LIKE "
    "NOT ON OR OVER SELECT THEN UNION USING WHEN WHERE GROUP QUALIFY ESCAPE MATERIALIZED "
    "VARCHAR CHAR DECIMAL NUMERIC TIME TIMESTAMP TIMESTAMPTZ INTERVAL".split()
)


def check_text(text: str, dialect: str, functions: frozenset[str]) -> None:
    """Refuse a text with a word, or a sign, that no checked tree has. `functions` are further names."""
    functions = NAMES[dialect] | functions
    at, before = 0, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise refuse(Code.UNSUPPORTED, f"the statement has the sign '{text[at]}', which may not be used")
        at = token.end()
        if token["space"]:
            continue
        if token[0] == "(" and before and before not in _BEFORE_PARENTHESIS and before.lower() not in functions:
            raise refuse(Code.FUNCTION_FORBIDDEN, f"'{before}' may not be called")
        if token["word"] is not None:
            before = token["word"].upper()
            if before not in _KEYWORDS and before.lower() not in functions:
                raise refuse(Code.UNSUPPORTED, f"the word '{token['word']}' may not be used in a query")
        else:
            # A name in quotes that is followed by a parenthesis would be a call too.
            before = token[0] if token["name"] else ""
