"""A check of the SQL expressions of a redrive: refuses those that reach beyond the row they see.

The options of a redrive are stored in Redis, where others can write. So its expressions may not
call Java, read files or tables, or reach the network, whoever wrote them. The check walks the tree
of Spark's own parser, which resolves and runs nothing; comments, case and quotes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tambomq.errors import SettingsError

REFUSED: Final = frozenset(
    (
        # Any method of any class that the JVM can load.
        *("reflect", "java_method", "try_reflect"),
        # Their options name files or addresses: schemas, descriptors.
        *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
        *("from_xml", "to_xml", "schema_of_xml"),
        # An XML document may refer to files or addresses, which its parser opens.
        *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long"),
        *("xpath_number", "xpath_short", "xpath_string"),
        # These show the paths of files.
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
    )
)
_ANALYSIS: Final = "org.apache.spark.sql.catalyst.analysis."
_FUNCTION: Final = f"{_ANALYSIS}UnresolvedFunction"
_COMPUTED_NAME: Final = f"{_ANALYSIS}ExpressionWithUnresolvedIdentifier"
_SUBQUERY: Final = "org.apache.spark.sql.catalyst.expressions.PlanExpression"


def check(spark: Any, text: str, flag: str) -> None:
    """Raise `SettingsError` if the expression *text*, which *flag* gave, reaches beyond its row.

    Raises what Spark raises for an expression that cannot be parsed.
    """
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        raise SettingsError(f"{flag} cannot be checked through Spark Connect: use another --master")
    subquery = spark._jvm.java.lang.Class.forName(_SUBQUERY)  # noqa: SLF001  (PySpark has no other way to its parser)
    for node in _nodes(java.sessionState().sqlParser().parseExpression(text)):
        kind = node.getClass().getName()
        if subquery.isInstance(node):
            raise SettingsError(
                f"{flag}: a subquery may not be used here, only the letter's columns"
            )
        if kind == _COMPUTED_NAME:
            raise SettingsError(f"{flag}: IDENTIFIER() may not be used here: write the name")
        if kind == _FUNCTION:
            _check_name([*_items(node.nameParts())], flag)


def _check_name(parts: list[str], flag: str) -> None:
    if len(parts) > 1:
        name = ".".join(parts)
        raise SettingsError(f"{flag}: {name} may not be used here: write functions by one name")
    if parts[0].lower() in REFUSED:
        raise SettingsError(
            f"{flag}: {parts[0].lower()} may not be used here: it reaches beyond the letter"
        )


def _nodes(root: Any) -> Iterator[Any]:
    found = [root]
    while found:
        node = found.pop()
        yield node
        found += _items(node.children())


def _items(seq: Any) -> Iterator[Any]:
    return (seq.apply(place) for place in range(seq.size()))
