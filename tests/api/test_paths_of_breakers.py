"""Names of breakers with a key have slashes, colons and brackets, and still are one segment of a path."""

from __future__ import annotations

from urllib.parse import quote

from mulligan.api.http.path_table import PathTable
from mulligan.api.routes import ROUTES


def test_the_name_of_a_breaker_with_a_key_reaches_its_route_whole() -> None:
    name = "db[postgresql://u:[hidden]@h/db?a=b:reset]"

    found = PathTable(ROUTES).find(f"/api/v1/breakers/{quote(name, safe='')}:reset")

    assert found is not None and found.values == (name,)
