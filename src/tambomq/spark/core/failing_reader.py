"""A stream that cannot be: tells why as soon as it is asked for anything.

Spark 4.3 wants to stop a reader that was never made, and tells of that fault of its own beside
ours. So what is wrong with a stream is told by a reader, not in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tambomq.errors import TamboError
from tambomq.spark.plain import told_in_one_line


class Refusal(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises *error* whatever it is asked for."""

    def __init__(self, error: TamboError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Raise the error."""
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (as above)
        """Raise the error."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802  (as above)
        """Raise the error."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002  (as above)
        """Raise the error."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (as above)
        """Raise the error."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        with told_in_one_line():
            raise self._error
