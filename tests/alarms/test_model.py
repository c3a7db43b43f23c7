"""What an alarm stops, and the sentences that it is logged and shown with."""

from __future__ import annotations

from tambomq.alarms.model import Alarm

MIB = 1 << 20


def test_memory_and_disk_stop_every_queue_and_length_its_own() -> None:
    assert Alarm("memory", "", 1, 1, 1).stops("gomq:any")
    assert Alarm("disk", "/data", 1, 1, 1).stops("rsmq:any")
    assert not Alarm("memory", "", 1, 1, 1).stops("kqueue:any")
    of_queue = Alarm("queue_length", "gomq:orders", 1, 1, 1)
    assert of_queue.stops("gomq:orders")
    assert not of_queue.stops("rsmq:orders")


def test_the_text_has_the_value_and_both_limits() -> None:
    memory = Alarm("memory", "", 95 * MIB, 90 * MIB, 80 * MIB)
    assert memory.text == (
        "memory has 95.0 MiB in use, the limit is 90.0 MiB; it is cleared below 80.0 MiB"
    )
    disk = Alarm("disk", "/data", 100 * MIB, 256 * MIB, 512 * MIB)
    assert disk.text == (
        "the disk of /data has 100.0 MiB free, the minimum is 256.0 MiB; it is cleared at 512.0 MiB"
    )
    queue = Alarm("queue_length", "gomq:orders", 1200, 1000, 900)
    assert queue.text == (
        "queue gomq:orders has 1,200 messages, the limit is 1,000; it is cleared below 900"
    )
    assert all(each.advice for each in (memory, disk, queue))
