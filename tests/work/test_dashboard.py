"""The Grafana dashboard shows metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tambomq.work.supervisor import metrics
from tambomq.work.supervisor.totals import TotalCounts

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/tambo-work.json").read_text())

_METRIC = re.compile(r"\btambo_work_\w+")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def shown() -> set[str]:
    """The metrics that the dashboard asks for, histograms by their own name."""
    names = _METRIC.findall(json.dumps(DASHBOARD))
    return {_SUFFIX.sub("", name) for name in names}


def test_the_dashboard_shows_every_metric_that_workers_serve_and_no_other() -> None:
    page = metrics.page(TotalCounts(), [], {})
    assert shown() == set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))


def test_panels_neither_overlap_nor_share_an_id() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
