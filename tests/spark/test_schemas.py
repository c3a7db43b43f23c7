"""What the reference says of tables is what they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.spark import schemas
from tambomq.spark.columns import Columns

REFERENCE = Path(__file__).parents[2] / "docs/reference/spark.md"
TABLES = {
    name: found
    for name, found in vars(schemas).items()
    if isinstance(found, Columns) and not name.startswith("_")
}


@pytest.mark.parametrize("name", TABLES)
def test_the_reference_has_every_column_of_a_table(name: str) -> None:
    protocol, _, table = name.lower().partition("_")
    section = REFERENCE.read_text().partition(f"**{protocol}: {table}**")[2].partition("\n**")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    told = [(row[0].strip("| `"), row[2].strip(" |")) for row in rows]
    assert told == [(column.name, column.about) for column in TABLES[name]]
