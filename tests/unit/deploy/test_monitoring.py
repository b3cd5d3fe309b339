"""Dashboard and alerts are current and refer to existing runbooks.

A test of a running application checks that their metrics exist: tests/integration/application.
promtool, which `.ci/setup` installs if possible, checks the rules.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import generate_dashboard
import pytest
import yaml
from support.strictness import promtool

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
ROOT = MONITORING.parents[1]


def alerts() -> list[dict[str, Any]]:
    """Return the alerting rules."""
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_the_dashboard_is_current() -> None:
    text = json.dumps(generate_dashboard.dashboard(), indent=2) + "\n"
    current = generate_dashboard.DASHBOARD.read_text(encoding="utf-8")
    assert current == text, "run: python deploy/monitoring/generate_dashboard.py"


def test_each_alert_refers_to_a_runbook() -> None:
    """On-call engineers must find a remedy."""
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^## (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, rule["alert"]


def test_charts_name_existing_runbooks() -> None:
    """In their descriptions, for readers who notice a problem before an alert fires."""
    named = [
        found[1].lower()
        for panel in generate_dashboard.dashboard()["panels"]
        for found in [re.search(r"[Rr]unbook: ([^.]+)", panel.get("description", ""))]
        if found is not None
    ]
    page = (ROOT / "docs" / "operations" / "runbooks.md").read_text(encoding="utf-8")
    headings = {heading.lower() for heading in re.findall(r"^## (.+)$", page, re.MULTILINE)}
    assert len(named) > 3
    assert set(named) <= headings


def promtool_output(*arguments: str) -> str:
    """Run promtool, which must succeed, and return its output."""
    program = promtool()
    if program is None:
        pytest.skip("there is no promtool: on Debian and Ubuntu it is in the package prometheus")
    ran = subprocess.run(
        [program, *arguments], cwd=MONITORING, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_alerts_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool_output("test", "rules", "alerts_test.yaml")


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    document = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text(encoding="utf-8"))
    cases = [case for test in document["tests"] for case in test["alert_rule_test"]]
    raised = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert raised == silent == {rule["alert"] for rule in alerts()}


def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    """Its expressions, with the variables replaced as in Grafana."""
    expressions = [
        re.sub(r"\$\w+(?=\")", ".*", target["expr"])
        for panel in generate_dashboard.dashboard()["panels"]
        for target in panel.get("targets", [])
    ]
    assert len(expressions) > 10
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool_output("check", "rules", str(file))
