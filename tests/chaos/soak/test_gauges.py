"""The gauges of a soak: growth is seen, and noise is not taken for it."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.chaos.soak.gauges import MAX_SLOPE_MB_H, WARM_UP_S, Gauges, is_flat

SAMPLES = 20
LEAK_BYTES = 2_000_000 // 60
"""Of each minute, for 2 MB an hour."""
_PROGRAM = """
import sys
leak, kept = int(sys.argv[1]), []
for _ in sys.stdin:
    garbage = [str(number) for number in range(20_000)]
    kept += [bytes(500 - 33) for _ in range(leak // 500)]
    print(len(garbage), flush=True)
"""

EVERY_S = 10
HALF_AN_HOUR = range(0, 1800, EVERY_S)


def _grown(mb_h: float, seed: int) -> Gauges:
    """Gauges of half an hour of a process that leaks so much, and whose backlog comes and goes."""
    gauges, chance = Gauges(0.0), random.Random(seed)
    backlog = 0.0
    for at in HALF_AN_HOUR:
        backlog = 40.0 if chance.random() < 0.02 else backlog * 0.4
        noise = chance.uniform(0, 0.6)
        gauges.memory.append((float(at), 60 + mb_h * at / 3600 + backlog + noise))
    return gauges


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_of_2_mb_an_hour_is_seen_in_half_an_hour(seed: int) -> None:
    found = _grown(2.0, seed).growth
    assert found is not None
    assert found.is_leak
    assert found.slope == pytest.approx(2.0, abs=0.8)


@pytest.mark.parametrize("seed", range(20))
def test_backlogs_that_come_and_go_are_no_growth(seed: int) -> None:
    found = _grown(0.0, seed).growth
    assert found is not None
    assert not found.is_leak
    assert abs(found.slope) < MAX_SLOPE_MB_H


def test_a_cache_that_was_filled_once_is_no_leak() -> None:
    gauges = Gauges(0.0)
    gauges.memory = [(float(at), 50.0 if at < 1200 else 55.0) for at in HALF_AN_HOUR]
    assert gauges.growth is not None
    assert not gauges.growth.is_leak


def test_what_a_process_takes_while_it_gets_warm_does_not_count() -> None:
    gauges = Gauges(0.0)
    gauges.memory = [(float(at), min(50 + at / 10, 50 + WARM_UP_S / 10)) for at in HALF_AN_HOUR]
    assert gauges.growth is not None
    assert gauges.growth.slope == pytest.approx(0.0, abs=0.01)


def test_growth_is_not_known_before_the_process_is_warm() -> None:
    gauges = Gauges(0.0)
    gauges.memory = [(float(at), 50.0) for at in range(0, int(WARM_UP_S), EVERY_S)]
    assert gauges.growth is None


def test_what_needs_longer_to_get_warm_is_not_judged_before() -> None:
    slow = Gauges(0.0, warm_up_s=WARM_UP_S * 4)
    slow.memory = [(float(at), 50 + at / 10) for at in HALF_AN_HOUR]
    assert slow.growth is None
    usual = Gauges(0.0)
    usual.memory = slow.memory
    assert usual.growth is not None
    assert usual.growth.is_leak


def test_a_real_process_that_leaks_is_found_and_one_that_does_not_is_not() -> None:
    """Twenty minutes of both, without the waiting."""
    running = {leak: _process(leak) for leak in (0, LEAK_BYTES)}
    try:
        gauges = {leak: Gauges(0.0) for leak in running}
        for number in range(SAMPLES):
            for leak, process in running.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
                process.stdout.readline()
                # As if there were a minute between them.
                gauges[leak].sample(WARM_UP_S + 60.0 * (number + 1), process.pid)
        leaking, steady = gauges[LEAK_BYTES].growth, gauges[0].growth
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    assert leaking is not None
    assert steady is not None
    assert leaking.is_leak
    assert not steady.is_leak


def _process(leak: int) -> subprocess.Popen[bytes]:
    """A process that makes much garbage for each line that it reads, and keeps so many bytes."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(leak)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_this_process_can_be_measured_and_one_that_ended_is_left_out() -> None:
    gauges = Gauges(0.0)
    gauges.sample(1.0, os.getpid())
    gauges.sample(2.0, 2**22 + 1)  # above the highest process id
    assert len(gauges.memory) == len(gauges.fds) == 1
    assert gauges.memory[0][1] > 1


def test_descriptors_that_are_left_open_are_counted() -> None:
    gauges = Gauges(0.0)
    gauges.fds = [10, 12, 11, 10, 30, 40]
    assert gauges.more_fds == 28


@pytest.mark.parametrize(
    ("counts", "flat"),
    [
        ([5], True),
        ([100, 120, 90, 110, 100, 115], True),
        ([100, 200, 300, 400, 500, 600, 700, 800, 900], False),
    ],
)
def test_keys_are_flat_or_grow(counts: list[int], flat: bool) -> None:
    assert is_flat(counts) is flat
