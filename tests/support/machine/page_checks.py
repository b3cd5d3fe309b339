"""What a page must have for everybody: names for those who do not see it, contrast for those who
see little, and a focus that is seen. What the browser itself tells is asked of the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from selenium.webdriver.common.keys import Keys

from support.machine.browser import Browser

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
    """The controls, pictures and regions to which the browser gives no name."""
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
    """The texts that do not stand out enough from what is behind them."""
    return [str(each) for each in browser.run(_script("page_contrast.js"))]


def unseen_focus(browser: Browser, most: int = 40) -> tuple[list[str], list[str]]:
    """Go through the page with Tab: what was reached, and where one could not see that.

    Args:
        browser: the page.
        most: how many times Tab is pressed at most.
    """
    browser.run("scrollTo(0, 0); document.querySelector('a').focus()")
    looks = _script("page_focus.js")
    reached: list[str] = []
    unseen = []
    for _ in range(most):
        browser.press(Keys.TAB)
        found = browser.run(looks)
        if found is None:
            break
        if not found["isSeen"]:
            unseen.append(str(found["describe"]))
        reached.append(str(found["describe"]))
    return reached, unseen


def _script(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
