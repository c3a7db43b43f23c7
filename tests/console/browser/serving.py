"""The console's web application over a `StandIn`, in a thread of its own, on a free port."""

from __future__ import annotations

import asyncio
import threading

import uvicorn

from tambomq.console.http.app import console_app
from tambomq.console.http.console import Console
from tambomq.console.http.options import ConsoleOptions
from tambomq.console.http.parts import ConsoleParts
from tests.console.browser.stand_in import StandIn
from tests.servers import eventually


class ConsoleServer:
    """A server that can be stopped and started again on its port."""

    def __init__(self, options: ConsoleOptions | None = None) -> None:
        self.stand_in = StandIn()
        self._options = options or ConsoleOptions()
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen."""
        console = Console(self._options)
        self._server = uvicorn.Server(
            uvicorn.Config(
                console_app(console),
                port=self.port,
                log_config=None,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(console),))
        self._thread.start()
        eventually(lambda: self._server.started)
        [listener] = self._server.servers
        self.port = listener.sockets[0].getsockname()[1]

    async def _serve(self, console: Console) -> None:
        shown = self.stand_in
        console.open(
            ConsoleParts(
                reader=shown,
                source=shown,
                messages=shown,
                actions=shown,
                audit=shown,
                pipeline=shown.pipeline,
            )
        )
        await self._server.serve()
        await console.close()

    def stop(self) -> None:
        """End all connections."""
        self._server.should_exit = True
        self._thread.join()
