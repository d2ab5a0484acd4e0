// Draws what sites held over time, and the flame graph of one moment, or of what changed between two.
"use strict";

(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const byId = (id) => document.getElementById(id);
    const HEIGHT = 320;
    // Distinguishable with red-green blindness, on light and on dark. The last color is for all other sites.
    const COLORS = ["#4477aa", "#ee7733", "#009988", "#cc3311", "#aa3377", "#ddaa33", "#33bbee", "#882255", "#66aa55", "#7766cc", "#8a8f98"];
    let kind = 0;
    let moment = data.times.length - 1;
    let base = null;
    let plot = null;

    // ---- Figures ----

    const { shareText } = heapGraph;
    const graph = heapGraph.begin();

    function valueText(value, signed = false) {
        return heapGraph.valueText(value, data.kinds[kind][2], signed);
    }

    const spansDays = new Date(data.times[0] * 1000).toDateString() !== new Date(data.times.at(-1) * 1000).toDateString();

    // Returns the time of day. apart: the seconds between neighbours, which must not look alike.
    function clockText(seconds, apart) {
        const digits = apart >= 1 ? 0 : apart >= 0.1 ? 1 : apart >= 0.01 ? 2 : 3;
        return new Date(seconds * 1000).toLocaleTimeString("en-GB", {
            hour: "2-digit", minute: "2-digit", second: "2-digit", ...(digits ? { fractionalSecondDigits: digits } : {}) });
    }

    const closest = data.times.reduce((least, time, place) => place ? Math.min(least, time - data.times[place - 1]) : least, 1);

    function timeText(seconds) {
        const day = spansDays ? `${new Date(seconds * 1000).toLocaleDateString("en-CA")} ` : "";
        return day + clockText(seconds, closest);
    }

    // Returns a node's value at a moment, from its changes: moment, value, moment, value...
    function at(changes, wanted) {
        let low = 0;
        let high = changes.length / 2;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (changes[2 * middle] <= wanted) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low === 0 ? 0 : changes[2 * low - 1];
    }

    // ---- The chart ----

    const style = timeChart.color;

    function bands() {
        return data.bands[kind].map(([name, where, values], number) => ({
            name, where, values, color: name === "all others" && where === "" ? COLORS[10] : COLORS[number] }));
    }

    function mark(drawn, number, color, dash) {
        const context = drawn.ctx;
        const x = drawn.valToPos(data.times[number], "x", true);
        context.save();
        context.strokeStyle = color;
        context.lineWidth = 2 * devicePixelRatio;
        context.setLineDash(dash);
        context.beginPath();
        context.moveTo(x, drawn.bbox.top);
        context.lineTo(x, drawn.bbox.top + drawn.bbox.height);
        context.stroke();
        context.restore();
    }

    function drawChart() {
        const where = byId("chart");
        const shown = bands().reverse();
        const axis = timeChart.axis();
        const bytes = data.kinds[kind][2] === "bytes";
        // Each band is filled down to 0, and the bands below are drawn over it.
        const sums = shown.map((_, index) => data.times.map(
            (__, number) => shown.slice(index).reduce((sum, band) => sum + band.values[number], 0)));
        const rss = data.rss !== null && data.kinds[kind][0] === "inuse_space";
        where.replaceChildren();
        plot = new uPlot({
            width: where.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { points: { show: false } },
            axes: [{ ...axis, space: 90, values: (_, ticks, __, ___, apart) => ticks.map((tick) => clockText(tick, apart)) },
                { ...axis, size: 90, values: (_, ticks) => ticks.map((tick) => valueText(tick)), ...(bytes ? { splits: timeChart.byteSplits } : {}) }],
            scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1) * 1.05] } },
            series: [{}, ...(rss ? [{ label: "RSS", stroke: style("--text"), width: 2, dash: [6, 4], points: { show: false } }] : []),
                ...shown.map((band) => ({ label: band.name, fill: band.color, stroke: band.color, width: 1, points: { show: false } }))],
            hooks: { draw: [(drawn) => {
                if (base !== null) {
                    mark(drawn, base, style("--text"), [4, 4]);
                }
                mark(drawn, moment, style("--text"), []);
            }] },
        }, [data.times, ...(rss ? [data.rss] : []), ...sums], where);
        plot.over.addEventListener("click", (event) => {
            const number = plot.posToIdx(event.clientX - plot.over.getBoundingClientRect().left);
            if (event.shiftKey) {
                choose(moment, number);
            } else {
                choose(number, base);
            }
        });
    }

    function drawKeys() {
        const rss = data.rss !== null && data.kinds[kind][0] === "inuse_space"
            ? [{ name: "RSS", where: "the whole process; the dashed line", values: data.rss, color: style("--text") }] : [];
        byId("keys").replaceChildren(...[...rss, ...bands()].map((band) => {
            const item = document.createElement("li");
            const color = document.createElement("i");
            const name = document.createElement("span");
            const value = document.createElement("b");
            color.style.background = band.color;
            name.textContent = band.name;
            name.title = `${band.name}${band.where ? ` (${band.where})` : ""}`;
            value.textContent = valueText(band.values[moment])
                + (base === null ? "" : ` (${valueText(band.values[moment] - band.values[base], true)})`);
            item.append(color, name, value);
            return item;
        }));
    }

    // ---- The flame graph ----

    function treeOf() {
        const made = [];
        for (const [parent, name, where, changes] of data.nodes) {
            const value = at(changes[kind], moment);
            const before = base === null ? 0 : at(changes[kind], base);
            const node = { name: data.texts[name], where: data.texts[where], value, before, change: value - before, children: [] };
            made.push(node);
            if (parent >= 0 && value > 0) {
                made[parent].children.push(node);
            }
        }
        return made;
    }

    function drawGraph(nodes) {
        const tree = nodes[0];
        const largest = nodes.reduce((most, node) => Math.max(most, Math.abs(node.change)), 0);
        if (tree.value === 0) {
            graph.say("Nothing of this kind was there at this moment.");
            return;
        }
        graph.draw(tree, 0, ({ data: node }) => `${node.name}: ${valueText(node.value)}, ${shareText(node.value, tree.value)}`
            + `${base === null ? "" : `, ${valueText(node.change, true)}`}${node.where ? ` (${node.where})` : ""}`,
            (frame) => heapGraph.color(frame, base !== null, largest), valueText);
    }

    // ---- The table ----

    // What functions hold themselves: a node's value without that of its callees.
    function drawTable(nodes) {
        const sites = new Map();
        const own = nodes.map((node) => [node.value, node.before]);
        data.nodes.forEach(([parent], number) => {
            if (parent >= 0) {
                own[parent][0] -= nodes[number].value;
                own[parent][1] -= nodes[number].before;
            }
        });
        nodes.forEach((node, number) => {
            const key = `${node.name}\0${node.where}`;
            const site = sites.get(key) ?? { name: node.name, where: node.where, value: 0, before: 0 };
            site.value += own[number][0];
            site.before += own[number][1];
            sites.set(key, site);
        });
        const size = (site) => base === null ? site.value : Math.abs(site.value - site.before);
        const rows = [...sites.values()].filter((site) => site.value !== 0 || site.before !== 0)
            .sort((a, b) => size(b) - size(a)).slice(0, 100);
        const heads = ["Site", "At this moment", "Share", ...(base === null ? [] : ["Before", "Change"]), "Where"];
        const head = document.createElement("tr");
        head.append(...heads.map((text) => {
            const cell = document.createElement("th");
            cell.scope = "col";
            cell.textContent = text;
            return cell;
        }));
        document.querySelector("#sites thead").replaceChildren(head);
        document.querySelector("#sites tbody").replaceChildren(...rows.map((site) => {
            const row = document.createElement("tr");
            const cells = [site.name, valueText(site.value), shareText(site.value, nodes[0].value),
                ...(base === null ? [] : [valueText(site.before), valueText(site.value - site.before, true)]), site.where];
            row.append(...cells.map((text, number) => {
                const cell = document.createElement(number === 0 ? "th" : "td");
                cell.textContent = text;
                return cell;
            }));
            row.firstChild.scope = "row";
            return row;
        }));
    }

    // ---- Choosing ----

    function choose(number, other) {
        moment = number;
        base = other;
        byId("moment").value = moment;
        byId("moment-time").textContent = timeText(data.times[moment]);
        byId("comparing").checked = base !== null;
        byId("base").disabled = base === null;
        if (base !== null) {
            byId("base").value = base;
        }
        byId("base-time").textContent = base === null ? "" : timeText(data.times[base]);
        plot.redraw(false);
        drawKeys();
        const nodes = treeOf();
        const all = nodes[0];
        byId("h-graph").textContent = base === null ? `At ${timeText(data.times[moment])}`
            : `At ${timeText(data.times[moment])}, against ${timeText(data.times[base])}`;
        byId("said").textContent = base === null
            ? `${data.kinds[kind][1]}: ${valueText(all.value)}.`
            : `${data.kinds[kind][1]}: ${valueText(all.value)}, ${valueText(all.change, true)} against ${valueText(all.before)}. `
                + "Red grew, blue shrank; what is gone is in the table alone.";
        drawGraph(nodes);
        drawTable(nodes);
    }

    function show(number) {
        kind = number;
        for (const button of document.querySelectorAll("[data-kind]")) {
            button.setAttribute("aria-pressed", Number(button.dataset.kind) === kind);
        }
        drawChart();
        choose(moment, base);
    }

    for (const button of document.querySelectorAll("[data-kind]")) {
        button.addEventListener("click", () => show(Number(button.dataset.kind)));
    }
    byId("moment").addEventListener("input", (event) => choose(Number(event.target.value), base));
    byId("base").addEventListener("input", (event) => choose(moment, Number(event.target.value)));
    byId("comparing").addEventListener("change", (event) => choose(moment, event.target.checked ? Number(byId("base").value) : null));
    let waiting;
    addEventListener("resize", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => show(kind), 200);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(kind));
    if (data.leftOut > 0) {
        byId("left").textContent = `The graph leaves out the ${data.leftOut.toLocaleString("en")} smallest bars.`;
    }
    show(0);
    document.documentElement.dataset.drawn = "yes";
})();
