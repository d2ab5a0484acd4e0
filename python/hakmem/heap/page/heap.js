// Draws the flame graph and the table of one sample type at a time, searches, and zooms.
"use strict";

(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const place = document.getElementById("graph");
    const search = document.getElementById("search");
    const ROWS = 500;
    let kind = data.shown;
    let by = "flat";

    const { shareText } = heapGraph;
    const graph = heapGraph.begin();

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
        if (tree.value === 0) {
            graph.say("Nothing of this kind is in the profile.");
            return;
        }
        const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
        graph.draw(tree, still ? 0 : 250, (frame) => label(frame, tree.value),
            (frame) => heapGraph.color(frame, data.compared, largest), (sum) => valueText(sum, false));
    }

    const cell = heapTables.cell;

    // A button with a site's name that searches it in the graph.
    function siteButton(name) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = name;
        button.addEventListener("click", () => {
            search.value = `^${name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`;
            graph.lookFor(search.value);
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
        body.replaceChildren(...sorted.slice(0, ROWS).map(([name, where, flat, cum, life, labels, sizes, errors]) => {
            const row = document.createElement("tr");
            cell(row, "th", siteButton(data.texts[name])).scope = "row";
            for (const [values, texts] of [[flat, errors[0]], [cum, errors[1]]]) {
                cell(row, "td", valueText(values[kind]) + data.texts[texts[kind]]);
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
    if (data.leftOut > 0) {
        document.getElementById("left").textContent =
            `The graph leaves out the ${data.leftOut.toLocaleString("en")} smallest bars; the table counts all.`;
    }
    show(kind);
    heapTables.temporary(data, siteButton);
    document.documentElement.dataset.drawn = "yes";
})();
