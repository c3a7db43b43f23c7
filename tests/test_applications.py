"""The FastAPI and the Django example: jobs added from each, results awaited, their own tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.servers import Server, eventually
from tests.servers.ports import free_port

EXAMPLES = Path(__file__).parents[1] / "examples"
FASTAPI, DJANGO = EXAMPLES / "fastapi_app", EXAMPLES / "django_app"
WORK = (sys.executable, "-c", "from tambomq.cli.main import main; main()", "work")
WITHIN_S = 60


def environment(server: Server) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("TAMBO_")}
    return known | {"TAMBO_REDIS_URL": server.url, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def started(*command: str, at: Path, server: Server) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=at, env=environment(server))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WITHIN_S)
        finally:
            process.kill()
            process.wait()


def run(*command: str, at: Path, server: Server) -> str:
    done = subprocess.run(
        command,
        cwd=at,
        env=environment(server),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_endpoint_has_a_jobs_result_also_after_a_worker_was_killed(
    server: Server,
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = (sys.executable, "-m", "uvicorn", "web:app", "--port", str(port))
    with started(*serve, at=FASTAPI, server=server) as web, httpx.Client(base_url=url) as client:

        def is_up() -> bool:
            assert web.poll() is None
            try:
                return client.get("/openapi.json").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_up, within_s=WITHIN_S)
        with started(*WORK, "jobs", at=FASTAPI, server=server) as work:
            job = client.post("/reports/ada", params={"days": 70}).json()["job"]
            found = client.get(f"/reports/{job}", timeout=30).json()
            assert found == {"customer": "ada", "orders": 7}
            work.send_signal(signal.SIGKILL)
            work.wait(WITHIN_S)
        job = client.post("/reports/bob").json()["job"]
        with started(*WORK, "jobs", at=FASTAPI, server=server):
            found = client.get(f"/reports/{job}", timeout=30).json()
        assert found == {"customer": "bob", "orders": 3}


@pytest.mark.slow
def test_the_tests_of_the_fastapi_example_pass(server: Server) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", ".")
    said = run(
        sys.executable, "-m", "pytest", *options, "-c", os.devnull, at=FASTAPI, server=server
    )
    assert "2 passed" in said


@pytest.mark.slow
def test_a_job_of_djangos_shell_runs_and_its_result_is_awaited(server: Server) -> None:
    typed = (
        "from shop.jobs import welcome; "
        "print(welcome.add_sync('ada@example.com', lang='de').result_sync())"
    )
    with started(*WORK, "shop.jobs", at=DJANGO, server=server):
        said = run(sys.executable, "manage.py", "shell", "-c", typed, at=DJANGO, server=server)
    assert said.splitlines()[-1] == "Willkommen, ada@example.com!"


@pytest.mark.slow
def test_a_page_of_django_adds_a_job_after_its_commit(server: Server) -> None:
    typed = (
        "from django.test import Client; from shop.jobs import mail; "
        "print(Client().get('/sign-up', {'to': 'bob@example.com'}).status_code, "
        "mail.blocking_queue.get_job_counts().waiting)"
    )
    said = run(sys.executable, "manage.py", "shell", "-c", typed, at=DJANGO, server=server)
    assert said.splitlines()[-1] == "202 1"
