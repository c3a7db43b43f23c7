"""A failover where servers and sentinels speak TLS, with a login of each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tambomq.errors import ReplyLost, StoreRefused, StoreUnavailable
from tambomq.rsmq import Rsmq
from tests.servers import eventually
from tests.servers.kinds import binary
from tests.servers.sentinel import Sentinels
from tests.servers.tls import certificate

WITHIN_S = 60.0


@pytest.mark.interop
def test_a_client_follows_a_failover_by_tls_with_both_logins(tmp_path: Path) -> None:
    binary("redis7")
    made = certificate(tmp_path)
    with Sentinels(password="secret", sentinel_password="other", certificate=made) as servers:
        with Rsmq(servers.url, patience_s=WITHIN_S) as rsmq:
            rsmq.create_queue("orders")
            rsmq.send_message("orders", "one", durable="replicas:1")
            servers.kill_primary()

            def has_the_message() -> bool:
                with suppress(ReplyLost):
                    return [each.body for each in rsmq.peek_messages("orders")] == [b"one"]
                return False

            eventually(has_the_message, within_s=WITHIN_S)
            rsmq.send_message("orders", "two")
            servers.wait_promoted()
        wrong = servers.url.replace("sentinel_password=other", "sentinel_password=wrong")
        with Rsmq(wrong, patience_s=0) as rsmq, pytest.raises((StoreRefused, StoreUnavailable)):
            rsmq.list_queues()
        plain = servers.url.replace("rediss+", "redis+").partition("&ca=")[0]
        with Rsmq(plain, patience_s=0) as rsmq, pytest.raises(StoreUnavailable):
            rsmq.list_queues()
