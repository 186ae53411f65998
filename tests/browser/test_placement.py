"""The picture of a placement in a browser: what it says to a mouse, a finger, a keyboard and a screen reader."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.browser

PLACEMENT = "/plans/1/placement"


def test_choices_redraw_the_picture_and_stay_in_the_address(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT)
    assert page.locator(".slice svg").count() == 2
    page.get_by_label("Colour by").select_option("cfg")
    page.locator(".slice text", has_text="cfg:").first.wait_for()
    page.locator(".chip").nth(1).hover()
    assert page.locator(".tip").inner_text().startswith("chip 1,0: cfg=0")
    page.locator("select[name=collective]").select_option("collective-permute:ring")
    page.locator(".slice text", has_text="collective-permute over ring, group 0").first.wait_for()
    page.get_by_label("Beside").select_option("none")
    page.locator(".slice:only-child").wait_for()
    assert "axis=cfg" in page.url
    assert "collective=collective-permute%3Aring" in page.url
    address = page.url
    page.reload()
    assert page.locator(".slice svg").count() == 1
    assert page.get_by_label("Colour by").input_value() == "cfg"
    page.go_back()
    page.locator(".slice").nth(1).wait_for()
    assert page.url != address


def test_pointing_at_a_link_says_which_collectives_load_it(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT)
    tip = page.locator(".tip")
    assert tip.is_hidden()
    page.locator(".mark[data-says^='0,0→0,1']").first.locator(".hit").hover(force=True)
    tip.wait_for()
    assert "all-gather over ulysses" in tip.inner_text()
    page.locator(".chip").first.hover()
    assert tip.inner_text().startswith("chip 0,0: cfg=0")
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_tap_says_the_same(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.locator(".chip").nth(5).tap()
    assert "chip 1,1:" in page.locator(".tip").inner_text()


def test_arrow_keys_walk_over_the_slice(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT)
    first = page.locator(".chip").first
    first.focus()
    assert page.locator(".tip").inner_text().startswith("chip 0,0")
    said = set()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        said.add(page.locator(".tip").inner_text().split(":")[0])
    assert {"chip 1,0", "chip 2,0", "chip 3,0"} <= said
    assert page.locator(".slice svg").first.locator(".mark[tabindex='0']").count() == 1


def test_without_scripts_the_same_words_are_tooltips(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT, java_script_enabled=False)
    assert "chip 0,0" in page.locator(".chip title").first.text_content()
    page.get_by_label("Colour by").select_option("ring")
    page.get_by_role("button", name="Draw").click()
    assert page.locator(".slice text", has_text="ring:").count() == 2


def test_the_picture_can_be_taken_along(open_page: Any, service: str) -> None:
    page = open_page(service + PLACEMENT)
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Picture as SVG").click()
    download = waiting.value
    assert download.suggested_filename == "placement-plan-1.svg"
    root = ElementTree.parse(download.path()).getroot()
    assert root.find("{http://www.w3.org/2000/svg}style") is not None
