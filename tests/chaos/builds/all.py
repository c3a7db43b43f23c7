"""All broken builds."""

from __future__ import annotations

from typing import Final

from tests.chaos.builds.brokers import BROKER_BUILDS
from tests.chaos.builds.chasqui import CHASQUI_BUILDS
from tests.chaos.builds.pipeline import PIPELINE_BUILDS
from tests.chaos.builds.rsmq import RSMQ_BUILDS

BUILDS: Final = (*RSMQ_BUILDS, *CHASQUI_BUILDS, *BROKER_BUILDS, *PIPELINE_BUILDS)
