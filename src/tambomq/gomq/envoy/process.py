"""`EnvoyProcess`: one Envoy with our application inside, from its start to its end.

A supervisor process starts Envoy, and ends it when we end. Its log is forwarded to ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, cast

import msgspec

from tambomq.embedded import supervisor
from tambomq.gomq.envoy import config as envoy_config
from tambomq.gomq.envoy.child import CONFIG_VARIABLE, ChildConfig
from tambomq.gomq.envoy.control import ControlChannel

# The supervisor kills an Envoy that does not stop, and then ends itself.
_END_WITHIN_S: Final = supervisor.GRACE_S + 5.0
_MAX_LINE_BYTES: Final = 1 << 20
# Envoy quotes its whole configuration in errors about it.
_MAX_ERROR_CHARS: Final = 500

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LogEntry:
    """A log record of the child, as JSON, without its extra fields."""

    level: str
    logger: str
    message: str
    time: str = ""
    exception: str = ""


class EnvoyProcess:
    """A started process. The supervisor ends it when *lease*, our end of a pipe, is closed."""

    def __init__(self, process: Process, lease: int, control: socket.socket) -> None:
        self.control = ControlChannel()
        self.last_error = ""
        """The last line that Envoy itself has written."""
        self.pid = 0
        """The process id of Envoy, not of its supervisor."""
        self._process, self._lease = process, lease
        tasks = (self.control.run(control), self._forward_log(process.stderr))
        self._tasks = [asyncio.ensure_future(task) for task in tasks]

    @classmethod
    async def start(cls, command: list[str], config: ChildConfig) -> Self:
        """Run *command* with *config*, whose `ChildConfig.control_fd` is set here."""
        ours, theirs = socket.socketpair()
        lease, our_lease = os.pipe()
        config = replace(config, control_fd=theirs.fileno())
        encoded = msgspec.json.encode(config).decode()
        try:
            process = await asyncio.create_subprocess_exec(
                # -I and -S: without packages the supervisor starts in a third of the time.
                *(sys.executable, "-I", "-S", supervisor.__file__, str(lease), *command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env={**envoy_config.environment(), CONFIG_VARIABLE: encoded},
                pass_fds=(lease, theirs.fileno()),
                limit=_MAX_LINE_BYTES,
                start_new_session=True,  # Ctrl-C is for the parent, which then stops Envoy
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
        """Whether it has not ended."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for its end and return the exit code; 128 + signal if it was killed."""
        code = await self._process.wait()
        # Its last log lines may still be in the pipe.
        await asyncio.wait(self._tasks, timeout=1.0)
        return code

    async def end(self) -> None:
        """Stop it; kill it if it does not end in time."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1
        try:
            await asyncio.wait_for(self.wait(), _END_WITHIN_S)
        except TimeoutError:
            self._process.kill()
            await self.wait()
        self.control.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read_pid(self) -> None:
        if self._process.stdout:
            self.pid = int(await self._process.stdout.readline() or 0)

    async def _forward_log(self, stderr: asyncio.StreamReader | None) -> None:
        # Read everything: a child blocks when its stderr pipe is full.
        while stderr and not stderr.at_eof():
            line = b""
            try:
                line = await stderr.readline()
                _log_entry(msgspec.json.decode(line))
            except ValueError:
                # A line of Envoy itself, or one that is too long, which is skipped.
                self._on_envoy_line(line.decode(errors="replace").strip())

    def _on_envoy_line(self, text: str) -> None:
        """Log a line of Envoy itself: at its log level these are errors."""
        if text:
            self.last_error = text[:_MAX_ERROR_CHARS]
            _log.warning("Envoy: %s", self.last_error)


def _log_entry(record: object) -> None:
    entry = msgspec.convert(record, _LogEntry)
    known = {each.name for each in fields(_LogEntry)}
    extra = {k: v for k, v in cast("dict[str, Any]", record).items() if k not in known}
    level = logging.getLevelNamesMapping().get(entry.level.upper(), logging.WARNING)
    text = f"{entry.message}\n{entry.exception}".strip()
    logging.getLogger(entry.logger).log(level, "%s", text, extra=extra)
