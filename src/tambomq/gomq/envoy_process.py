"""One Envoy with our application inside, from its start to its end.

A keeper starts it and sees to it that it does not outlive us. What it logs comes out of our log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, replace
from typing import Final, Self

import msgspec

from tambomq.gomq import envoy_config
from tambomq.gomq.envoy_child import ORDERS, Orders
from tambomq.gomq.envoy_line import Line
from tambomq.store import keeper

# The keeper kills what does not stop; then the keeper stops.
_GONE_WITHIN_S: Final = keeper.GRACE_S + 5.0
_LONGEST_LINE: Final = 1 << 20
# Envoy quotes its whole configuration when it does not like it.
_LONGEST_WORDS: Final = 500

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line that the child's Python has logged."""

    level: str
    logger: str
    message: str
    exception: str = ""


class EnvoyProcess:
    """A process that was started. *lease* is our end of the pipe that keeps it alive."""

    def __init__(self, process: Process, lease: int, line: socket.socket) -> None:
        self.line = Line()
        self.last_words = ""
        self.pid = 0
        """Envoy's own; the keeper has another."""
        self._process, self._lease = process, lease
        duties = (self.line.hear(line), self._relay(process.stderr))
        self._tasks = [asyncio.ensure_future(duty) for duty in duties]

    @classmethod
    async def start(cls, command: list[str], orders: Orders) -> Self:
        """Run *command* with *orders*, whose `Orders.line` is chosen here."""
        ours, theirs = socket.socketpair()
        lease, our_lease = os.pipe()
        orders = replace(orders, line=theirs.fileno())
        words = msgspec.json.encode(orders).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                # -I and -S: the keeper needs no packages, and starts in a third of the time.
                *(sys.executable, "-I", "-S", keeper.__file__, str(lease), *command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env={**envoy_config.environment(), ORDERS: words},
                pass_fds=(lease, theirs.fileno()),
                limit=_LONGEST_LINE,
                start_new_session=True,  # Ctrl-C is for the owner, who then stops in order
            )
        except BaseException:
            ours.close()
            os.close(our_lease)
            raise
        finally:
            theirs.close()
            os.close(lease)
        started = cls(process, our_lease, ours)
        try:
            await started._read_pid()
        except BaseException:
            await started.end()
            raise
        return started

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Return its exit code once it has ended, 128 + signal if it was killed."""
        code = await self._process.wait()
        # Its last words may still be in the pipe.
        await asyncio.wait(self._tasks, timeout=1.0)
        return code

    async def end(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1
        try:
            await asyncio.wait_for(self.wait(), _GONE_WITHIN_S)
        except TimeoutError:
            self._process.kill()
            await self.wait()
        self.line.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_pid(self) -> None:
        if self._process.stdout:
            self.pid = int(await self._process.stdout.readline() or 0)

    async def _relay(self, said: asyncio.StreamReader | None) -> None:
        # Whatever comes is read: a child that nobody listens to would stand still.
        while said and not said.at_eof():
            line = b""
            try:
                line = await said.readline()
                _log_again(msgspec.json.decode(line, type=_Entry))
            except ValueError:
                # Envoy's own words; or a line too long to be read, which is skipped.
                self._hear(line.decode(errors="replace").strip())

    def _hear(self, words: str) -> None:
        """Take in what Envoy itself says, which is never good."""
        if words:
            self.last_words = words[:_LONGEST_WORDS]
            _log.warning("Envoy says: %s", self.last_words)


def _log_again(entry: _Entry) -> None:
    level = logging.getLevelNamesMapping().get(entry.level.upper(), logging.WARNING)
    text = f"{entry.message}\n{entry.exception}".strip()
    logging.getLogger(entry.logger).log(level, "%s", text)
