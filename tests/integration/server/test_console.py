"""The console in a browser with real applications: their events are visible, and every user can
operate it.

This module also takes the screenshots of the docs: MILLSTREAM_SCREENSHOTS names the folder for
them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from selenium.webdriver.common.keys import Keys
from support.background import background
from support.broker.topics import BrokerTopics, fill, unique
from support.machine.browser import Browser, chromium
from support.running.applications import processed
from support.running.topologies.shop import INPUTS, OUTPUTS, POISON, shop
from support.strictness import has_browser
from support.waiting import stays, wait_for

from millstream import KafkaStreams, StreamsConfig, StreamsUncaughtExceptionHandlerResponse
from millstream.parallel import (
    ProcessingContext,
    ProcessorSubscription,
    Properties,
    SubscriptionConfig,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

_CONTROLS = frozenset(
    {
        "button",
        "checkbox",
        "combobox",
        "link",
        "radio",
        "spinbutton",
        "textbox",
        "DisclosureTriangle",
        "dialog",
        "img",
        "progressbar",
        "region",
        "navigation",
        "DateTime",
    }
)


def nameless(browser: Browser) -> list[str]:
    """The controls, pictures and regions without an accessible name."""
    browser.driver.execute_cdp_cmd("Accessibility.enable", {})
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})
    found = []
    for node in cast("list[dict[str, Any]]", tree["nodes"]):
        role = node.get("role", {}).get("value")
        name = str(node.get("name", {}).get("value", "")).strip()
        if not node.get("ignored") and role in _CONTROLS and not name:
            found.append(f"{role} {node.get('properties', [])}"[:200])
    return found


def faint(browser: Browser) -> list[str]:
    """The texts with too little contrast to their background."""
    return [str(each) for each in browser.run(_script("page_contrast.js"))]


def unseen_focus(browser: Browser) -> tuple[list[str], list[str]]:
    """Press Tab repeatedly; return the reached elements, and those without a visible focus."""
    browser.run("scrollTo(0, 0); document.querySelector('a').focus()")
    script = _script("page_focus.js")
    reached: list[str] = []
    unseen = []
    for _ in range(40):
        browser.press(Keys.TAB)
        found = browser.run(script)
        if found is None:
            break
        if not found["isSeen"]:
            unseen.append(str(found["describe"]))
        reached.append(str(found["describe"]))
    return reached, unseen


def _script(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


pytestmark = pytest.mark.skipif(
    not has_browser(), reason="There is no Chromium with its driver (chromium, chromedriver)."
)

RUNNING = timedelta(seconds=90)
SHOTS = os.environ.get("MILLSTREAM_SCREENSHOTS")
PARTITIONS = 4
CUSTOMERS = 40
MANY = 400
VIEWS = ("overview", "topology", "tasks", "restore", "stores/sold-by-hour", "errors", "timeline")


@dataclass
class Running:
    """A shop that has served orders, failed at one, and recovered."""

    streams: KafkaStreams
    bootstrap: str
    console: str

    def order(self, count: int = MANY) -> None:
        """Write this many orders of all customers."""
        orders = [(b"c%d" % (n % CUSTOMERS), b"p%d" % (n % 7)) for n in range(count)]
        fill(self.bootstrap, "orders", orders)


@pytest.fixture(scope="module")
def running(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """The running shop, after one restoration and one error."""
    folder = tmp_path_factory.mktemp("shop")
    poisoned = folder / "poisoned"
    poisoned.touch()
    places = BrokerTopics(kafka.bootstrap_servers)
    places.create(dict.fromkeys((*INPUTS, *OUTPUTS), PARTITIONS))
    people = [(b"c%d" % n, b"customer %d" % n) for n in range(CUSTOMERS)]
    fill(kafka.bootstrap_servers, "customers", people)
    fill(kafka.bootstrap_servers, "products", [(b"p%d" % n, b"product %d" % n) for n in range(7)])
    config = StreamsConfig(
        application_id=unique("shop"),
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(folder / "state"),
        num_stream_threads=2,
        commit_interval_ms=200,
        default_key_serde=STRING,
        default_value_serde=STRING,
        metrics_recording_level="DEBUG",
        consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    streams = KafkaStreams(shop(poisoned), config, spark)
    streams.set_uncaught_exception_handler(
        lambda error: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    address = streams.serve(port=0)
    found = Running(streams, kafka.bootstrap_servers, address.console)
    with streams:
        streams.wait_for_state("RUNNING", RUNNING)
        found.order()
        wait_for(
            lambda: processed(streams) >= 2 * MANY + CUSTOMERS,
            60,
            lambda: f"all orders are counted: {processed(streams)}, {streams.error}",
        )
        fill(kafka.bootstrap_servers, "orders", [(b"c1", POISON.encode())])
        event_log = streams._supervisor.event_log
        wait_for(
            lambda: event_log.snapshot().failures and event_log.snapshot().failures[0].over,
            60,
            lambda: f"another thread runs in its place: {event_log.snapshot().failures}",
        )
        streams.wait_for_state("RUNNING", RUNNING)
        found.order()
        with continuous_orders(found):
            yield found


@contextmanager
def continuous_orders(running: Running) -> Iterator[None]:
    """Write orders continuously; for screenshots, start a minute earlier."""
    if SHOTS is None:
        yield
        return
    with background(lambda: running.order(1_500), 0.4):
        stays(lambda: True, 60)
        yield


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser, running: Running) -> Iterator[Browser]:
    """The console of the shop, with its overview; there must be no errors in the browser's log."""
    window.look(1280, 800)
    window.open("about:blank")
    window.open(running.console)
    window.find("main .figures")
    yield window
    assert window.errors() == []


def take_screenshots(browser: Browser, name: str, height: int = 800) -> None:
    """Take screenshots in both color schemes, if requested."""
    if SHOTS is None:
        return
    for theme, other in (("light", "dark"), ("dark", "light")):
        browser.look(1280, height, theme)
        browser.run("document.activeElement?.blur(); scrollTo(0, 0)")
        browser.find(f":root[data-theme={theme}] [aria-label='Switch to {other} colors']")
        browser.screenshot(Path(SHOTS) / f"console-{name}-{theme}.png")
    browser.look(1280, 800)


def test_overview(browser: Browser, running: Running) -> None:
    """State, throughput and the latest events; the token is removed from the address."""
    browser.await_text("main", "Throughput", "Running for", "ProcessingError in task")
    assert running.streams._config.application_id in browser.text(".top")
    assert browser.run("return location.hash") == "#/overview"
    assert "Running" in browser.text(".top")
    take_screenshots(browser, "overview")


def test_topology(browser: Browser, running: Running) -> None:
    """A drawing with topics and stores, live numbers, and keyboard navigation."""
    browser.click(".ways a[href='#/topology']")
    browser.find("svg.graph .box.topic")
    captions = " ".join(browser.texts("svg.graph .box text, svg.graph .title"))
    for name in ("orders", "customers", "sold-by-hour", "orders-by-customer", "Global store"):
        assert name in captions
    with background(running.order, 0.5):
        # From three topics, one of them the application's own, and to the four output topics.
        wait_for(
            lambda: sum("/s" in each for each in browser.texts("svg.graph .label")) == 7,
            30,
            lambda: f"records are seen to flow: {browser.texts('svg.graph .label')}",
        )
    assert browser.run(OVERLAPPING) == []
    browser.click("[data-box='topic:orders']")
    browser.await_text(".about", "orders", "Input topic")
    browser.run("document.querySelector(`[data-box='topic:orders']`).focus()")
    browser.press(Keys.ARROW_DOWN)
    browser.await_text(".about", "Source of sub-topology")
    browser.press(Keys.ARROW_DOWN)
    browser.await_text(".about", "Processor of sub-topology", "filter")
    take_screenshots(browser, "topology")


def test_tasks(browser: Browser, running: Running) -> None:
    """Each thread with its tasks, on its host."""
    browser.click(".ways a[href='#/tasks']")
    browser.await_text("main", "Thread 1", "Thread 2", "pid ", "0_0", "2_3")
    threads = running.streams.metadata_for_local_threads()
    assert len(browser.all(".thread")) == len(threads)
    active = sum(len(each.active_tasks) for each in threads)
    assert len(browser.all(".task:not(.standby)")) == active
    take_screenshots(browser, "tasks")


@pytest.mark.extended
def test_restore(browser: Browser) -> None:
    """The counts, which are in memory, were restored from their changelog after the error."""
    browser.click(".ways a[href='#/restore']")
    browser.await_text("main", "orders-by-customer", "Ended", "records")
    assert browser.all(".progress .bar.done")
    take_screenshots(browser, "restore")


def test_store(browser: Browser) -> None:
    """A store's properties, a key, a missing key, a range in pages, and windows."""
    browser.click(".ways a[href='#/stores']")
    browser.click(".list a[href='#/stores/orders-by-customer']")
    browser.await_text("main", "key-value", "STRING → LONG", "in memory", "changelog")
    browser.type("input[name=key]", "c1")
    browser.press(Keys.ENTER)
    browser.await_text(".found", "c1", "Timestamp", "1 entry")
    browser.type("input[name=key]", "nobody")
    browser.press(Keys.ENTER)
    browser.await_text(".found", "There is no entry with this key.")
    assert len(browser.errors()) == 1, "the browser logs each 404"

    browser.click("label[data-way=Range]")
    browser.find("input[name=from]")
    browser.press(Keys.TAB)
    browser.click(".ask button[type=submit]")
    browser.await_text(".found", f"{CUSTOMERS} entries", "no more entries")
    browser.type("input[name=from]", "c1")
    browser.type("input[name=to]", "c13")
    browser.press(Keys.ENTER)
    browser.await_text(".found", "5 entries")
    keys = {row.split()[0] for row in browser.text(".found tbody").splitlines()}
    assert keys == {"c1", "c10", "c11", "c12", "c13"}
    take_screenshots(browser, "store")

    browser.click(".list a[href='#/stores/sold-by-hour']")
    browser.type("input[name=key]", "product 1")
    browser.press(Keys.ENTER)
    browser.await_text(".found", "product 1", "Window from")


def test_error(browser: Browser) -> None:
    """An error with its record, its cause, and all steps until recovery."""
    browser.click(".ways a[href='#/errors']")
    browser.await_text(
        "main",
        "ProcessingError",
        "Resolved",
        "KeyError",
        "replace the thread",
        "Running:",
    )
    assert "orders-" in browser.text(".facts")
    assert "shop.py" in browser.text(".error .inside")
    # Without the lower part of the stack, which contains paths of this machine.
    take_screenshots(browser, "error", height=650)


@pytest.mark.extended
def test_timeline(browser: Browser) -> None:
    """Rebalances, with the tasks of each thread before and after."""
    browser.click(".ways a[href='#/timeline']")
    browser.await_text("main", "Rebalance 1", "restored", "Rebalancing → Running")
    browser.click(".events li:has(details) summary")
    browser.await_text(".exchange", "Thread 1", "0_0")
    take_screenshots(browser, "timeline")


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ((360, 740), "light"),
        ((1280, 800), "dark"),
        *(
            pytest.param(size, theme, marks=pytest.mark.extended)
            for size, theme in [
                ((360, 740), "dark"),
                ((1280, 800), "light"),
                ((1600, 900), "light"),
                ((1600, 900), "dark"),
            ]
        ),
    ],
)
def test_all_views_are_accessible(browser: Browser, size: tuple[int, int], theme: str) -> None:
    """Names, contrasts, and no horizontal scrolling, in all views, sizes and color schemes."""
    browser.look(*size, theme)
    for way in VIEWS:
        browser.go(f"#/{way}")
        browser.find(f".ways a[href='#/{way.split('/')[0]}'][aria-current]")
        browser.find(f":root[data-theme={theme}]")
        assert browser.run("return document.documentElement.scrollWidth") <= size[0], way
        assert faint(browser) == [], way
        assert nameless(browser) == [], way
        assert len(browser.all("h1")) == len(browser.all("main")) == 1


@pytest.mark.extended
def test_tab_reaches_everything_with_visible_focus(browser: Browser) -> None:
    """From the skip link through the views to their content."""
    for way in ("overview", "topology", "stores/sold-by-hour"):
        browser.go(f"#/{way}")
        browser.find(f".ways a[href='#/{way.split('/')[0]}'][aria-current]")
        reached, unseen = unseen_focus(browser)
        assert unseen == []
        assert len(reached) > 8, reached


@pytest.mark.extended
def test_the_page_can_be_reopened_many_times(window: Browser, running: Running) -> None:
    """A page releases its connection when another is opened: a browser has only six of them."""
    for _ in range(8):
        window.open("about:blank")
        began_s = time.monotonic()
        window.open(running.console)
        window.find("main .figures")
        # Waiting for a connection would take 45 seconds.
        assert time.monotonic() - began_s < 30


def test_a_wrong_token_can_be_replaced(browser: Browser, running: Running) -> None:
    """The page shows an error, and continues with the right one."""
    address, token = running.console.split("#token=")
    browser.open("about:blank")
    browser.open(f"{address}#token=this-is-not-it")
    browser.await_text("main", "requires a token")
    assert nameless(browser) == []
    browser.errors()
    browser.type("input[name=token]", token)
    browser.press(Keys.ENTER)
    browser.await_text("main", "Throughput")


@pytest.mark.extended
def test_a_lost_connection_is_shown_and_restored(browser: Browser, running: Running) -> None:
    """The application's server closes, and opens again at the same address."""
    serving = running.streams._http_server
    address = serving.address
    assert address is not None
    port = int(address.url.rpartition(":")[2])
    serving.close()
    browser.await_text(".live", "No connection since")
    running.streams.serve(port=port, token=address.token)
    browser.await_text(".live", "Live")
    browser.errors()


#: The boxes of the drawing that overlap.
OVERLAPPING = """
const boxes = [...document.querySelectorAll("svg.graph .box")].map((box) => {
  const { left, right, top, bottom } = box.getBoundingClientRect();
  return { name: box.dataset.box, left, right, top, bottom };
});
return boxes.flatMap((a, i) => boxes.slice(i + 1)
  .filter((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
  .map((b) => `${a.name} ${b.name}`));
"""


async def send(context: ProcessingContext, task: str) -> None:
    """Take some time."""
    await asyncio.sleep(0.2)


@pytest.mark.extended
def test_subscription(
    window: Browser, kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Pending tasks are visible; a changed concurrency is confirmed, and takes effect."""
    topic = unique("emails")
    BrokerTopics(kafka.bootstrap_servers).create({topic: 2})
    # Some are still pending when the browser is there, however slow it is.
    fill(kafka.bootstrap_servers, topic, [(b"%d" % n, b"mail %d" % n) for n in range(4_000)])
    subscription = ProcessorSubscription(
        "mailer",
        topics=topic,
        processor=send,
        value=STRING,
        config=SubscriptionConfig(
            unique("mailer"),
            kafka.bootstrap_servers,
            num_threads=1,
            state_dir=str(tmp_path),
            consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
        ),
        properties=Properties(partition_concurrency=2, commit_interval_ms=100),
        spark=spark,
    )
    address = subscription.serve(port=0)
    with subscription:
        subscription.wait_for_state("RUNNING", RUNNING)
        window.look(1280, 800)
        window.open("about:blank")
        window.open(address.console)
        window.click(".ways a[href='#/subscriptions']")
        window.await_text("main", "mailer", "Pending", f"{topic}-0", "partition_concurrency")
        wait_for(lambda: subscription.metrics().total("tasks.pending") > 0, 30, "tasks are pending")
        window.type("#property-partition_concurrency", "8")
        window.press(Keys.ENTER)
        window.await_text("dialog", "Change partition_concurrency?", "2 → 8")
        assert nameless(window) == []
        window.press(Keys.ESCAPE)
        wait_for(lambda: not window.all("dialog[open]"), 10, "the dialog is closed")
        assert subscription.properties.partition_concurrency == 2
        window.click("[aria-label='Change partition_concurrency']")
        window.click("dialog button[type=submit]")
        wait_for(
            lambda: subscription.properties.partition_concurrency == 8,
            20,
            "the property is changed",
        )
        window.await_text("main", "partition_concurrency changed", "Concurrency\n8")
        assert faint(window) == []
        take_screenshots(window, "subscriptions")
        window.type("#property-max_pending_records", "0")
        window.press(Keys.ENTER)
        assert subscription.properties.max_pending_records == 10_000
    assert window.errors() == []
