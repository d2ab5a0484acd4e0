// The keyboard in a flame graph: Tab reaches one bar, arrows go on from it, Enter zooms to a bar and Escape out again.
// To a screen reader the graph is a tree whose items are the bars.
"use strict";

// place: what holds the bars. bars: their selector. level(bar): how many callers are above it. zoom(bar), out(): zoom to
// the bar, and out by one caller. search: the field to which "/" leads; Enter leads from it to the first bar for which
// found(bar) holds. way(bar): a text that names the bar in the next graph too, and begins with the text of each caller.
// keep() remembers which bar is in the order of Tab and has the focus. Call it before the next graph is drawn, and
// restore() of what it returns afterwards.
function flameKeys(place, { bars, level, way, zoom, out, search, found }) {
    let current = null;
    const all = () => [...place.querySelectorAll(bars)];
    const box = (bar) => bar.getBoundingClientRect();

    // One bar at a time is in the order of Tab: the one that had the focus last, or else the first.
    function refresh() {
        const drawn = all();
        if (!drawn.includes(current)) {
            current = drawn.includes(document.activeElement) ? document.activeElement : drawn[0] ?? null;
        }
        for (const bar of drawn) {
            bar.setAttribute("role", "treeitem");
            bar.setAttribute("aria-level", level(bar) + 1);
            bar.setAttribute("tabindex", bar === current ? 0 : -1);
        }
    }

    function focusOn(bar) {
        if (bar) {
            bar.focus();
            bar.scrollIntoView({ block: "nearest", inline: "nearest" });
        }
    }

    // The bar that an arrow leads to: the caller above, the widest callee below, or the next bar in the row.
    function next(bar, key) {
        const own = box(bar);
        const middle = (own.left + own.right) / 2;
        const step = { ArrowUp: -1, ArrowDown: 1 }[key] ?? 0;
        const row = all().filter((other) => level(other) === level(bar) + step && other !== bar);
        if (step < 0) {
            return row.find((other) => box(other).left <= middle && middle <= box(other).right);
        }
        if (step > 0) {
            return row.filter((other) => box(other).left >= own.left - 1 && box(other).right <= own.right + 1)
                .sort((a, b) => box(b).width - box(a).width)[0];
        }
        const distance = (other) => (key === "ArrowLeft" ? -1 : 1) * (box(other).left - own.left);
        return row.filter((other) => distance(other) > 0).sort((a, b) => distance(a) - distance(b))[0];
    }

    function pressed(event) {
        const bar = event.target.closest(bars);
        if (bar === null || event.altKey || event.ctrlKey || event.metaKey) {
            return;
        }
        if (event.key.startsWith("Arrow")) {
            focusOn(next(bar, event.key));
        } else if (event.key === "Home") {
            focusOn(all()[0]);
        } else if (event.key === "Enter" || event.key === " ") {
            zoom(bar);
        } else if (event.key === "Escape") {
            out();
        } else {
            return;
        }
        event.preventDefault();
        refresh();
        if (!place.contains(document.activeElement)) { // the bar is too narrow to be drawn now
            focusOn(current);
        }
    }

    function keep() {
        const focused = current !== null && current === document.activeElement;
        const wanted = current?.isConnected ? way(current) : "";
        return {
            restore: () => { // the same bar, or if it is gone its nearest caller
                current = all().filter((bar) => wanted.startsWith(way(bar))).sort((a, b) => level(b) - level(a))[0] ?? null;
                refresh();
                if (focused) {
                    current?.focus({ preventScroll: true });
                }
            },
        };
    }

    place.setAttribute("role", "tree");
    place.addEventListener("keydown", pressed);
    place.addEventListener("focusin", (event) => {
        current = event.target.closest(bars) ?? current;
        refresh();
    });
    new MutationObserver(refresh).observe(place, { childList: true, subtree: true });
    document.addEventListener("keydown", (event) => {
        if (event.key === "/" && search && !event.target.closest("input, textarea, select")) {
            search.focus();
            event.preventDefault();
        }
    });
    search?.addEventListener("keydown", (event) => {
        if (event.key === "Enter") {
            focusOn(all().find(found) ?? current);
        }
    });
    refresh();
    return { keep };
}
