"""Foreign clients on the embedded server, whose default user does no administration."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.embedded.server import Embedded
from tests.peers.driver import PEERS, Driver, in_node, in_python
from tests.peers.rsmq import Driven

pytestmark = pytest.mark.interop

_BULLMQ = """
const {Queue, QueueEvents, Worker} = require("bullmq");
const connection = {host: "127.0.0.1", port: Number(process.argv[1]), maxRetriesPerRequest: null};
(async () => {
  const queue = new Queue("mail", {connection});
  const events = new QueueEvents("mail", {connection});
  await events.waitUntilReady();
  const worker = new Worker("mail", async (job) => job.data.n + 1, {connection});
  const job = await queue.add("one", {n: 41}, {delay: 10});
  console.log(await job.waitUntilFinished(events));
  console.log((await queue.getWorkers()).length, (await queue.getJobCounts()).completed);
  await worker.close(); await events.close();
  await queue.obliterate({force: true}); await queue.close();
})();
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with Embedded(tmp_path_factory.mktemp("embedded"), port=0) as server:
        yield server


@pytest.mark.parametrize("name", ["node", "pyrsmq"])
def test_rsmq_clients_have_all_they_need(server: Embedded, name: str) -> None:
    script = str(PEERS / "pyrsmq" / "driver.py")
    command = in_node("npm_rsmq") if name == "node" else in_python("pyrsmq", script)
    with Driver(*command) as driver:
        client = Driven(driver, server.port, ns=name, realtime=True)
        client.create("queue", vt=30)
        client.change("queue", vt=20)
        sent = client.send("queue", b"body")
        found = client.receive("queue")
        assert found is not None
        assert (found.id, found.body) == (sent, b"body")
        assert client.hide("queue", sent, 10)
        assert client.delete("queue", sent)
        assert client.names() == ["queue"]
        assert client.attributes("queue")["totalsent"] == 1
        client.drop("queue")
        client.close()


def test_bullmq_has_all_it_needs(server: Embedded) -> None:
    node, _ = in_node("bullmq")
    ran = subprocess.run(
        [node, "-e", _BULLMQ, str(server.port)],
        cwd=Path(PEERS) / "bullmq",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.split() == ["42", "1", "1"], ran.stderr
    assert "NOPERM" not in ran.stderr
