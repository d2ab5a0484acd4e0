// What the pages with a flame graph share: texts of figures, and the graph with its colors, search and keyboard.
"use strict";

const heapGraph = (() => {
    const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

    // Bytes are as bytes_text() of python/hakmem/units.py has them.
    function valueText(value, unit, signed) {
        const sign = value < 0 ? "-" : signed && value > 0 ? "+" : "";
        let size = Math.abs(value);
        if (unit === "bytes") {
            let place = 0;
            while (size >= 1024 && place < UNITS.length - 1) {
                size /= 1024;
                place++;
            }
            const digits = size.toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: false });
            return `${sign}${digits} ${UNITS[place]}`;
        }
        size = size.toLocaleString("en");
        return unit === "count" || unit === "" ? sign + size : `${sign}${size} ${unit}`;
    }

    function shareText(value, total) {
        return total === 0 ? "-" : `${(100 * value / total).toFixed(1)} %`;
    }

    // Functions of one module or file share a hue, never near that of search results. Each has its own lightness.
    function hash(text) {
        let sum = 7;
        for (let i = 0; i < text.length; i++) {
            sum = (sum * 31 + text.charCodeAt(i)) % 9973;
        }
        return sum;
    }

    // The color of a frame: by its change if `compared`, as a part of the largest change; else by its function.
    function color(frame, compared, largest) {
        if (frame.highlight) {
            return "#ff4fb0";
        }
        if (!compared) {
            const { name, where } = frame.data;
            if (frame.parent === null) {
                return "#d5d9e0";
            }
            return `hsl(${20 + (hash(where.replace(/:\d+$/, "")) * 47) % 240} 60% ${68 + hash(name) % 15}%)`;
        }
        const part = largest === 0 ? 0 : Math.max(-1, Math.min(1, frame.data.change / largest));
        return `hsl(${part < 0 ? 215 : 5} 80% ${92 - 32 * Math.sqrt(Math.abs(part))}%)`;
    }

    // Takes the term as a regular expression, or literally if it is none.
    function matcher(term) {
        try {
            return new RegExp(term, "i");
        } catch {
            return { test: (text) => text.toLowerCase().includes(term.toLowerCase()) };
        }
    }

    // The names on the way from the root to a frame. The same function has the same way in the next tree.
    const wayOf = (frame) => frame.ancestors().map(({ data }) => `${data.name}\0${data.where}`).reverse();

    // The frame to which a way leads in another tree; the last one on the way if the tree lacks the rest.
    function frameAt(root, way) {
        let frame = root;
        for (const name of way.slice(1)) {
            const next = frame.children?.find(({ data }) => `${data.name}\0${data.where}` === name);
            if (next === undefined) {
                break;
            }
            frame = next;
        }
        return frame;
    }

    // The page's flame graph, in #graph, with its search, its details and its keyboard (keys.js).
    function begin() {
        const byId = (id) => document.getElementById(id);
        const [place, search, found, details] = ["graph", "search", "found", "details"].map(byId);
        let chart = null; // the graph drawn last, if there is one
        let zoomed = null; // the frame to which that graph is zoomed; null: its root
        let again = null; // draws that graph anew
        const keys = flameKeys(place, {
            bars: "g.frame", search, level: (bar) => bar.__data__.depth, found: (bar) => bar.__data__.highlight,
            way: (bar) => wayOf(bar.__data__).map((name) => `${name}\n`).join(""),
            zoom: (bar) => chart?.zoomTo(bar.__data__),
            out: () => zoomed?.parent && chart?.zoomTo(zoomed.parent),
        });
        place.addEventListener("focusin", (event) => {
            details.textContent = event.target.querySelector("title")?.textContent ?? "";
        });

        // Shows a text, or nothing, in place of a graph.
        function say(words) {
            const text = document.createElement("p");
            text.textContent = words;
            place.dataset.width = place.clientWidth;
            place.replaceChildren(...(words ? [text] : []));
            details.textContent = found.textContent = "";
            chart = null;
        }

        // Draws a graph in place of the last one, whose zoom and focus it keeps. milliseconds: how long a zoom takes.
        // label(frame), paint(frame): the text and the color of a bar. sumText(sum): what a search found.
        function draw(tree, milliseconds, label, paint, sumText) {
            again = () => draw(tree, milliseconds, label, paint, sumText);
            let expression = null;
            const way = chart && zoomed ? wayOf(zoomed) : null;
            const kept = keys.keep();
            const told = () => {
                const bar = document.activeElement?.closest("#graph g.frame");
                details.textContent = bar?.querySelector("title").textContent
                    ?? label(zoomed ?? d3.select(place).datum());
            };
            const width = place.clientWidth;
            place.dataset.width = width;
            place.replaceChildren();
            zoomed = null;
            chart = flamegraph.default()
                .width(width).cellHeight(20).inverted(true).minFrameSize(0.4).resetHeightOnZoom(true)
                .transitionDuration(0)
                .sort((a, b) => b.data.value - a.data.value || (a.data.name < b.data.name ? -1 : 1))
                .setLabelHandler(label)
                .setColorMapper(paint)
                .setSearchMatch((frame, term) => {
                    if (expression?.term !== term) {
                        expression = { term, matches: matcher(term) };
                    }
                    return expression.matches.test(frame.data.name) || expression.matches.test(frame.data.where);
                })
                .setSearchHandler((frames, sum) => {
                    const bars = `${frames.length.toLocaleString("en")} ${frames.length === 1 ? "bar" : "bars"}`;
                    found.textContent = `${bars} found, with ${sumText(sum)}, ${shareText(sum, tree.value)}`;
                })
                .setDetailsElement(details)
                .setDetailsHandler((text) => { // the bar under the pointer, unless the keyboard is on another
                    if (text && !place.querySelector("g.frame:focus-visible")) {
                        details.textContent = text;
                    } else {
                        told();
                    }
                })
                .onClick((frame) => {
                    zoomed = frame;
                    told();
                });
            d3.select(place).datum(tree).call(chart);
            place.querySelector("svg").setAttribute("role", "none");
            if (way) {
                chart.zoomTo(frameAt(d3.select(place).datum(), way));
            }
            lookFor(search.value);
            d3.timerFlush(); // bars and labels are complete before the page is painted
            chart.transitionDuration(milliseconds);
            kept.restore();
            told();
        }

        function lookFor(term) {
            if (chart && term !== "") {
                chart.search(term);
            } else {
                found.textContent = "";
                chart?.clear();
            }
        }

        let waiting;
        addEventListener("resize", () => {
            clearTimeout(waiting);
            waiting = setTimeout(() => {
                if (chart && place.dataset.width !== String(place.clientWidth)) {
                    again();
                }
            }, 200);
        });
        search.addEventListener("input", () => lookFor(search.value));
        byId("reset").addEventListener("click", () => chart?.resetZoom());
        return { say, draw, lookFor };
    }

    return { valueText, shareText, color, begin };
})();
