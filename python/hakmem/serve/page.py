"""Makes the page: text, style and scripts in one file. Its policy allows only its own scripts and this server."""

from __future__ import annotations

import functools
from pathlib import Path

from hakmem.document import CHART_SCRIPTS, CHART_STYLE, allowed, embedded, read, read_script, rendered
from hakmem.heap.graph import graph_scripts, graph_style
from hakmem.live.resident import PARTS
from hakmem.live.sample import RATES

FOLDER = Path(__file__).with_name("page")


@functools.cache
def made() -> tuple[str, str]:
    """Returns (the page, its Content-Security-Policy)."""
    scripts = [*map(read_script, CHART_SCRIPTS), *graph_scripts(), read_script(FOLDER / "page.js")]
    settings = {"parts": [{"name": name, "title": title, "color": color} for name, (title, color) in PARTS.items()],
                "rates": RATES}
    text = rendered(FOLDER / "page.html", "hakmem serve", read(CHART_STYLE) + read(FOLDER / "page.css") + graph_style(),
                    scripts, None, settings=embedded(settings))
    return text, (f"default-src 'none'; {allowed(scripts)}; style-src 'unsafe-inline'; connect-src 'self'; "
                  "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
