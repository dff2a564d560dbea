"""What the pipeline does with pandas: raw orders in, one row per product and country out."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd


def summarise(pages: list[list[dict[str, Any]]], rate: float) -> list[dict[str, Any]]:
    """Sales in euros by product and country. An order that came twice counts once."""
    received = pd.DataFrame([order for page in pages for order in page])
    orders = received.drop_duplicates("id").copy()
    print(f"{len(received)} orders received, {len(orders)} different ones")

    orders["country"] = orders["country"].fillna("unknown")
    orders["euros"] = pd.to_numeric(orders["usd"].str.replace(",", "")) * rate
    sales = orders.groupby(["product", "country"], as_index=False).agg(orders=("id", "count"), euros=("euros", "sum"))
    sales["euros"] = sales["euros"].round(2)
    # By way of JSON: a step returns plain numbers, and a data frame holds numpy's.
    return json.loads(sales.to_json(orient="records"))
