"""Makes HTML pages of one file, from the frame that all of them share (page/base.html) and a page's own parts.

A policy in the page allows only its own scripts and forbids it to fetch anything. Text goes through the template's
escaping, or into JSON without "<"."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

# What several pages share: the frame, parts of templates, scripts, and libraries as published, with their licenses.
SHARED = Path(__file__).with_name("page")
# The scripts and the style of pages with a chart over time.
CHART_SCRIPTS = (SHARED / "vendor/uPlot.iife.min.js", SHARED / "chart.js")
CHART_STYLE = SHARED / "vendor/uPlot.min.css"


def read(file: Path) -> str:
    """Returns the text of a file of a page."""
    return file.read_text(encoding="utf-8")


def read_script(file: Path) -> str:
    """Returns the text of a script. A script element may not contain its own end."""
    return read(file).replace("</script", "<\\/script")


def digest(script: str) -> str:
    """Returns the SHA-256 of a script, as a page's policy has it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def allowed(scripts: Sequence[str]) -> str:
    """Returns the part of a policy that allows these scripts."""
    return " ".join(["script-src", *(f"'sha256-{digest(script)}'" for script in scripts)])


def embedded(value: object) -> Markup:
    """Returns a value as JSON that is safe inside HTML."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def rendered(template: Path, title: str, style: str, scripts: Sequence[str], images: str | None = "data:",
             **values: object) -> str:
    """Returns the page that a template makes of the values. images: from where the page may take pictures. With None
    the page carries no policy, because its server sends one."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader([template.parent, SHARED]), autoescape=True,
                                     undefined=jinja2.StrictUndefined)
    policy = Markup(f"default-src 'none'; {allowed(scripts)}; style-src 'unsafe-inline'; img-src {images}")
    return environment.get_template(template.name).render(
        title=title, style=Markup(style), scripts=[Markup(script) for script in scripts],
        policy=policy if images else None, **values)
