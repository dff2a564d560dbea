"""The keys of a Prodigy file that say what is in the environment of its commands."""

from __future__ import annotations

from mulligan.formats.prodigy.keys import COMMAND_TEXT
from mulligan.language.action_keys import ANY_TEXT
from mulligan.language.shapes import FLAG, TEXT, Choice, Either, Key, ListOf, MapOf, Record

PROVIDERS = ("env", "file", "vault", "aws", "custom")
_ANYTHING = r"(?s:.+)"

SECRET_VALUE = Record(
    "secret_value",
    {
        "secret": Key(FLAG, "true: the value is hidden wherever it would be shown", is_required=True),
        "value": Key(ANY_TEXT, "the value, best '${env:NAME}'", is_required=True),
    },
)
SECRET = Record(
    "secret",
    {
        "provider": Key(Choice(PROVIDERS), "env: a variable of the worker; file: a file. The others are refused"),
        "key": Key(TEXT, "the name of the variable, or the path of the file", is_required=True),
        "version": Key(ANY_TEXT, "which version of a secret in a vault: refused with the vault"),
    },
)
VALUE_FORM = Either(
    "a text, a number, true, false, or a secret",
    text=ANY_TEXT,
    number=ANY_TEXT,
    flag=ANY_TEXT,
    empty=ANY_TEXT,
    mapping=SECRET_VALUE,
)
SECRET_FORM = Either("'${env:NAME}' or a mapping", text=COMMAND_TEXT, mapping=SECRET)
PROFILE = MapOf(ANY_TEXT)

ENVIRONMENT_KEYS = {
    "env": Key(MapOf(VALUE_FORM), "environment variables of every command"),
    "secrets": Key(MapOf(SECRET_FORM), "environment variables whose values are hidden"),
    "env_files": Key(ListOf(TEXT, or_one=True), "files with a variable per line; one that is missing is refused"),
    "profiles": Key(
        MapOf(PROFILE, _ANYTHING, names="characters"),
        "other values of variables, chosen with the input 'profile'",
    ),
}
RECORDS: tuple[Record, ...] = (SECRET_VALUE, SECRET)
