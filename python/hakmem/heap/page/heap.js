// Draws the flame graph and the table of one sample type at a time, searches, and zooms.
"use strict";

(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const place = document.getElementById("graph");
    const search = document.getElementById("search");
    const found = document.getElementById("found");
    const CELL = 20;
    const ROWS = 500;
    let kind = data.shown;
    let by = "flat";
    let chart = null;

    const { shareText, matcher } = heapGraph;
    const keys = heapGraph.keyboard(place, search, document.getElementById("details"), () => chart);

    function valueText(value, signed = data.compared) {
        return heapGraph.valueText(value, data.types[kind][1], signed);
    }

    // Returns the nodes in the graph's form, without those that hold nothing of the kind.
    function treeOf() {
        const made = [];
        let root = null;
        data.nodes.forEach(([parent, name, where, values, base]) => {
            const node = {
                name: data.texts[name], where: data.texts[where], value: Math.max(0, values[kind]),
                change: base === undefined ? 0 : values[kind] - base[kind], children: [],
            };
            made.push(node);
            if (parent < 0) {
                root = node;
            } else if (node.value > 0) {
                made[parent].children.push(node);
            }
        });
        return root;
    }

    function largestChange() {
        if (!data.compared) {
            return 0;
        }
        return data.nodes.reduce((most, node) => Math.max(most, Math.abs(node[3][kind] - node[4][kind])), 0);
    }

    function label(frame, total) {
        const { name, value, change, where } = frame.data;
        const changed = data.compared ? `, ${valueText(change)} against the base` : "";
        return `${name}: ${valueText(value, false)}, ${shareText(value, total)}${changed}${where ? ` (${where})` : ""}`;
    }

    function drawGraph() {
        const tree = treeOf();
        const largest = largestChange();
        place.replaceChildren();
        place.dataset.width = place.clientWidth;
        if (tree.value === 0) {
            const text = document.createElement("p");
            text.textContent = "Nothing of this kind is in the profile.";
            place.append(text);
            chart = null;
            return;
        }
        const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
        let expression = null;
        chart = flamegraph.default()
            .width(place.clientWidth).cellHeight(CELL).inverted(true).minFrameSize(0.4)
            .transitionDuration(still ? 0 : 250)
            .sort((a, b) => b.data.value - a.data.value || (a.data.name < b.data.name ? -1 : 1))
            .setLabelHandler((frame) => label(frame, tree.value))
            .setColorMapper((frame) => heapGraph.color(frame, data.compared, largest))
            .setSearchMatch((frame, term) => {
                if (expression?.term !== term) {
                    expression = { term, matches: matcher(term) };
                }
                return expression.matches.test(frame.data.name) || expression.matches.test(frame.data.where);
            })
            .setSearchHandler((frames, sum) => {
                const bars = `${frames.length.toLocaleString("en")} ${frames.length === 1 ? "bar" : "bars"}`;
                found.textContent = `${bars} found, with ${valueText(sum, false)}, ${shareText(sum, tree.value)}`;
            })
            .setDetailsElement(document.getElementById("details"))
            .setDetailsHandler((text) => {
                document.getElementById("details").textContent = text ?? "";
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

    const cell = heapTables.cell;

    // A button with a site's name that searches it in the graph.
    function siteButton(name) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.addEventListener("click", () => {
            search.value = `^${name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
            lookFor(search.value);
            place.scrollIntoView({ block: "center" });
        });
        return button;
    }

    function drawTable() {
        const figure = (site) => site[by === "flat" ? 2 : 3][kind];
        const size = (site) => data.compared ? Math.abs(figure(site)) : figure(site);
        const total = data.nodes[0][data.compared ? 4 : 3][kind];
        const shown = data.sites.filter((site) => site[2][kind] !== 0 || site[3][kind] !== 0);
        const sorted = shown.sort((a, b) => size(b) - size(a));
        const body = document.querySelector("#sites tbody");
        body.replaceChildren(...sorted.slice(0, ROWS).map(([name, where, flat, cum, life, labels, sizes]) => {
            const row = document.createElement("tr");
            cell(row, "th", siteButton(data.texts[name])).scope = "row";
            for (const values of [flat, cum]) {
                cell(row, "td", valueText(values[kind]));
                cell(row, "td", shareText(values[kind], total));
            }
            if (life !== null) {
                cell(row, "td", life);
            }
            if (sizes !== null) {
                cell(row, "td", data.texts[sizes[kind]]).className = "text";
            }
            if (labels !== null) {
                cell(row, "td", data.texts[labels[kind]]).className = "text";
            }
            cell(row, "td", data.texts[where]);
            return row;
        }));
        document.getElementById("more").textContent = sorted.length > ROWS
            ? `The first ${ROWS} of ${sorted.length.toLocaleString("en")} sites; "hakmem heap -n" prints more.` : "";
        for (const head of document.querySelectorAll("#sites [data-figure]")) {
            head.setAttribute("aria-sort", head.dataset.figure === by ? "descending" : "none");
        }
    }

    function show(number) {
        kind = number;
        for (const button of document.querySelectorAll("[data-kind]")) {
            button.setAttribute("aria-pressed", Number(button.dataset.kind) === kind);
        }
        drawGraph();
        drawTable();
        heapTables.sizes(data, kind, siteButton, valueText);
    }

    for (const button of document.querySelectorAll("[data-kind]")) {
        button.addEventListener("click", () => show(Number(button.dataset.kind)));
    }
    for (const head of document.querySelectorAll("#sites [data-figure]")) {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        button.addEventListener("click", () => {
            by = head.dataset.figure;
            drawTable();
        });
        head.append(button);
    }
    search.addEventListener("input", () => lookFor(search.value));
    document.getElementById("reset").addEventListener("click", () => chart?.resetZoom());
    let waiting;
    addEventListener("resize", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => {
            if (place.dataset.width !== String(place.clientWidth)) {
                drawGraph();
            }
        }, 200);
    });
    if (data.leftOut > 0) {
        document.getElementById("left").textContent =
            `The graph leaves out the ${data.leftOut.toLocaleString("en")} smallest bars; the table counts all.`;
    }
    show(kind);
    heapTables.temporary(data, siteButton);
    document.documentElement.dataset.drawn = "yes";
})();
