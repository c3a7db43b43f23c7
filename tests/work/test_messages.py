from __future__ import annotations

import pytest

from tambomq.work.messages import (
    ConsumerMessage,
    ExitMessage,
    LoadedMessage,
    LoadFailedMessage,
    ProcessMessage,
    ProcessReport,
    QueueState,
    RunningJob,
    TargetInfo,
    decode_message,
    encode_message,
)

TARGET = TargetInfo("app:mail", "Jobs", "mail", "redis://127.0.0.1:6379/0", 100, ("welcome",))
STATE = QueueState("mail", 1, 100, is_consuming=True, fetched_s_ago=0.5)


@pytest.mark.parametrize(
    "message",
    [
        LoadedMessage([TARGET], ["/app.py"]),
        LoadFailedMessage("no\nmodule", "Traceback"),
        ExitMessage("max_jobs", "it has run 5 jobs"),
        ConsumerMessage("tambo-1", "cGFzc3dvcmQ="),
        ConsumerMessage("tambo-1", None),
        ProcessReport(1, 0.0, [STATE], RunningJob("mail", "w-7", "welcome", 1.5), []),
    ],
)
def test_a_message_is_one_line_and_comes_back(message: ProcessMessage) -> None:
    line = encode_message(message)
    assert line.count(b"\n") == 1
    assert decode_message(line) == message


def test_a_running_job_is_named_by_what_it_has() -> None:
    assert str(RunningJob("mail", "w-7", "welcome", 0)) == "mail welcome w-7"
    assert str(RunningJob("letters", "k3", "", 0)) == "letters k3"
