"""The systemd units: settings that systemd knows, time to drain, and nothing they need not do."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy import reading
from tests.deploy.reading import UNITS, option, seconds

# Of systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.kill(5), what is used here.
KNOWN = {
    "Unit": {"Description", "After", "Wants"},
    "Service": {
        *("Type", "NotifyAccess", "WatchdogSec", "EnvironmentFile", "ExecStart", "KillMode"),
        *("Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec", "DynamicUser"),
        *("StateDirectory", "StateDirectoryMode", "ConfigurationDirectory", "UMask"),
        *("LimitNOFILE", "OOMPolicy", "NoNewPrivileges", "CapabilityBoundingSet"),
        *("AmbientCapabilities", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices"),
        *("ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs"),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectProc"),
        *("RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
        *("LockPersonality", "SystemCallArchitectures", "SystemCallFilter"),
        "SystemCallErrorNumber",
    },
    "Install": {"WantedBy"},
}
REQUIRED = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallFilter": "@system-service",
}
EXPOSED_AT_MOST = 25
"""Of ``systemd-analyze security``, in tenths: 2.5 of 10."""


@pytest.fixture(params=UNITS, ids=lambda path: path.name)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_there_is_a_unit_for_the_server_and_one_for_workers() -> None:
    assert [each.name for each in UNITS] == ["tambo-serve.service", "tambo-work@.service"]


def test_all_settings_are_known(path: Path) -> None:
    found = reading.unit(path)
    assert found.keys() == KNOWN.keys()
    assert {
        name: set(found[name]) - KNOWN[name] for name in found if set(found[name]) - KNOWN[name]
    } == {}


def test_a_unit_is_sandboxed_and_restarted(path: Path) -> None:
    service = reading.unit(path)["Service"]
    assert {name: service.get(name) for name in REQUIRED} == REQUIRED
    assert service["Restart"] in {"always", "on-failure"}


def test_a_service_says_when_it_is_ready_and_that_it_lives(path: Path) -> None:
    service = reading.unit(path)["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert seconds(service["WatchdogSec"]) >= 30


def test_workers_have_longer_to_stop_than_to_drain() -> None:
    service = reading.unit(reading.DEPLOY / "systemd" / "tambo-work@.service")["Service"]
    drain_s = float(option(shlex.split(service["ExecStart"]), "--drain-s"))
    assert seconds(service["TimeoutStopSec"]) > drain_s
    assert service["KillMode"] == "mixed"


def test_a_duplicate_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.service").write_text("[Service]\nType=notify\nType=exec\n")
    with pytest.raises(ValueError, match=r"a\.service:3"):
        reading.unit(tmp_path / "a.service")


def test_systemd_agrees_where_it_is_installed(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    program = Path(sys.executable).with_name("tambo")
    copy.write_text(
        re.sub(r"(?<=^ExecStart=)\S+", str(program), path.read_text(), flags=re.MULTILINE)
    )
    assert str(program) in copy.read_text()
    if tool := shutil.which("systemd-analyze"):
        command = [tool, "verify", "--recursive-errors=no", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        command = [tool, "security", "--offline=true", f"--threshold={EXPOSED_AT_MOST}", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
