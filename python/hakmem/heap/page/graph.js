// What the pages with a flame graph share: texts of figures, colors of frames, the search, and the keyboard.
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

    return { valueText, shareText, color, matcher, keyboard };
})();
