"""The documentation site in a browser, published below a path as on GitHub Pages."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from selenium.webdriver.common.keys import Keys
from support.docs.blocks import ROOT
from support.machine.browser import Browser, chromium
from support.strictness import has_browser
from support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_browser(), reason="There is no Chromium with its driver (chromium, chromedriver)."
    ),
]

PROGRAM = ROOT / "docs" / "site" / "build.py"
PATH = "/millstream/"
PHONE = (390, 844)


class Site(NamedTuple):
    """The served site."""

    folder: Path
    url: str


class Pages(SimpleHTTPRequestHandler):
    """Serves files as GitHub Pages does, with 404.html for unknown addresses."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        body = (Path(self.directory) / PATH.strip("/") / "404.html").read_bytes()
        self.send_response(code, message)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site, built with the URL at which it is served."""
    root = tmp_path_factory.mktemp("pages")
    folder = root / PATH.strip("/")
    handler = functools.partial(Pages, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}{PATH}"
            # Without the slash at the end, as people write it.
            environment = {**os.environ, "MILLSTREAM_SITE_URL": url.rstrip("/")}
            subprocess.run([sys.executable, PROGRAM, folder], env=environment, check=True)
            yield Site(folder, url)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Browser:
    """The browser with a usual size and without earlier errors."""
    window.look(1400, 900)
    window.errors()
    return window


def program() -> ModuleType:
    """The program that builds the site, which is not in a package."""
    specification = importlib.util.spec_from_file_location("build_site", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def content_width(browser: Browser) -> int:
    """The width of the page, and of its content, which the theme scrolls instead of the page."""
    script = (
        "return Math.max(document.documentElement.scrollWidth,"
        " document.querySelector('.content').scrollWidth)"
    )
    return int(browser.run(script))


def test_no_page_scrolls_horizontally_on_a_phone(site: Site, browser: Browser) -> None:
    """Wide tables, code and diagrams scroll inside themselves."""
    browser.look(*PHONE)
    pages = sorted(str(page.relative_to(site.folder)) for page in site.folder.rglob("*.html"))
    assert len(pages) > 60
    too_wide = {}
    for page in pages:
        browser.open(site.url + page)
        if (width := content_width(browser)) > PHONE[0]:
            too_wide[page] = width
    assert too_wide == {}
    assert browser.errors() == []


def test_a_wide_page_would_be_detected(site: Site, browser: Browser) -> None:
    """By its content, which the theme scrolls instead of the page."""
    browser.look(*PHONE)
    browser.open(site.url)
    browser.run("document.querySelector('article h1').style.width = '500px'")
    assert content_width(browser) > PHONE[0]


def test_the_search_finds_pages_and_classes(site: Site, browser: Browser) -> None:
    """From the field in the sidebar."""
    browser.open(site.url + "build/windows.html")
    browser.type(".sidebar-search", "TimeWindows")
    browser.press(Keys.ENTER)
    browser.await_text("#search-results", "Windows", "millstream.TimeWindows")
    browser.click("#search-results a[href*='reference/millstream.html#millstream.TimeWindows']")
    browser.await_text("article", "class millstream.TimeWindows")
    # The page itself has a field, for readers whose sidebar is hidden.
    browser.look(*PHONE)
    browser.open(site.url + "search.html")
    browser.type("article [name=q]", "dead letters")
    browser.press(Keys.ENTER)
    browser.await_text("#search-results", "Errors")


@pytest.mark.parametrize("address", ["gone.html", "a/b/gone.html"])
def test_unknown_addresses_have_a_page(site: Site, browser: Browser, address: str) -> None:
    """With working styles, pictures and links at any depth."""
    browser.open(site.url + address)
    assert browser.text("article h1") == "Page not found"
    assert all("404" in error and address in error for error in browser.errors())
    wait_for(
        lambda: browser.run("return document.querySelector('.sidebar-logo').naturalWidth > 0"),
        10,
        "the logo is loaded",
    )
    assert browser.run("return getComputedStyle(document.querySelector('.page')).display") == "flex"
    assert browser.all("article form[action='search.html']")
    browser.click("article a[href$='index.html']")
    browser.find(".front")
    assert browser.run("return location.href") == f"{site.url}index.html"


def test_pictures_and_charts_follow_the_color_scheme(site: Site, browser: Browser) -> None:
    """The console's dark screenshot is only visible in dark mode."""
    for theme in ("light", "dark"):
        browser.look(1400, 900, theme)
        browser.open(site.url)
        visible = browser.run(
            "return [...document.querySelectorAll('.front-picture img')]"
            ".filter(each => each.offsetWidth).map(each => each.getAttribute('src'))"
        )
        assert visible == [f"_images/console-topology-{theme}.png"]
    for picture in (site.folder / "_images").glob("*.svg"):
        drawn = picture.read_text(encoding="utf-8")
        assert "prefers-color-scheme:dark" in drawn or picture.name == "demo.svg", picture.name


def test_links_have_previews(site: Site) -> None:
    """With title, summary, and the address of a picture that exists."""
    for page, title in (("index", "Millstream"), ("install", "Install"), ("build/joins", "Joins")):
        text = (site.folder / f"{page}.html").read_text(encoding="utf-8")
        tags = dict(re.findall(r'<meta property="og:(\S+)" content="([^"]*)">', text))
        assert tags["title"] == title
        assert 20 < len(tags["description"]) <= 202
        assert tags["url"] == f"{site.url}{page}.html"
        assert tags["image"].startswith(site.url)
        assert (site.folder / tags["image"].removeprefix(site.url)).exists()


def test_the_version_selector_appears_with_the_second_version(site: Site, browser: Browser) -> None:
    """It opens the same page of the other version, or its front page."""
    browser.open(site.url + "install.html")
    browser.run("return fetch('versions.json')")
    assert not browser.find(".versions").is_displayed()

    older = site.folder / "0.0.9"
    shutil.copytree(site.folder, older)
    inventory = (older / "objects.inv").read_bytes()
    (older / "objects.inv").write_bytes(
        re.sub(rb"# Version: .*", b"# Version: 0.0.9", inventory, count=1)
    )
    (older / "performance.html").unlink()
    try:
        program().list_versions(site.folder)
        for page, opened in (("install.html", "install.html"), ("performance.html", "")):
            browser.open(site.url + page)
            wait_for(browser.find(".versions").is_displayed, 10, "the version selector is visible")
            assert browser.texts(".versions option")[1] == "0.0.9"
            choose(browser, 1)
            wait_for(
                functools.partial(is_at, browser, f"{site.url}0.0.9/{opened}"),
                10,
                f"{page} of the other version is open",
            )
        wait_for(browser.find(".versions").is_displayed, 10, "the version selector is visible")
        choose(browser, 0)
        wait_for(functools.partial(is_at, browser, site.url), 10, "the newest version is open")
    finally:
        shutil.rmtree(older)


def is_at(browser: Browser, url: str) -> bool:
    return bool(browser.run("return location.href") == url)


def choose(browser: Browser, index: int) -> None:
    """Choose a version."""
    browser.run(
        "const select = document.querySelector('.versions select');"
        "select.selectedIndex = arguments[0]; select.dispatchEvent(new Event('change'))",
        index,
    )
