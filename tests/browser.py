"""A headless browser for the tests of the viewer, its pictures and its benchmark."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ABSENT = (
    "the viewer is tested in a browser, and neither Chromium nor Chrome was found: install "
    "chromium, or set BHCLUST_BROWSER to the path of one"
)


def find_browser() -> str | None:
    """Return the path of a browser of the Chromium family, None if there is none."""
    given = os.environ.get("BHCLUST_BROWSER")
    if given:
        return given
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def open_browser(executable: str) -> Iterator[Any]:
    """Start a headless browser and end it again."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def wait_until(page: Any, condition: str, seconds: float = 60.0) -> None:
    """Ask again and again from here: the page's own rules forbid it to evaluate a string later."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > end:
            raise TimeoutError(f"the page never came to {condition}")
        time.sleep(0.02)


def wait_until_drawn(page: Any) -> None:
    """Wait until the viewer has drawn its first picture."""
    wait_until(page, "window.bhclustView?.firstPaint !== undefined")


RECORD_FRAMES = """() => {
  window.frameTimes = [];
  let last = performance.now();
  const next = () => {
    const now = performance.now();
    window.frameTimes.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""


def longest_frame(page: Any) -> float:
    """Return the longest time between two frames since the last call, in seconds."""
    return float(page.evaluate("Math.max(0, ...window.frameTimes.splice(0))")) / 1000
