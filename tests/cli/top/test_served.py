"""The KqueueMsgQ queues of a ``tambo serve``, asked for over HTTP."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tambomq.cli.top.served import served_rows, with_served
from tests.cli.top.overviews import overview, row


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """An HTTP server that gives the same answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def test_only_queues_of_kqueue_are_taken() -> None:
    ticks = row("kqueue:a", 0, in_per_s=4.0, out_per_s=12.0, done_per_s=4.0)
    theirs = msgspec.json.encode(overview(ticks, row("rsmq:b", 7, in_per_s=1.0)))
    with answering(200, theirs) as url:
        own = row("rsmq:c", 1, in_per_s=2.0, out_per_s=2.0)
        merged = await with_served(overview(own), url)
    assert [each.queue for each in merged.queues] == ["rsmq:c", "kqueue:a"]
    assert (merged.totals.in_per_s, merged.totals.out_per_s) == (6.0, 6.0)


@pytest.mark.parametrize(
    ("status", "body"), [(401, b"{}"), (200, b"<html>"), (200, b'{"at_ms": 1}'), (500, b"")]
)
def test_other_answers_are_left_out(status: int, body: bytes) -> None:
    with answering(status, body) as url:
        assert served_rows(url) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[::1", "http://h:99999"])
def test_url_where_nothing_answers_is_left_out(url: str) -> None:
    assert served_rows(url) == []
