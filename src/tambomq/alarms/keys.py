"""The Redis key of alarms. No other file spells it.

A hash, with a field for each process that has raised alarms::

    <source>    <until> <alarms>    the time (ms) until which they hold, and a JSON array

The key expires with the last of them, so alarms end with the process that measures.
"""

from __future__ import annotations

from typing import Final

ALARMS: Final = "tambo:alarms"
