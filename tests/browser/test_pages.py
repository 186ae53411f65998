"""Every page in a real browser: whole, quiet, readable by everyone, at any width, in light and dark."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.browser

PAGES = {
    "overview": "/",
    "studies": "/studies",
    "study": "/studies/1",
    "trial": "/studies/1/trials/17",
    "rejected": "/studies/1/trials/0",
    "plan": "/plans/1",
    "placement": "/plans/1/placement",
    "compare": "/compare?a=trial-1-17&b=trial-1-15",
}
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_accessible(open_page: Any, service: str, name: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    viewport = WIDE if scheme == "light" else PHONE
    page = open_page(service + PAGES[name], viewport=viewport, color_scheme=scheme)
    assert page.locator("h1").inner_text()
    assert page.locator("[tabindex='0'], a, button").count() > 3
    found = Axe().run(page).response["violations"]
    serious = [
        (rule["id"], [node["html"][:160] for node in rule["nodes"][:3]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_dark_follows_the_system_until_the_reader_chooses(open_page: Any, service: str) -> None:
    def paper() -> int:
        return sum(map(int, page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g)")))

    page = open_page(service + PAGES["plan"], color_scheme="dark")
    assert paper() < 200
    page.get_by_role("button", name="Light").click()
    page.locator("html[data-theme='light']").wait_for(state="attached")
    page.wait_for_load_state()
    assert paper() > 600
    page.get_by_role("link", name="Placement").click()
    page.locator(".slice").first.wait_for()
    page.wait_for_load_state()
    assert paper() > 600
    ink = page.evaluate("getComputedStyle(document.querySelector('.picture .head')).fill.match(/\\d+/g)")
    assert sum(map(int, ink)) < 200


def test_the_first_tab_skips_to_the_content(open_page: Any, service: str) -> None:
    page = open_page(service + PAGES["study"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_hostile_words_change_nothing_but_their_own_cell(open_page: Any, service: str) -> None:
    page = open_page(f"{service}/studies/1?sort=-number")
    assert page.locator("tr", has_text="<script>window.taken=1</script>").count() == 1
    page.locator("#trial-141").click()
    page.locator("h1", has_text="Trial 141").wait_for()
    assert page.evaluate("window.taken") is None
    assert page.locator("main script, main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_behind_a_proxys_prefix_every_address_begins_with_it(open_page: Any, database: str) -> None:
    from tests.browser.service import serving

    with serving(database, "/tools/mesh") as address:
        page = open_page(address + "/")
        for path in PAGES.values():
            page.goto(address + path)
            addresses = page.evaluate(
                """() => [...document.querySelectorAll("[href],[src],[action],[hx-get]")].flatMap(e =>
                     ["href", "src", "action", "hx-get"].map(n => e.getAttribute(n)).filter(a => a && a[0] !== "#"))"""
            )
            assert addresses
            assert [a for a in addresses if not a.startswith("/tools/mesh/")] == []
        page.goto(address + PAGES["plan"])
        page.get_by_role("link", name="Placement").click()
        page.wait_for_url("**/tools/mesh/plans/1/placement")
        assert page.locator(".slice svg").count() == 2
        page.close()


def test_an_unknown_page_is_a_page(browser: Any, service: str) -> None:
    page = browser.new_page()
    answer = page.goto(f"{service}/plans/999")
    assert answer.status == 404
    assert "no plan 999" in page.inner_text("body")
    page.close()
