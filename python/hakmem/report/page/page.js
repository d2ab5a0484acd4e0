// Draws the charts in the page's colors, lets the legend choose allocators, and sorts tables.
"use strict";

(() => {
    const charts = JSON.parse(document.getElementById("charts").textContent);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const views = new Map();
    let chosen = [];

    function css(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    }

    function config(narrow) {
        const font = css("--font");
        const text = css("--text");
        const soft = css("--soft");
        const axis = {
            labelColor: soft, titleColor: soft, gridColor: css("--line"), domainColor: css("--line"),
            tickColor: css("--line"),
            labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400, titlePadding: 10,
        };
        return {
            background: "transparent", font, view: { stroke: null }, axis,
            axisY: { labelLimit: narrow ? 118 : 260, labelColor: text, ticks: false, labelPadding: 8 },
            text: { color: text, fontSize: 12 },
            range: { category: charts.allocators.map((_, number) => css(`--c${number}`)) },
        };
    }

    // 0 narrow, 1 middle, 2 wide: a chart may look different in each.
    function sizeOf(place) {
        return (place.clientWidth >= 560) + (place.clientWidth >= 900);
    }

    async function draw(place) {
        const size = sizeOf(place);
        const sizes = charts.specs[place.dataset.chart];
        const { view } = await vegaEmbed(place, sizes[Math.min(size, sizes.length - 1)], {
            mode: "vega-lite", renderer: "svg", ast: true, config: config(size === 0),
            tooltip: { theme: dark.matches ? "dark" : "light" },
            actions: { export: true, source: false, compiled: false, editor: false },
            downloadFileName: `hakmem-${place.dataset.chart}`,
        });
        views.get(place)?.finalize();
        views.set(place, view);
        place.dataset.size = size;
        await show(view, place);
        place.dataset.drawn = "yes";
    }

    async function show(view, place) {
        const { params } = charts.specs[place.dataset.chart][0];
        if (params?.some((param) => param.name === "chosen")) {
            await view.signal("chosen", chosen).runAsync();
        }
    }

    async function drawAll() {
        for (const place of document.querySelectorAll("[data-chart]")) {
            try {
                await draw(place);
            } catch (error) {
                place.textContent = `This chart could not be drawn: ${error.message}`;
                console.error(error);
            }
        }
        document.documentElement.dataset.drawn = "yes";
    }

    function choose(button, buttons) {
        const name = button.dataset.allocator;
        if (name === "") {
            chosen = [];
        } else {
            chosen = chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name];
        }
        for (const one of buttons) {
            const on = one.dataset.allocator === "" ? chosen.length === 0 : chosen.includes(one.dataset.allocator);
            one.setAttribute("aria-pressed", on);
        }
        views.forEach(show);
    }

    // Numbers come before words, words are sorted by letters, and cells without a figure stay last in both directions.
    function compare(a, b, up) {
        if (a === undefined || b === undefined) {
            return (a === undefined) - (b === undefined);
        }
        const difference = Number(a) - Number(b);
        return up * (Number.isNaN(difference) ? a.localeCompare(b) : difference);
    }

    function sort(table, column) {
        const head = table.tHead.rows[0].cells;
        const up = head[column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const cell of head) {
            cell.removeAttribute("aria-sort");
        }
        head[column].setAttribute("aria-sort", up === 1 ? "ascending" : "descending");
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].dataset.sort;
        body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b), up)));
    }

    for (const table of document.querySelectorAll("table.sortable")) {
        [...table.tHead.rows[0].cells].forEach((cell, column) => {
            const button = document.createElement("button");
            button.type = "button";
            button.append(...cell.childNodes);
            button.addEventListener("click", () => sort(table, column));
            cell.append(button);
        });
    }

    const legend = document.getElementById("legend");
    if (legend) {
        const buttons = legend.querySelectorAll("button");
        legend.hidden = false;
        buttons.forEach((button) => button.addEventListener("click", () => choose(button, buttons)));
    }

    dark.addEventListener("change", drawAll);
    let waiting;
    addEventListener("resize", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => {
            const places = [...document.querySelectorAll("[data-chart]")];
            if (places.some((place) => String(sizeOf(place)) !== place.dataset.size)) {
                drawAll();
            }
        }, 200);
    });
    drawAll();
})();
