"""The console's page in a browser, without a broker and Spark."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machine.browser import Browser, chromium
from support.running.topologies.console_sample import sample
from support.running.topologies.scored import Scored
from support.strictness import has_browser
from support.tasks.served_tasks import ServedTasks
from support.waiting import wait_for

from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer

pytestmark = pytest.mark.skipif(
    not has_browser(), reason="There is no Chromium with its driver (chromium, chromedriver)."
)

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as window:
        yield window


def test_large_numbers_are_not_rounded(browser: Browser) -> None:
    """Numbers that JavaScript would round become texts; other numbers, and similar texts, are
    unchanged."""
    number = 1234567890123456789
    with ServedTasks(1) as served:
        escaped = f'a "{number}" \\'.encode()
        for key, value in ((number, escaped), (-(2**53), b"1e400"), (2**53 - 1, b"")):
            served.tasks[0].write("numbers-in", struct.pack(">q", key), value, 0)
        serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
        try:
            # Any file of the server: its modules can be imported from there.
            browser.open(f"http://127.0.0.1:{serving.port}/assets/server.js")
            page = browser.run(
                "const { fetchJson, keepToken } = await import('/assets/server.js');"
                "keepToken(arguments[0]);"
                "return await fetchJson('/stores/numbers/range');",
                TOKEN,
            )
        finally:
            serving.close()
    found = {each["key"]: each["value"] for each in page["entries"]}
    assert found == {str(number): escaped.decode(), str(-(2**53)): "1e400", 2**53 - 1: ""}


def test_a_new_address_opens_a_rejected_page(browser: Browser, tmp_path: Path) -> None:
    """As after a restart of the application, in the open tab, for any address."""
    application = sample(str(tmp_path)).streams
    url, _, token = application.serve(port=0, token=f"100%-{TOKEN}").console.partition("#")
    try:
        browser.open(f"{url}#token=this-is-not-it")
        browser.await_text("main", "requires a token")
        browser.go(f"#{token}")
        browser.await_text("main", "Throughput")
        application.pause()
        browser.await_text(".top", "aused")
        browser.go("#/stores/%E0%A4%A")
        browser.await_text("main", "Stores")
        browser.open("about:blank")
        browser.open(f"{url}#token=100%-{TOKEN}")
        browser.await_text("main", "Throughput")
    finally:
        application.close()
    assert not [each for each in browser.errors() if "URIError" in each]


#: Whether the box is inside of its sub-topology, and below the title.
INSIDE = """
const places = (which) =>
  [...document.querySelectorAll(which)].map((one) => one.getBoundingClientRect());
const [box] = places("[data-box='dataframe:score'] rect");
const part = places("svg.graph .part").find(({ left, right, top, bottom }) =>
  left < box.left && box.right < right && top < box.top && box.bottom < bottom);
if (!part) return "it is in no sub-topology";
const title = places("svg.graph .title").find(({ left, top }) =>
  part.left < left && part.top < top && top < part.bottom);
return title.bottom <= box.top ? "inside" : "it covers the title";
"""


def await_note(browser: Browser, text: str) -> None:
    """Wait until a box of the drawing contains this text."""

    def notes() -> list[str]:
        return browser.texts("svg.graph .note")

    wait_for(lambda: any(text in note for note in notes()), 20, lambda: f"{text} in {notes()}")


#: The stores whose texts cross the outline of their cylinder, or the front edge of its lid.
CROSSING = """
const lid = 12;
return [...document.querySelectorAll("svg.graph .box.store")].filter((box) => {
  const edge = box.querySelector("path").getBBox();
  return [...box.querySelectorAll("text")].map((text) => text.getBBox()).some((text) =>
    text.x < edge.x + 4 || text.x + text.width > edge.x + edge.width - 4 ||
    text.y < edge.y + lid - 2 || text.y + text.height > edge.y + edge.height - 2);
}).map((box) => box.getAttribute("data-box"));
"""


def test_stores_show_their_approximate_size(
    browser: Browser, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """RocksDB's number is an estimate, and marked as such.

    Names and notes stay inside of the drawing.
    """
    application = sample(str(tmp_path)).streams
    try:
        browser.open(f"{application.serve(port=0).console}")
        browser.await_text("main", "Throughput")
        browser.go("#/topology")
        await_note(browser, "about ")
        notes = browser.texts("svg.graph .box.store .note")
        assert [note for note in notes if not note.startswith("about ")] == []
        browser.screenshot(tmp_path_factory.getbasetemp() / "stores.png")
        assert browser.run(CROSSING) == []
        browser.go("#/stores")
        listed = browser.await_text(".list", "entries")
        assert listed.count("about ") == listed.count("entr")
    finally:
        application.close()


def test_dead_letters_are_shown_by_node_and_handler(browser: Browser, tmp_path: Path) -> None:
    """In the overview, with the errors, and at their node in the topology."""
    application = sample(str(tmp_path)).streams
    try:
        browser.open(f"{application.serve(port=0).console}")
        browser.await_text(".figures", "12 dead letters")
        browser.screenshot(tmp_path / "overview.png")
        browser.click(".figures a[href='#/errors']")
        browser.await_text("main .card table", "KSTREAM-JOIN-0000000006", "processing", "9")
        rows = browser.text("main .card table tbody").splitlines()
        assert [row.split() for row in rows] == [
            ["KSTREAM-JOIN-0000000006", "processing", "dead-letters", "9"],
            ["KSTREAM-SOURCE-0000000004", "deserialization", "dead-letters", "3"],
        ]
        browser.run("document.querySelector('main table').scrollIntoView()")
        browser.screenshot(tmp_path / "errors.png")
        browser.go("#/topology/node:KSTREAM-JOIN-0000000006")
        browser.await_text(".about", "9 to dead-letters (processing)")
        browser.screenshot(tmp_path / "topology.png")
    finally:
        application.close()
    assert browser.errors() == []


def test_a_dataframe_function_shows_the_progress_of_its_query(
    browser: Browser, tmp_path: Path
) -> None:
    """In the drawing and beside it, as its metrics change."""
    scored = Scored(str(tmp_path))
    try:
        browser.open(f"{scored.streams.serve(port=0).console}")
        browser.await_text("main", "Throughput")
        browser.go("#/topology/dataframe:score")
        await_note(browser, "/s · 840")
        assert browser.run(INSIDE) == "inside"
        for text in ("DataFrame function", "840", "12.5", "319 records", "2 times", "scored.py"):
            browser.await_text(".about", text)
        scored.numbers["state"] = "standby"
        await_note(browser, "standby")
        browser.await_text(".about", "standby")
    finally:
        scored.streams.close()
    assert browser.errors() == []
