"""The projects that `millstream init` creates, and the shop of `millstream demo`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from millstream.cli import main
from millstream.cli.demo.shop import ORDERS, REVENUE, Totals, add_order, orders, revenue
from millstream.cli.programs.topologies import load_program
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def test_a_project_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every placeholder is replaced, every program compiles, settings are where commands look
    for them."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop-orders", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    folder = tmp_path / "shop-orders"
    assert report["folder"] == str(folder)
    assert sorted(report["files"]) == sorted(path.name for path in folder.iterdir())
    for path in folder.iterdir():
        text = path.read_text()
        assert "{{" not in text, path
        if path.suffix == ".py":
            compile(text, path, "exec")
    assert (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == "shop-orders"
    )
    found = load_program(str(folder / "app.py"))
    assert found.config is not None
    assert found.config.application_id == "shop-orders"
    # All internal names are explicit, so a new operator would not change them.
    found.topology.check_explicit_names()


def test_invalid_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that topics or containers cannot have, and folders that are not empty."""
    monkeypatch.chdir(tmp_path)
    for name in ("Shop", "9shop", "shop orders", "../shop", "shop-"):
        assert main(["init", name]) == 1
        assert "is not a valid application name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine.txt").write_text("")
    assert main(["init", "shop"]) == 1
    assert "is not an empty folder" in capsys.readouterr().err
    assert main(["init", "shop", "--folder", "elsewhere"]) == 0
    assert "cd elsewhere" in capsys.readouterr().out
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["init", "shop", "--folder", "."]) == 0
    assert "cd " not in capsys.readouterr().out


def test_the_demo_and_its_check_compute_the_same_totals() -> None:
    """Its orders are deterministic; the application and the check compute the same totals."""
    placed = list(orders(200))
    assert placed == list(orders(200))
    expected: dict[str, Totals] = {}
    for _, order in placed:
        product = order["product"]
        expected[product] = add_order(
            product, order, expected.get(product, {"orders": 0, "cents": 0})
        )
    with TopologyTestDriver(revenue()) as driver:
        source = driver.create_input_topic(ORDERS, key=STRING, value=JSON)
        out = driver.create_output_topic(REVENUE, key=STRING, value=JSON)
        for customer, order in placed:
            source.pipe_input(customer, order)
        assert out.read_key_values_to_map() == expected
    revenue().check_explicit_names()
