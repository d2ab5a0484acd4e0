"""Makes the page: text, style and scripts in one file. Its policy allows only its own scripts and this server."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from pathlib import Path

import jinja2
from markupsafe import Markup

from hakmem.top.sample import RATES
from hakmem.top.words import PARTS

FOLDER = Path(__file__).with_name("page")
LIBRARIES = ("vendor/uPlot.iife.min.js", "vendor/uPlot.min.css")


@functools.cache
def made() -> tuple[str, str]:
    """Returns (the page, its Content-Security-Policy)."""
    scripts = [read("vendor/uPlot.iife.min.js"), read("page.js")]
    settings = {"parts": [{"name": name, "title": title, "color": color} for name, (title, color) in PARTS.items()],
                "rates": RATES}
    template = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True,
                                  undefined=jinja2.StrictUndefined).get_template("page.html")
    text = template.render(
        style=Markup(read("vendor/uPlot.min.css") + read("page.css")), scripts=[Markup(script) for script in scripts],
        settings=Markup(json.dumps(settings).replace("<", "\\u003c")))
    hashes = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    return text, (f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; connect-src 'self'; "
                  "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def read(name: str) -> str:
    """Returns the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Returns the SHA-256 of a script, for the page's policy."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
