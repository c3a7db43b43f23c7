"""What somebody sees who tries ``tambo work`` for the first time."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import COMMAND
from tests.serve.processes import clean_environment
from tests.servers import Server
from tests.servers.ports import free_port
from tests.work.supervising import Shop
from tests.work.supervising import shop as open_shop

pytestmark = pytest.mark.slow


def test_without_a_server_it_ends_when_asked_and_shows_no_traceback(tmp_path: Path) -> None:
    with open_shop(tmp_path, f"redis://127.0.0.1:{free_port()}") as shop:
        shop.write()
        work = shop.work("app")
        work.says("cannot join queue 'q' yet: no answer from", "err")
        assert (work.get("/healthz")[0], work.get("/livez")[0]) == (503, 200)
        work.signal(signal.SIGINT)
        assert work.wait() == 0
        # It has not tried to the end of its patience.
        assert work.err.count("cannot join queue") == 1
        assert "Traceback" not in work.err


def test_what_workers_log_comes_below_the_banner(shop: Shop, server: Server) -> None:
    assert server.url
    shop.write()
    command = (*COMMAND, "work", "app")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=shop.folder,
        env=clean_environment(),
    ) as process:
        assert process.stdout is not None
        shown = []
        for line in process.stdout:
            shown.append(line)
            if "leads" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert shown[0].startswith("TamboMQ ")
    assert shown.index("\n") < next(at for at, line in enumerate(shown) if "leads" in line)
