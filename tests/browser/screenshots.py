"""Makes the screenshots of docs/screenshots from the Wan study of the tests: ``make screenshots``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.adapters.web.study import wan_study
from tests.browser import chromium
from tests.browser.service import serving

PAGES = {
    "overview": ("/", 420),
    "study": ("/studies/1", 1180),
    "trial": ("/studies/1/trials/17", 1000),
    "placement": ("/plans/1/placement", 860),
    "compare": ("/compare?a=trial-1-17&b=trial-1-15", 1000),
    "plan": ("/plans/1", 1000),
}
"""Address and height of each page."""

WIDTH = 1280


def main(directory: Path) -> None:
    """Writes a PNG for each page."""
    path = chromium.find()
    if path is None:
        sys.exit(f"screenshots need chromium; install it, or name one in {chromium.NAMED}")
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(wan_study(Path(scratch) / "wan.db")) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=list(chromium.FLAGS))
        for name, (page_path, height) in PAGES.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light")
            page.goto(address + page_path)
            page.wait_for_load_state("networkidle")
            page.get_by_text("Computing in the background").wait_for(state="detached", timeout=60_000)
            file = directory / f"{name}.png"
            page.screenshot(path=file)
            print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/screenshots"))
