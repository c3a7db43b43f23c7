"""The least rights of clients: enough for all that a role does, and no command too many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.cli.acl.rights import PROTOCOLS_OF, Protocol, Role, rights_of
from tambomq.errors import BatchIncomplete, InvalidFormat, InvalidValue, StoreError, StoreRefused
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.features import features
from tambomq.store.sync import Store
from tests.cli.acl.role_work import WORK
from tests.servers import Server, eventually
from tests.servers.kinds import FIRST, binary, kinds

QUEUE = "orders"
CLIENTS: tuple[Role, ...] = ("producer", "consumer")
DATABASE = 1
"""Not the first, so that clients have to SELECT it."""
OF_ADMIN = {"acl|log", "config|resetstat", "info", "script|flush", "client|setinfo", "hello"}


@pytest.fixture(params=kinds())
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of its own: rights and counts are those of the whole server."""
    with Server(binary(request.param)) as server:
        yield server


@pytest.fixture
def plain() -> Iterator[Server]:
    """A server of its own, of the kind that tests run on."""
    with Server(binary(FIRST)) as server:
        yield server


def admin_of(server: Server) -> redis.Redis:
    return redis.Redis.from_url(f"{server.url}/{DATABASE}", decode_responses=True)


def is_redis8(server: Server) -> bool:
    store = Store(server.url)
    try:
        return store.follow(features()).xackdel
    finally:
        store.close()


def log_in(server: Server, user: str, rule: str) -> str:
    """Make *user* with exactly the rights of *rule*, and return its URL."""
    with admin_of(server) as admin:
        admin.execute_command(*rule.split(" "))
        admin.execute_command("ACL", "SETUSER", user, ">secret")
    return f"redis://{user}:secret@127.0.0.1:{server.port}/{DATABASE}"


def _bound(server: Server) -> None:
    """Bound the queue that a producer will make, as an operator would, full after some messages."""
    url, scratch = f"{server.url}/{DATABASE}", f"{QUEUE}.bounded"
    keys = RsmqKeys()
    with Rsmq(url) as rsmq, admin_of(server) as admin:
        rsmq.create_queue(scratch)
        rsmq.set_queue_bounds(scratch, max_bytes=1000, overflow="dead-letter", dead=f"{QUEUE}-dead")
        rsmq.send_message(scratch, b"x" * 500)
        rsmq.pop_message(scratch)
        admin.rename(keys.bounds(scratch), keys.bounds(QUEUE))
        admin.rename(keys.sizes(scratch), keys.sizes(QUEUE))
        rsmq.delete_queue(scratch)


def _expire_one(server: Server) -> None:
    """Give the queue a TTL, which its first message has exceeded."""
    with Rsmq(f"{server.url}/{DATABASE}") as rsmq, admin_of(server) as admin:
        rsmq.set_queue_bounds(QUEUE, message_ttl_s=3600)
        first = rsmq.peek_messages(QUEUE)[0]
        admin.zincrby(RsmqKeys().messages(QUEUE), -7_200_000, first.id)


def prepare(server: Server, protocol: Protocol, role: Role) -> None:
    """Fill the queue as the other role leaves it, with signs of a foreign consumer."""
    if role == "consumer":
        WORK[protocol, "producer"](f"{server.url}/{DATABASE}", QUEUE)
    if (protocol, role) == ("rsmq", "consumer"):
        _expire_one(server)
    elif protocol == "rsmq":
        _bound(server)
    if protocol == "chasqui":
        url = f"{server.url}/{DATABASE}"
        with BlockingQueue(QUEUE, redis_url=url, dialect="page") as jobs:
            jobs.add("old", 1, delay_ms=60_000)
        stream = ChasquiKeys(QUEUE).stream
        with admin_of(server) as admin:
            group = "other" if role == "consumer" else GROUP
            admin.xgroup_create(stream, group, mkstream=True)
            admin.xgroup_createconsumer(stream, group, "till-9")


@pytest.mark.parametrize("role", CLIENTS)
@pytest.mark.parametrize("protocol", PROTOCOLS_OF["producer"])
def test_a_role_does_all_its_work_with_its_rights_and_uses_each_of_them(
    own: Server, protocol: Protocol, role: Role
) -> None:
    prepare(own, protocol, role)
    rights = rights_of(role, (protocol,), (QUEUE,), redis8=is_redis8(own))
    url = log_in(own, "shop", rights.rule("shop"))
    with admin_of(own) as admin:
        admin.script_flush()
        admin.config_resetstat()
        WORK[protocol, role](url, QUEUE)
        assert admin.acl_log() == []
        called = {key.removeprefix("cmdstat_") for key in admin.info("commandstats")}
    assert called - OF_ADMIN - {"auth"} <= set(rights.commands)
    # Redis 8 has commands of its own for some of these.
    if not is_redis8(own):
        assert set(rights.commands) - called == set()


@pytest.mark.parametrize("level", ["disk", "replicas:1"])
def test_a_producer_sends_durably_if_that_is_asked_for(level: str) -> None:
    with ExitStack() as servers:
        server = servers.enter_context(Server(binary("valkey"), "--appendonly", "yes"))
        if level != "disk":
            replica = Server(binary("valkey"), "--replicaof", f"127.0.0.1 {server.port}")
            servers.enter_context(replica)
            with admin_of(server) as admin:
                eventually(lambda: admin.role()[2] != [], within_s=60)
        rights = rights_of("producer", queues=(QUEUE,), durable=True)
        url = log_in(server, "shop", rights.rule("shop"))
        with Rsmq(url, durable=level, durable_timeout_s=60) as rsmq:
            rsmq.create_queue(QUEUE)
            rsmq.send_messages(QUEUE, ["one", "two"])
        with BlockingQueue(QUEUE, redis_url=url, durable=level, durable_timeout_s=60) as jobs:
            jobs.add("one", 1)
        with admin_of(server) as admin:
            refusals = {refused(each) for each in admin.acl_log()}
        # Asked for, but not needed.
        assert refusals <= {"config|get"}
        plain = log_in(server, "shop", rights_of("producer", queues=(QUEUE,)).rule("shop"))
        with Rsmq(plain, durable=level) as rsmq, pytest.raises(StoreRefused):
            rsmq.send_message(QUEUE, "three")


def test_a_consumer_cannot_be_given_durable_sends() -> None:
    with pytest.raises(InvalidValue, match="producer or operator"):
        rights_of("consumer", durable=True)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS_OF["producer"])
def test_a_producer_needs_each_command_that_it_is_granted(
    plain: Server, protocol: Protocol
) -> None:
    rights = rights_of("producer", (protocol,), (QUEUE,))
    with admin_of(plain) as admin:
        for left_out in rights.commands:
            admin.flushall()
            admin.script_flush()
            prepare(plain, protocol, "producer")
            url = log_in(plain, "shop", rights.rule("shop"))
            admin.execute_command("ACL", "SETUSER", "shop", f"-{left_out}")
            admin.acl_log_reset()
            with suppress(StoreError, BatchIncomplete):
                WORK[protocol, "producer"](url, QUEUE)
            assert left_out in {refused(each) for each in admin.acl_log()}


def refused(entry: dict[str, object]) -> str:
    """Return the command that an entry of the ACL's log is about."""
    return str(entry["object"])


@pytest.mark.parametrize("role", CLIENTS)
def test_a_user_of_one_rsmq_queue_cannot_touch_another(plain: Server, role: Role) -> None:
    with Rsmq(f"{plain.url}/{DATABASE}") as rsmq:
        rsmq.create_queue("secrets")
        rsmq.send_message("secrets", "one")
    url = log_in(plain, "shop", rights_of(role, ("rsmq",), (QUEUE,)).rule("shop"))
    with Rsmq(url, realtime=True) as rsmq:
        for touch in (rsmq.receive_message, rsmq.pop_message, rsmq.peek_messages):
            with pytest.raises(StoreRefused):
                touch("secrets")
        for change in (rsmq.delete_queue, rsmq.purge_queue):
            with pytest.raises(StoreRefused):
                change("secrets")
        with pytest.raises(StoreRefused):
            rsmq.send_message("secrets", "two")
        with pytest.raises(StoreRefused):
            rsmq.list_queues()


@pytest.mark.parametrize("role", CLIENTS)
def test_a_user_of_one_chasquimq_queue_cannot_touch_another(plain: Server, role: Role) -> None:
    url = log_in(plain, "shop", rights_of(role, ("chasqui",), (QUEUE,)).rule("shop"))
    with BlockingQueue("secrets", redis_url=url) as jobs:
        for touch in (jobs.peek_dlq, jobs.get_job_counts, jobs.pause, jobs.drain):
            with pytest.raises(StoreRefused):
                touch()
        with pytest.raises(StoreRefused):
            jobs.add("one", 1)


def test_a_pattern_allows_the_queues_that_match_it_and_no_others(plain: Server) -> None:
    rights = rights_of("producer", queues=("orders-*", "mail"))
    url = log_in(plain, "shop", rights.rule("shop"))
    with Rsmq(url) as rsmq:
        for name in ("orders-7", "mail"):
            rsmq.create_queue(name)
            rsmq.send_message(name, "one")
        with pytest.raises(StoreRefused):
            rsmq.create_queue("orders")
    with BlockingQueue("orders-7", redis_url=url) as jobs:
        jobs.add("one", 1)
    with BlockingQueue("mails", redis_url=url) as others, pytest.raises(StoreRefused):
        others.add("one", 1)


def test_brackets_in_a_name_are_not_a_pattern(plain: Server) -> None:
    url = log_in(plain, "shop", rights_of("producer", ("chasqui",), ("a[bc]",)).rule("shop"))
    with BlockingQueue("a[bc]", redis_url=url) as jobs:
        jobs.add("one", 1)
    with BlockingQueue("ab", redis_url=url) as others, pytest.raises(StoreRefused):
        others.add("one", 1)


def test_setting_the_rights_again_keeps_the_password_and_ends_older_rights(plain: Server) -> None:
    log_in(plain, "shop", rights_of("consumer").rule("shop"))
    with admin_of(plain) as admin:
        admin.execute_command(*rights_of("producer", ("rsmq",), (QUEUE,)).rule("shop").split())
    with Rsmq(f"redis://shop:secret@127.0.0.1:{plain.port}") as rsmq:
        rsmq.create_queue(QUEUE)
        with pytest.raises(StoreRefused):
            rsmq.receive_message(QUEUE)


def test_all_queues_need_one_pattern_of_keys_for_each_protocol() -> None:
    assert rights_of("consumer").keys == ["rsmq:*", "{chasqui:*}:*"]
    assert rights_of("consumer", ns="{shop}", protocols=("rsmq",)).keys == ["{shop}:*"]


@pytest.mark.parametrize("queue", ["", "a b", "a'b", 'a"b', "a\nb", "a\x7fb"])
@pytest.mark.parametrize("protocol", PROTOCOLS_OF["producer"])
def test_a_name_that_an_acl_cannot_spell_is_refused(protocol: Protocol, queue: str) -> None:
    with pytest.raises(InvalidFormat):
        rights_of("producer", (protocol,), (queue,))


@pytest.mark.parametrize("name", ["", "a b", "a\nb", ">a", "~*"])
def test_a_user_name_that_would_be_another_rule_is_refused(name: str) -> None:
    with pytest.raises(InvalidFormat):
        rights_of("producer").rule(name)
