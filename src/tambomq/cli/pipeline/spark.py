"""The Spark session and the lake of a command, and their options."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

import click

from tambomq.cli.output import Command
from tambomq.pipeline.lake.path import lake_path

if TYPE_CHECKING:
    from tambomq.pipeline.lake.lake import Lake

_STDERR: Final = 2
_SMALL_BYTES: Final = 256 << 20


def master_option(command: Command) -> Command:
    """Give *command* ``--master``."""
    return click.option(
        "--master", metavar="MASTER", help="Where Spark runs. [all cores of this machine]"
    )(command)


class _LakePath(click.Path):
    """A lake's directory as an option has it: see `lake_path`."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path; `SettingsError` says in one line what is wrong with a URL."""
        return super().convert(str(lake_path(value)), param, ctx)


def lake_option(command: Command, name: str = "--lake") -> Command:
    """Give *command* ``--lake``, or an option called *name*, which arrives as ``lake``."""
    return click.option(
        name,
        "lake",
        type=_LakePath(path_type=Path, file_okay=False),
        envvar="TAMBO_LAKE",
        show_envvar=True,
        metavar="DIR",
        help="The lake. [beside the data of `tambo serve`]",
    )(command)


def open_spark(app: str, master: str | None, *, over: Lake | None = None) -> Any:
    """Return a session that ends with the command, fit for the lake that it is to read."""
    # Spark takes half a second to import: not for a help page.
    from tambomq.spark import session

    # Errors are printed in one line; Spark would log hundreds.
    conf = {"spark.log.level": "OFF"}
    if master is None or master.startswith("local"):
        # Spark's 200 parts are for many machines: on a busy one with two cores a report of some
        # hundred rows took 48 s with them, 30 s without.
        conf["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
        if over is not None and over.log.version().bytes < _SMALL_BYTES:
            # Java's second compiler took half of its 40 s of processor time.
            conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
    with _java_apart():
        spark = session(app, master=master, conf=conf)
    click.get_current_context().call_on_close(spark.stop)
    return spark


@contextmanager
def _java_apart() -> Iterator[None]:
    """Capture the stderr of a JVM that starts; print it only if the start fails."""
    sys.stderr.flush()
    with TemporaryFile() as captured:
        ours = os.dup(_STDERR)
        os.dup2(captured.fileno(), _STDERR)
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(ours, captured.read())
            raise
        finally:
            os.dup2(ours, _STDERR)
            os.close(ours)


def open_lake(path: Path | None) -> Lake:
    """Return the lake that is there; raise `SettingsError` if none is."""
    from tambomq.pipeline.lake.lake import Lake, default_path

    return Lake.open(path or default_path())
