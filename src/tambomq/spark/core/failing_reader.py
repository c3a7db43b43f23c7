"""`FailingReader`: a stream reader that raises a given error as soon as it is used.

If creating a reader fails, Spark 4.3 still tries to stop it, and reports that failure beside ours.
So errors of a stream's options are raised by a reader instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tambomq.errors import TamboError
from tambomq.spark.core.short_errors import one_line_errors


class FailingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises *error* from every method."""

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
        with one_line_errors():
            raise self._error
