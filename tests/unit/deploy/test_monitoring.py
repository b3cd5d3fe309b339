"""Dashboard and alerts are current, and lead to runbooks that are there.

That applications tell what they ask for is seen in one that runs: tests/integration/application.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import generate_dashboard
import yaml

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
ROOT = MONITORING.parents[1]


def alerts() -> list[dict[str, Any]]:
    """The rules."""
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_the_dashboard_is_current() -> None:
    text = json.dumps(generate_dashboard.dashboard(), indent=2) + "\n"
    current = generate_dashboard.DASHBOARD.read_text(encoding="utf-8")
    assert current == text, "run: python deploy/monitoring/generate_dashboard.py"


def test_each_alert_leads_to_a_runbook() -> None:
    """Who is woken by it must find what to do."""
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, rule["alert"]


def test_each_runbook_is_led_to_by_the_dashboard_or_an_alert() -> None:
    """Charts name runbooks in their descriptions."""
    titles = [
        panel["description"].partition("Runbook: ")[2].rstrip(".")
        for panel in generate_dashboard.dashboard()["panels"]
        if "Runbook: " in panel.get("description", "")
    ]
    page = (ROOT / "docs" / "operations" / "runbooks.md").read_text(encoding="utf-8")
    headings = {heading.lower() for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert titles
    assert set(titles) <= headings
