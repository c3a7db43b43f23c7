"""The subjects of the chaos suite, by name."""

from __future__ import annotations

from typing import Final

from tests.chaos.subject import Subject
from tests.chaos.subjects.chasqui import CHASQUI
from tests.chaos.subjects.gomq import GOMQ
from tests.chaos.subjects.jobs import JOBS
from tests.chaos.subjects.kqueue import KQUEUE
from tests.chaos.subjects.pipeline import PIPELINE
from tests.chaos.subjects.rsmq import RSMQ
from tests.chaos.subjects.spark import SPARK

_ALL: Final = (RSMQ, CHASQUI, JOBS, GOMQ, KQUEUE, PIPELINE, SPARK)
SUBJECTS: Final[dict[str, Subject]] = {each.name: each for each in _ALL}
