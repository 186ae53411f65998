"""Reads pictures back: what a test says of them, it says of the XML."""

from __future__ import annotations

import re
from importlib.resources import files
from xml.etree import ElementTree

from adapters.web.pictures import svg
from adapters.web.pictures.svg import Drawing

SHEET = files("adapters.web").joinpath("static/pictures.css").read_text()
CLASSES = set(re.findall(r"\.([a-z][\w-]*)", SHEET))
NAMESPACE = "{http://www.w3.org/2000/svg}"


def read(drawing: Drawing) -> ElementTree.Element:
    """Returns the picture's root after checks that hold for every picture, in a page and as a file."""
    inline = svg.document(drawing, key="k")
    root = ElementTree.fromstring(inline)
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:|https?://", inline)
    assert root.find("title").text
    assert root.find("desc").text
    assert root.get("aria-labelledby") == "k-title k-desc"
    alone = svg.document(drawing, standalone=True)
    file = ElementTree.fromstring(alone.encode())
    assert "var(" not in alone
    assert file.find(f"{NAMESPACE}style").text
    width, height = (float(part) for part in root.get("viewBox").split()[2:])
    for element in root.iter():
        assert set((element.get("class") or "").split()) <= CLASSES, element.get("class")
        for name in ("x", "cx", "width"):
            value = element.get(name)
            assert value is None or -20 <= float(value) <= width + 20, (element.tag, name, value)
        for name in ("y", "cy", "height"):
            value = element.get(name)
            assert value is None or -20 <= float(value) <= height + 20, (element.tag, name, value)
        assert "nan" not in (element.get("d") or ""), element.get("d")
    return root


def said(root: ElementTree.Element) -> list[str]:
    """Returns what is said of each part that can be pointed at."""
    marks = [element for element in root.iter() if "mark" in (element.get("class") or "").split()]
    return [mark.find("title").text for mark in marks]


def texts(root: ElementTree.Element) -> list[str]:
    """Returns the texts of a picture."""
    return ["".join(element.itertext()) for element in root.iter("text")]
