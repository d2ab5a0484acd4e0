// What the pages with a flame graph share: texts of figures, and the graph with its colors, search and keyboard.
"use strict";

const heapGraph = (() => {
    function valueText(value, unit, signed) {
        const sign = value < 0 ? "-" : signed && value > 0 ? "+" : "";
        let size = Math.abs(value);
        if (unit === "bytes") {
            for (const [name, bytes] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
                if (size >= bytes) {
                    return `${sign}${(size / bytes).toLocaleString("en", { maximumSignificantDigits: 4 })} ${name}`;
                }
            }
            return `${sign}${size.toLocaleString("en")} B`;
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

    // The keyboard in the graph (keys.js). chart(): the flame graph drawn last, or null. Call begun(chart) for each one.
    function keyboard(place, search, details, chart) {
        let zoomed = null;
        flameKeys(place, {
            bars: "g.frame", search, level: (bar) => bar.__data__.depth, found: (bar) => bar.__data__.highlight,
            zoom: (bar) => chart()?.zoomTo(bar.__data__),
            out: () => zoomed?.parent && chart()?.zoomTo(zoomed.parent),
        });
        place.addEventListener("focusin", (event) => {
            details.textContent = event.target.querySelector("title")?.textContent ?? "";
        });
        return {
            begun: (made) => {
                zoomed = null;
                made.onClick((frame) => {
                    zoomed = frame;
                });
                place.querySelector("svg").setAttribute("role", "none");
            },
        };
    }

    // The page's flame graph, in #graph, with its search. draw(tree, ...) draws one in place of the last: milliseconds that
    // a zoom takes, label(frame) and paint(frame) for a bar's text and color, sumText(sum) for what a search finds.
    function begin() {
        const byId = (id) => document.getElementById(id);
        const [place, search, found, details] = ["graph", "search", "found", "details"].map(byId);
        let chart = null;
        const keys = keyboard(place, search, details, () => chart);

        // Shows a text if there is nothing to draw.
        function say(words) {
            const text = document.createElement("p");
            text.textContent = words;
            place.replaceChildren();
            place.dataset.width = place.clientWidth;
            place.append(text);
            chart = null;
        }

        function draw(tree, milliseconds, label, paint, sumText) {
            let expression = null;
            place.replaceChildren();
            place.dataset.width = place.clientWidth;
            chart = flamegraph.default()
                .width(place.clientWidth).cellHeight(20).inverted(true).minFrameSize(0.4)
                .transitionDuration(milliseconds)
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
                .setDetailsHandler((text) => {
                    details.textContent = text ?? "";
                });
            d3.select(place).datum(tree).call(chart);
            keys.begun(chart);
            lookFor(search.value);
        }

        function lookFor(term) {
            if (chart && term !== "") {
                chart.search(term);
            } else {
                found.textContent = "";
                chart?.clear();
            }
        }

        search.addEventListener("input", () => lookFor(search.value));
        byId("reset").addEventListener("click", () => chart?.resetZoom());
        return { say, draw, lookFor };
    }

    return { valueText, shareText, color, begin };
})();
