from __future__ import annotations

from pathlib import Path

import pytest

from tambomq import machine

GIB = 1 << 30
FILES = {
    "version 2": {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/memory.max": f"{GIB // 8}\n",
    },
    "version 2, in a container": {
        "proc/self/cgroup": "0::/docker/4711\n",
        "sys/fs/cgroup/memory.max": f"{GIB // 8}\n",
    },
    "version 1": {
        "proc/self/cgroup": "5:cpu:/x\n4:memory,hugetlb:/docker/4711\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB // 8}\n",
        "sys/fs/cgroup/cpu/x/memory.limit_in_bytes": "1\n",
    },
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_a_container_has_the_memory_it_is_limited_to(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert machine.memory_bytes(tmp_path) == GIB // 8


def test_without_limits_a_process_has_the_memory_of_the_machine(tmp_path: Path) -> None:
    whole = machine.memory_bytes(tmp_path)
    assert whole > GIB // 8
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n", "utf-8")
    assert machine.memory_bytes(tmp_path) == whole


def test_half_of_memory_is_rounded_to_mebibytes() -> None:
    half = machine.half_of_memory()
    assert half % (1 << 20) == 0
    assert 0 < half <= machine.memory_bytes() // 2
