"""The Dockerfile and the compose file: no root, nothing unpinned, and time to drain."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import reading
from tests.deploy.reading import COMPOSE, DEPLOY, DOCKERFILE, ROOT, option, seconds

STAGES = reading.stages(DOCKERFILE.read_text())
SERVICES: dict[str, dict[str, Any]] = reading.documents(COMPOSE)[0]["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}

KNOWN = {
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}
# Of the compose specification, what is used here.
OF_FILE = {"name", "services", "volumes"}
OF_SERVICE = {
    *("image", "build", "command", "volumes", "healthcheck", "restart", "depends_on", "ports"),
    *("environment", "stop_grace_period", "deploy", "read_only", "tmpfs", "cap_drop"),
    "security_opt",
}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def ignored(path: str) -> bool:
    """Whether the builder leaves *path* out: the last pattern that matches decides."""
    verdict = False
    for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = _prefixes(path)
        names = [Path(part).name for part in parts] if "**/" in line else []
        if line and line[0] != "#" and any(fnmatch(part, pattern) for part in (*parts, *names)):
            verdict = not line.startswith("!")
    return verdict


def _prefixes(path: str) -> list[str]:
    parts = Path(path).parts
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def test_each_instruction_is_one_of_docker() -> None:
    words = {one.word for build in STAGES.values() for one in build.instructions}
    assert words <= KNOWN
    assert "ADD" not in words  # it fetches and unpacks, which nobody expects of a copy


def test_copied_files_exist_and_are_in_the_build_context() -> None:
    for build in STAGES.values():
        for one in build.instructions:
            if one.word != "COPY" or one.rest.startswith("--from="):
                continue
            *sources, _ = one.words
            assert [each for each in sources if not (ROOT / each).exists()] == []
            assert [each for each in sources if ignored(each)] == []


def test_neither_secrets_nor_caches_get_into_the_context() -> None:
    for path in (".git/config", ".venv/bin/python", "tambo.toml", "tests/conftest.py"):
        assert ignored(path), path
    assert ignored("src/tambomq/__pycache__/errors.cpython-311.pyc")
    assert not ignored("src/tambomq/errors.py")


def test_base_images_have_a_version_and_stages_exist() -> None:
    for build in STAGES.values():
        tag = build.base.partition(":")[2]
        assert build.base in STAGES or re.match(r"\d", tag), build.base
        for one in build.instructions:
            if source := re.match(r"--from=(\S+)", one.rest):
                assert source[1] in STAGES


@pytest.mark.parametrize("name", ["tambo", "shop"])
def test_an_image_runs_our_command_as_process_1_and_not_as_root(name: str) -> None:
    user = reading.inherited(STAGES, name, "USER")
    assert user is not None
    assert all(number.isdigit() and number != "0" for number in user.rest.split(":"))
    for word in ("ENTRYPOINT", "CMD"):
        found = reading.inherited(STAGES, name, word)
        assert found is not None
        assert found.is_exec_form  # a shell as process 1 would keep the signals to itself
    order = [one.word for one in STAGES[name].instructions]
    assert "RUN" not in order[order.index("USER") if "USER" in order else 0 :]


def test_pip_keeps_no_cache_and_takes_the_pinned_versions() -> None:
    installs = [
        one.rest
        for build in STAGES.values()
        for one in build.instructions
        if one.word == "RUN" and "pip install" in one.rest
    ]
    assert installs
    assert all("--no-cache-dir" in each and "-c constraints.txt" in each for each in installs)


def test_the_image_is_asked_for_its_health_where_it_serves_it() -> None:
    shop = STAGES["shop"]
    command, health, port = (shop.last(word) for word in ("CMD", "HEALTHCHECK", "EXPOSE"))
    assert command
    assert health
    assert port
    assert option(command.words, "--http-port") == port.rest
    assert f"http://127.0.0.1:{port.rest}/healthz" in health.words[-1]
    compile(health.words[-1], "health", "exec")


def test_the_compose_file_has_only_known_fields() -> None:
    (document,) = reading.documents(COMPOSE)
    assert document.keys() <= OF_FILE
    for service in SERVICES.values():
        assert service.keys() <= OF_SERVICE
        assert ("image" in service) != ("build" in service)
        assert all(isinstance(word, str) for word in service["command"])
        for name, how in service.get("depends_on", {}).items():
            assert how["condition"] in CONDITIONS
            assert "healthcheck" in SERVICES[name]
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in document["volumes"]


def test_services_are_built_from_stages_that_exist() -> None:
    for service in OURS.values():
        build = service["build"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]) == DOCKERFILE
        assert build["target"] in STAGES
    image = SERVICES["valkey"]["image"]
    assert re.search(r":\d", image)


def test_our_services_can_change_nothing_but_a_temporary_directory() -> None:
    for service in OURS.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]


def test_published_ports_are_those_of_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_server_keeps_what_it_was_given() -> None:
    command = " ".join(SERVICES["valkey"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_workers_have_longer_to_stop_than_to_drain() -> None:
    work = SERVICES["work"]
    drain_s = float(option(work["command"], "--drain-s"))
    assert seconds(work["stop_grace_period"]) > drain_s
    assert work["environment"]["TAMBO_REDIS_URL"].startswith("redis://valkey:")


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: 1\na: 2\n")
    with pytest.raises(yaml.YAMLError, match="twice"):
        reading.documents(tmp_path / "a.yaml")
