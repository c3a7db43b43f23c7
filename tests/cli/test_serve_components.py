"""``tambo serve`` with all its components, from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from tambomq.chasqui import BlockingQueue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.gomq.client import GomqClient
from tambomq.kqueue.client import Consumer, Producer
from tambomq.rsmq import Rsmq
from tests.journal.looking import bodies
from tests.serve import processes
from tests.serve.processes import FREE_PORTS, Serving, alive, ask, server_pid, serving, tambo
from tests.servers import Server, eventually
from tests.servers.cluster import Cluster

OPTIONAL = ["rsmq", "chasqui", "gomq", "kqueue", "http"]
LISTENING = ["gomq", "kqueue", "http"]


def at(serve: Serving, component: str) -> tuple[str, int]:
    host, _, port = serve.address(component).rpartition(":")
    return host, int(port)


def samples(serve: Serving) -> dict[tuple[str, ...], float]:
    code, text = serve.get("/metrics")
    assert code == 200
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def health(serve: Serving) -> tuple[int, dict[str, bool]]:
    code, text = serve.get("/healthz")
    return code, {component: verdict["ok"] for component, verdict in json.loads(text).items()}


def test_every_protocol_is_served_and_its_numbers_are_true(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        with Rsmq(serve.url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.send_messages("orders", ["a", "b"])
            assert rsmq.receive_message("orders") is not None
        with BlockingQueue("emails", redis_url=serve.url) as queue:
            queue.add_bulk([{"name": "x", "data": n} for n in range(3)])
        with GomqClient(serve.address("gomq")) as client:
            client.publish("news", "hello")
        with Consumer(*at(serve, "kqueue")) as consumer, Producer(*at(serve, "kqueue")) as producer:
            consumer.subscribe_all()
            eventually(lambda: json.loads(serve.get("/stats")[1])["kqueue"]["subscriptions"] == 1)
            producer.send("q", "hello")
            message = consumer.receive(10)
            assert message is not None
            assert message.body == b"hello"

        def all_true() -> bool:
            metrics = samples(serve)
            assert metrics.get(("tambo_queue_messages", "rsmq", "orders", "in_flight")) == 1
            assert metrics.get(("tambo_queue_received_total", "rsmq", "orders")) == 1
            assert metrics.get(("tambo_queue_messages", "chasqui", "emails", "visible")) == 3
            assert metrics.get(("tambo_queue_messages", "gomq", "news", "visible")) == 1
            assert metrics.get(("tambo_queue_left_total", "kqueue", "q")) == 1
            assert metrics["tambo_gomq_published_total",] == 1
            assert metrics["tambo_kqueue_received_total",] == 1
            assert metrics["tambo_kqueue_delivered_total",] == 1
            return True

        eventually(all_true, within_s=20)
        metrics = samples(serve)
        assert {metrics["tambo_component_up", component] for component in ("redis", *OPTIONAL)} == {
            1
        }
        assert metrics["process_open_fds",] > 0
        all_components = ("http", "redis", "journal", "queue", "alarm", "console", *OPTIONAL[:-1])
        assert health(serve) == (200, dict.fromkeys(all_components, True))
        assert serve.get("/readyz")[0] == 200
        assert serve.end(signal.SIGTERM) == 0


def test_published_messages_are_journalled_and_counted(tmp_path: Path) -> None:
    with serving(tmp_path, "--journal", "kqueue:*", "--journal", "gomq:orders") as serve:
        with GomqClient(serve.address("gomq")) as client:
            client.publish_many([("orders", "a"), ("other", "b")])
        with Producer(*at(serve, "kqueue")) as producer:
            producer.send("news", "hello")

        def all_true() -> bool:
            metrics = samples(serve)
            assert metrics.get(("tambo_journal_entries", "gomq", "orders")) == 1
            assert metrics.get(("tambo_journal_entries", "kqueue", "news")) == 1
            assert metrics["tambo_kqueue_recorded_total",] == 1
            assert metrics["tambo_journal_journals",] == 2
            return True

        eventually(all_true, within_s=20)
        assert json.loads(serve.get("/stats")[1])["journal"]["entries"]["gomq"] == {"orders": 1}
        assert bodies(serve.url, "gomq", "orders") == [b"a"]
        assert bodies(serve.url, "kqueue", "news") == [b"hello"]
        assert serve.end(signal.SIGTERM) == 0


def test_delayed_and_recurring_jobs_need_no_worker(tmp_path: Path) -> None:
    with serving(tmp_path) as serve, redis.Redis.from_url(serve.url) as db:
        with BlockingQueue("emails", redis_url=serve.url) as queue:
            queue.add("later", 1, delay_ms=100)
        with BlockingQueue("reports", redis_url=serve.url) as queue:
            queue.upsert_repeatable_job("often", 1, repeat=RepeatPattern.every(200))
        eventually(lambda: db.xlen(Keys("emails").stream) == 1, within_s=15)
        eventually(lambda: db.xlen(Keys("reports").stream) >= 2, within_s=15)
        assert db.zcard(Keys("emails").delayed) == 0


@pytest.mark.slow
def test_health_follows_the_embedded_server(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        assert health(serve)[0] == 200
        pid = server_pid(serve.url)
        os.kill(pid, signal.SIGSTOP)

        def unwell() -> bool:
            code, components = health(serve)
            assert (code, components["redis"], components["rsmq"], components["gomq"]) == (
                503,
                False,
                False,
                False,
            )
            assert components["kqueue"]
            assert components["http"]
            return True

        eventually(unwell, within_s=20)
        eventually(lambda: samples(serve)["tambo_component_up", "redis"] == 0, within_s=20)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: health(serve)[0] == 200, within_s=20)
        eventually(lambda: samples(serve)["tambo_redis_restarts_total",] == 1)
        with GomqClient(serve.address("gomq")) as client:
            client.publish("news", "hello")
        assert "Traceback" not in serve.stderr
        assert serve.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_health_follows_a_given_server(tmp_path: Path, private_server: Server) -> None:
    with serving(tmp_path, "--redis-url", private_server.url) as serve:
        assert health(serve)[0] == 200
        private_server.kill()
        eventually(lambda: health(serve)[0] == 503, within_s=20)
        assert not health(serve)[1]["redis"]
        private_server.restart()
        eventually(lambda: health(serve)[0] == 200, within_s=20)


def opened_http(serve: Serving) -> str:
    found = eventually(lambda: re.findall(r"http is started: (\S+)", serve.stderr), within_s=20)
    return str(found[0])


def test_it_is_alive_but_not_ready_while_components_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a server that takes its time
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with serving(tmp_path, "--log-level", "debug", "--redis-url", url) as serve:
            http = opened_http(serve)
            assert processes.get(http + "/readyz") == (503, "not ready\n")
            code, text = processes.get(http + "/healthz")
            assert code == 503
            assert json.loads(text)["http"] == {"ok": True, "why": "", "degraded": False}
            assert json.loads(text)["redis"]["why"] == "is not started yet"
            assert processes.get(http + "/metrics")[0] == 200
            assert not serve.ready_file.exists()
            assert serve.end(signal.SIGTERM) == 0


def test_it_is_not_ready_from_the_signal_on_and_answers_to_the_end(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        url, pid = serve.address("http"), server_pid(serve.url)
        os.kill(pid, signal.SIGSTOP)  # a server that takes its time
        serve.process.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping on SIGTERM" in serve.stderr)
        assert processes.get(url + "/readyz") == (503, "not ready\n")
        eventually(lambda: json.loads(processes.get(url + "/healthz")[1])["kqueue"]["why"])
        assert processes.get(url + "/readyz") == (503, "not ready\n")
        with suppress(ProcessLookupError):  # it may have been killed for taking too long
            os.kill(pid, signal.SIGCONT)
        assert serve.process.wait(30) == 0


def test_components_close_in_reverse_and_http_last(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "debug") as serve:
        assert serve.ready
        assert serve.end(signal.SIGTERM) == 0
    order = ["http", "redis", "rsmq", "chasqui", "journal", "queue", "alarm"]
    order += ["gomq", "kqueue", "console"]
    assert re.findall(r"process  (\w+) is started", serve.stderr) == order
    assert re.findall(r"process  (\w+) is stopped", serve.stderr) == order[::-1]


@pytest.mark.parametrize("component", LISTENING)
def test_a_taken_port_names_the_component_and_closes_the_others(
    tmp_path: Path, component: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        flags = [
            "--data-dir",
            str(tmp_path / "data"),
            *FREE_PORTS,
            f"--{component}-port",
            str(port),
        ]
        refused = tambo("serve", *flags, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"tambo: {component} cannot be served: 127.0.0.1:{port} is taken: choose another port with "
        f"--{component}-port {port + 1}, or leave it out with --no-{component}\n"
    )
    log = tmp_path / "data" / "valkey.log"
    assert component == "http" or "bye bye" in log.read_text()


@pytest.mark.slow
def test_components_can_be_left_out(tmp_path: Path) -> None:
    with serving(tmp_path, *(f"--no-{component}" for component in OPTIONAL)) as serve:
        assert list(serve.ready["endpoints"]) == ["redis", "data"]
        assert ask(serve.url, "PING") == b"PONG"
        assert serve.end(signal.SIGTERM) == 0
    with serving(tmp_path, "--no-gomq", "--no-rsmq", "--no-gomq", "--rsmq") as serve:
        names = ["redis", "data", "rsmq", "chasqui", "kqueue", "http"]
        assert list(serve.ready["endpoints"]) == names
        assert "gomq" not in health(serve)[1]


def test_a_settings_file_can_set_everything(tmp_path: Path) -> None:
    (tmp_path / "tambo.toml").write_text(
        f"""
        [server]
        redis_port = 0
        data_dir = "{tmp_path}/elsewhere"
        [rsmq]
        enabled = false
        [chasqui]
        queue = ["emails"]
        [gomq]
        port = 0
        token = "s3cret"
        [kqueue]
        port = 0
        ok_replies = true
        [http]
        port = 0
        [log]
        level = "debug"
        """
    )
    with serving(tmp_path, "--data-dir", str(tmp_path / "elsewhere")) as serve:
        names = ["redis", "data", "chasqui", "gomq", "kqueue", "http"]
        assert list(serve.ready["endpoints"]) == names
        with GomqClient(serve.address("gomq"), token="s3cret") as client:
            client.publish("news", "hello")
        with socket.create_connection(at(serve, "kqueue"), timeout=60) as peer:
            peer.sendall(b"consume")
            assert peer.recv(2) == b"OK"
        assert samples(serve)["tambo_chasqui_led_queues",] == 1
        assert serve.end(signal.SIGTERM) == 0
    metrics = serve.stdout + serve.stderr + (tmp_path / "elsewhere" / "valkey.log").read_text()
    assert "s3cret" not in metrics


def test_a_token_is_not_shown_by_help_or_by_an_error(tmp_path: Path) -> None:
    assert "s3cret" not in tambo("serve", "--gomq-token", "s3cret", "--help", cwd=tmp_path).stdout
    refused = tambo("serve", "--gomq-token", "s3cret and more", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == ("tambo: --gomq-token: expected a token of visible ASCII characters\n")


def test_useless_certificates_are_wrong_settings_and_nothing_is_opened(tmp_path: Path) -> None:
    flags = ["--data-dir", str(tmp_path / "data"), *FREE_PORTS]
    refused = tambo("serve", *flags, "--kqueue-tls-cert", "none.pem", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "tambo: [kqueue]: TLS needs both --kqueue-tls-cert and --kqueue-tls-key\n"
    )
    assert not (tmp_path / "data").exists()


def test_two_serve_side_by_side(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as first, serving(tmp_path / "b") as second:
        for serve in (first, second):
            with GomqClient(serve.address("gomq")) as client:
                client.publish("news", "hello")
        assert samples(first)["tambo_gomq_published_total",] == 1
        assert samples(second)["tambo_gomq_published_total",] == 1
        pid = server_pid(second.url)
        assert second.end(signal.SIGTERM) == 0
        assert not alive(pid)
        assert health(first)[0] == 200


def test_help_lists_every_setting_under_its_section(tmp_path: Path) -> None:
    text = tambo("serve", "--help", cwd=tmp_path).stdout
    parts = [text.index(f"[{each}]:") for each in ("server", *OPTIONAL, "log")]
    assert parts == sorted(parts)
    assert text.index("[kqueue]:") < text.index("--kqueue-ok-replies, --ok-replies") < parts[5]
    assert "--gomq / --no-gomq" in text


@pytest.mark.slow
def test_on_a_cluster_only_what_can_be_spread_is_served(tmp_path: Path, cluster: Cluster) -> None:
    url = ["--redis-url", cluster.nodes[0].url]
    refused = tambo("serve", *FREE_PORTS, *url, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("tambo: rsmq cannot be served: ")
    assert "--no-rsmq" in refused.stderr
    refused = tambo("serve", *FREE_PORTS, *url, "--no-rsmq", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("tambo: gomq cannot be served: ")
    assert "--no-gomq" in refused.stderr
    flags = ["--no-rsmq", "--no-gomq", "--chasqui-queue", "a", "--chasqui-queue", "b"]
    with serving(tmp_path, *url, *flags) as serve:
        for name in ("a", "b"):
            with BlockingQueue(name, redis_url=cluster.nodes[0].url) as queue:
                queue.add("later", 1, delay_ms=50)
                counts = queue.get_job_counts
                eventually(lambda: counts().waiting == 1, within_s=15)  # noqa: B023  (used here)
        assert health(serve)[0] == 200
