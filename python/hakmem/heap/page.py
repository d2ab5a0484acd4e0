"""Writes a heap profile as one HTML page that needs nothing else: a flame graph to zoom and search, and a table.

Everything from the profile goes through the template's escaping or into JSON without "<"; a policy in the page lets
only its own scripts run and nothing be fetched.
"""

import base64
import hashlib
import json
from pathlib import Path

import jinja2
from markupsafe import Markup

from hakmem.heap.file import write_whole
from hakmem.heap.lifetimes import OF_LIVES, duration_text, lives_of
from hakmem.heap.show import facts, title_of
from hakmem.heap.sites import order, sites_of, tree_of

FOLDER = Path(__file__).with_name("page")
# Release files of d3 (ISC license) and d3-flame-graph (Apache License 2.0), as published, with their licenses.
LIBRARIES = ("vendor/d3.min.js", "vendor/d3-flamegraph.umd.min.js")

# What a browser draws without a delay.
MOST_NODES = 40_000


def write_page(path, whole, found, index, files, base, lines):
    """whole: the profile, whose figures the head tells; found: what is drawn; index: the sample type shown first."""
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True,
                                   undefined=jinja2.StrictUndefined)
    scripts = [read(name).replace("</script", "<\\/script") for name in (*LIBRARIES, "heap.js")]
    told = facts(whole, [file.name for file in files], base and base.name)
    text = templates.get_template("heap.html").render(
        title=f"Heap of {files[0].name}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""),
        facts=told, style=Markup(read("heap.css")), kinds=kinds(found), shown=index,
        lives=bool(lives_of(found, lines)),
        compared=found.compared, share="Of the base" if found.compared else "Share",
        data=embedded(page_data(found, index, lines)), scripts=[Markup(text) for text in scripts],
        hashes=" ".join(f"'sha256-{digest(text)}'" for text in scripts))
    write_whole(path, text.encode())


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embedded(value):
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def kinds(found):
    """The sample types that can be shown, by their places."""
    return [(place, name, title_of(name)) for place, (name, _) in enumerate(found.types) if name not in OF_LIVES]


def page_data(found, index, lines):
    """nodes: [parent, name, place, values, base], parents first; sites: [name, place, flat, cum, life]; texts once."""
    texts = {}

    def text(value):
        return texts.setdefault(value, len(texts))
    root = tree_of(found, lines)
    least, left_out = least_share(root)
    nodes, waiting = [], [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        waiting += [(child, len(nodes)) for child in node.children.values() if share(child, root) >= least]
        nodes.append([parent, text(node.name), text(node.place), node.values,
                      *([node.base] if found.compared else [])])
    places = range(len(found.types))
    lives = lives_of(found, lines)
    sites = [[text(site.name), text(site.place), [site.flat_change(place) for place in places],
              [site.cum_change(place) for place in places],
              *([duration_text(lives[site.key].mean() if site.key in lives else None)] if lives else [])]
             for site in order(sites_of(found, lines), index, "flat", found.compared)]
    return {"types": found.types, "shown": index, "compared": found.compared, "nodes": nodes, "leftOut": left_out,
            "sites": sites, "texts": list(texts)}


def share(node, root):
    """The largest part that the node is of the root, in any sample type; never above that of its caller."""
    return max((value / whole for values, wholes in ((node.values, root.values), (node.base, root.base))
                for value, whole in zip(values, wholes, strict=True) if whole > 0), default=0)


def least_share(root):
    """The share from which on nodes are drawn, so that a browser bears their number, and how many are not."""
    shares, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        shares.append(share(node, root))
        waiting += node.children.values()
    if len(shares) <= MOST_NODES:
        return 0, 0
    shares.sort(reverse=True)
    least = next((one for one in reversed(shares[:MOST_NODES]) if one > shares[MOST_NODES]), shares[0])
    return least, sum(1 for one in shares if one < least)
