from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server
from tests.work.supervising import Shop
from tests.work.supervising import shop as open_shop


@pytest.fixture
def shop(tmp_path: Path, server: Server) -> Iterator[Shop]:
    """A folder for modules, whose queues are on an empty server."""
    with open_shop(tmp_path, server.url) as opened:
        yield opened
