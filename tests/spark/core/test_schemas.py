"""The reference documentation of tables agrees with their columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns
from tambomq.spark.sink.rows import fields

REFERENCE = Path(__file__).parents[3] / "docs/reference/spark.md"
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
    documented = [(row[0].strip("| `"), row[1], row[2].strip(" |")) for row in rows]
    columns = TABLES[name]
    assert [(name, about) for name, _, about in documented] == [
        (each.name, each.about) for each in columns
    ]
    for column, kind, _ in documented:
        assert f"`{column}` {kind} COMMENT" in columns.ddl


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith("_WRITTEN")])
def test_every_column_that_is_written_has_types_that_spark_has(name: str) -> None:
    for field in fields(TABLES[name]):
        assert any(field.takes(kind) for kind in ("string", "long", "timestamp"))
        assert not field.takes("void")
