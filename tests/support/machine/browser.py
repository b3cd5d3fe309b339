"""Headless Chromium, driven by selenium."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from support.waiting import wait_for

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1280,800",
)


class Browser:
    """A window of Chromium."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open a page."""
        self.driver.get(url)

    def go(self, way: str) -> None:
        """Open another view of the same page: the part after the `#`."""
        self.run("location.hash = arguments[0]", way)

    def look(self, width: int, height: int, theme: str = "light") -> None:
        """Set the window's size and the system's color scheme."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": theme}]},
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page and return its result."""
        return self.driver.execute_script(script, *arguments)

    def find(self, css: str, timeout_s: float = 20) -> WebElement:
        """Wait for the first element that matches a selector."""

        def first() -> WebElement | None:
            found = self.driver.find_elements(By.CSS_SELECTOR, css)
            return found[0] if found else None

        return wait_for(first, timeout_s, lambda: f"{css} is on the page: {self.text()}")

    def all(self, css: str) -> list[WebElement]:
        """The elements that match a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str = "body") -> str:
        """The visible text of the first element that matches a selector."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def texts(self, css: str) -> list[str]:
        """The same for all matching elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return [str(each) for each in self.run(script, css)]

    def await_text(self, css: str, *words: str) -> str:
        """Wait until the element's text contains all of these texts, and return its text."""

        def shown() -> str | None:
            text = self.text(css)
            return text if all(word in text for word in words) else None

        return wait_for(shown, 30, lambda: f"{words} in {css}: {self.text(css)!r}")

    def click(self, css: str) -> None:
        """Click on the first element that matches a selector, once it is stable enough to be
        clicked."""

        def clicked() -> bool:
            try:
                self.find(css).click()
            except StaleElementReferenceException:
                return False
            return True

        wait_for(clicked, 10, f"{css} is clicked")

    def type(self, css: str, text: str) -> None:
        """Replace the content of a field."""
        field = self.find(css)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys in the focused element."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def errors(self) -> list[str]:
        """The browser's log of errors since the last call."""
        log: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(each["message"]) for each in log if each["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        """Save a screenshot as a PNG."""
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Start a browser with a new profile in this folder."""
    options = Options()
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
