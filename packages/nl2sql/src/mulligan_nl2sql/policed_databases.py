"""A database together with the policy that holds for it: what every step begins with."""

from __future__ import annotations

import os
from pathlib import Path

from mulligan_nl2sql.database_urls import Database, parse_url, url_with_password
from mulligan_nl2sql.policy import Policy, read_policies


def find_database(url: str, policy: str = "", name: str = "") -> tuple[Database, Policy]:
    """The database of a URL, with its password from the environment, and its section of the policy file."""
    found = parse_url(url_with_password(url, os.environ, name), name=name)
    return found, read_policies(Path(policy)).for_database(found.name) if policy else Policy()
