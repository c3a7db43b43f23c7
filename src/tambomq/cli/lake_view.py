"""What ``tambo serve`` and ``tambo console`` show of the pipeline: the option and the reader.

The pipeline is an extra: without it, the page says how to install it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from tambomq.cli.output import Command
from tambomq.console.model import PipelineStatus
from tambomq.extras import how_to_install
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.endpoint import endpoint
from tambomq.store.sync import Store

_ANSWER_WITHIN_S: Final = 5.0


def lake_view_option(command: Command) -> Command:
    """Give *command* ``--lake``, which arrives as ``lake``."""
    return click.option(
        "--lake",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="TAMBO_LAKE",
        show_envvar=True,
        metavar="DIR",
        help="Show this lake of the pipeline in the console. [that of `tambo pipeline`]",
    )(command)


def pipeline_reader(lake: Path | None, rsmq_ns: str = NAMESPACE) -> Callable[[str], PipelineStatus]:
    """Return what reads the state of the pipeline over *lake*, given the URL of Redis."""

    def read(url: str) -> PipelineStatus:
        # Parquet takes a while to import, and only this page needs it.
        try:
            from tambomq.pipeline.lake.lake import default_path
            from tambomq.pipeline.status import pipeline_status
        except ModuleNotFoundError:
            note = f"The pipeline is not installed: {how_to_install('spark')}"
            return PipelineStatus(lake=None, note=note)
        store = Store(endpoint(url).with_timeout(_ANSWER_WITHIN_S), patience_s=0)
        try:
            return pipeline_status(lake or default_path(), store, rsmq_ns=rsmq_ns)
        finally:
            store.close()

    return read
