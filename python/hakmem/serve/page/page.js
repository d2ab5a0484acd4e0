"use strict";

const { parts, rates } = JSON.parse(document.getElementById("settings").textContent);
const HISTORY = 600;
const state = { pid: null, points: [], interval: 1, charts: null };

// ---- Figures as texts ----

/* As bytes_column() of python/hakmem/units.py. */
function bytes(count) {
    if (count === null || count === undefined) return "-";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let value = Math.abs(count), unit = 0;
    while (value >= (unit ? 1000 : 1024) && unit < units.length - 1) { value /= 1024; unit++; }
    const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return (count < 0 ? "-" : "") + value.toFixed(digits) + " " + units[unit];
}

const number = value => value === null || value === undefined
    ? "-" : value.toLocaleString("en", { maximumFractionDigits: 1 });

const short = value => value === null
    ? "" : value >= 1e6 ? value / 1e6 + " M" : value >= 1e3 ? value / 1e3 + " k" : value.toString();

function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

// ---- Charts ----

const clock = seconds => seconds === null ? "-" : new Date(seconds * 1000).toLocaleTimeString("en-GB");

function axes(values) {
    return [{ ...timeChart.axis(), space: 90, values: (_, ticks) => ticks.map(clock) },
        { ...timeChart.axis(), size: 70, values: (_, ticks) => ticks.map(values) }];
}

function chart(id, series, values, splits) {
    const where = document.getElementById(id);
    where.replaceChildren();
    const made = axes(values);
    if (splits) made[1].splits = splits;
    const plot = new uPlot({
        width: where.clientWidth, height: 240, cursor: { sync: { key: "time" } }, axes: made,
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1) * 1.05] } },
        series: [{ label: "time", value: (_, seconds) => clock(seconds ?? null) }, ...series] },
        [[], ...series.map(() => [])], where);
    plot.over.addEventListener("mouseleave", () => setTimeout(() => showLast(plot)));
    return plot;
}

/* The parts are stacked: each is filled down to 0 and the parts below are drawn over it. The key shows each part's own
   size. */
const stacked = [...parts].reverse();
const PALETTE = ["#2f9e44", "#1c7ed6", "#f59f00", "#e8590c"];

function makeCharts() {
    const line = (label, stroke) => ({ label, stroke, width: 2, points: { show: false },
        value: (_, value) => number(value) });
    return {
        memory: chart("chart-memory", stacked.map(part => ({
            label: part.title, fill: part.color, stroke: part.color, width: 1, points: { show: false },
            value: (plot, _, series, index) => index === null ? "-" : bytes(state.points[index]?.[part.name]) })),
            bytes, timeChart.byteSplits),
        rates: chart("chart-rates", Object.values(rates).map((title, index) => line(title, PALETTE[index])), short),
        faults: chart("chart-faults", [line("soft", PALETTE[1]), line("hard", PALETTE[3])], short),
    };
}

function drawCharts() {
    const times = state.points.map(point => point.time);
    const sums = stacked.map((_, index) => state.points.map(
        point => stacked.slice(index).reduce((sum, part) => sum + point[part.name], 0)));
    const rate = name => state.points.map(point => point.rates ? point.rates[name] : null);
    state.charts.memory.setData([times, ...sums]);
    state.charts.rates.setData([times, ...Object.keys(rates).map(rate)]);
    state.charts.faults.setData([times, rate("minor_faults"), rate("major_faults")]);
    for (const plot of Object.values(state.charts)) showLast(plot);
}

/* Without the mouse on the chart, the key shows the latest look. */
function showLast(plot) {
    if (plot.data[0].length && !plot.over.matches(":hover")) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

function resize() {
    for (const plot of Object.values(state.charts)) {
        plot.setSize({ width: plot.root.parentElement.clientWidth, height: 240 });
    }
}

// ---- Texts and tables ----

function table(id, columns, rows) {
    const head = element("tr");
    for (const [title, , kind] of columns) head.append(element("th", title, kind));
    const made = rows.map(row => {
        const line = element("tr");
        for (const [, value, kind] of columns) {
            const made = value(row), isNode = made instanceof Node;
            const cell = element("td", isNode ? undefined : made, kind);
            if (isNode) cell.append(made);
            line.append(cell);
        }
        return line;
    });
    const top = element("thead"), body = element("tbody");
    top.append(head);
    body.append(...made);
    document.getElementById(id).replaceChildren(top, body);
}

function drawTiles(shot) {
    const tiles = [["RSS", bytes(shot.rss)],
        ...parts.map(part => [part.title, bytes(shot.resident[part.name]), part.color]),
                   ["mapped by HAKMEM", bytes(shot.totals.mapped)], ["SuperSlabs", number(shot.totals.superslabs)],
                   ["threads", number(shot.totals.live_threads)]];
    document.getElementById("tiles").replaceChildren(...tiles.map(([title, value, fill]) => {
        const tile = element("div"), name = element("dt", title);
        if (fill) {
            const mark = element("i");
            mark.style.background = fill;
            name.prepend(mark);
        }
        tile.dataset.tile = title;
        tile.append(name, element("dd", value));
        return tile;
    }));
}

function drawTables(shot) {
    table("classes", [
        ["block size", row => number(row.block_size)], ["slabs", row => number(row.slabs)],
        ["live", row => number(row.live_blocks)], ["cached", row => number(row.cached_blocks)],
        ["free", row => number(row.free_blocks)], ["live bytes", row => bytes(row.live_blocks * row.block_size)],
        ["free bytes", row => bytes(row.free_blocks * row.block_size)],
    ], [...shot.classes].sort((a, b) => b.live_blocks * b.block_size - a.live_blocks * a.block_size));
    table("threads", [
        ["heap", row => row.heap], ["thread", row => row.name || row.kind.replace("_", "-"), "words"],
        ["tid", row => row.tid ?? "-"], ["state", row => row.state, "words"], ["slabs", row => number(row.slabs)],
        ["live bytes", row => bytes(row.live_bytes)], ["cached bytes", row => bytes(row.cached_bytes)],
        ["warm", row => number(row.warm_slabs)], ["pending", row => number(row.pending_slabs)],
    ], shot.threads.filter(row => row.state !== "unused").sort((a, b) => b.live_bytes - a.live_bytes));
}

function drawState(about) {
    const where = document.getElementById("state");
    document.getElementById("title").textContent = `${about.command} ${about.pid}`;
    document.title = `${about.command} ${about.pid}: hakmem serve`;
    where.className = about.state === "running" ? "" : "bad";
    where.textContent = about.state === "running" ? `running on HAKMEM ${about.version}` :
        about.state === "ended" ? `ended at ${new Date(about.ended_at * 1000).toLocaleTimeString()}: ${about.problem}` :
        `not read just now: ${about.problem}`;
    document.getElementById("map").href = `map/${about.pid}`;
    document.getElementById("json").href = `api/snapshot/${about.pid}`;
    document.getElementById("flame-file").href = `flame/${about.pid}?kind=${flame.kind}`;
}

function drawProcesses(processes) {
    const where = document.getElementById("processes");
    const wanted = JSON.stringify([state.pid, processes.map(about => [about.pid, about.command, about.state])]);
    if (where.dataset.drawn === wanted) return;
    where.dataset.drawn = wanted;
    where.replaceChildren(...processes.map(about => {
        const made = element("button", `${about.command} ${about.pid}`, about.state);
        made.setAttribute("aria-pressed", about.pid === state.pid);
        made.addEventListener("click", () => { choose(about.pid); look(); });
        return made;
    }));
}

// ---- The heap profile ----

const flame = { paused: false, kind: "inuse_space", asked: 0, busy: false };
/* Milliseconds between two flame graphs. */
const FLAME_EVERY = 5000;
const byId = id => document.getElementById(id);
const graph = heapGraph.begin();

const flameFigure = value => flame.kind.endsWith("space")
    ? heapGraph.valueText(value, "bytes") : `${number(value)} ${value === 1 ? "block" : "blocks"}`;

/* The tree that the server sends, in the graph's form. */
const treeOf = ([name, where, value, children]) => ({ name, where, value, children: children.map(treeOf) });

function drawFlame(root) {
    if (!root || !root[2]) {
        graph.say(root ? "No samples yet." : "");
        return;
    }
    const tree = treeOf(root);
    graph.draw(tree, 0, ({ data: node }) => `${node.name}: ${flameFigure(node.value)}, `
        + heapGraph.shareText(node.value, tree.value) + (node.where ? ` (${node.where})` : ""),
        frame => heapGraph.color(frame, false, 0), flameFigure);
}

/* The tables by site below the graph, of the same answer. */
function drawSites(found) {
    byId("of-sites").hidden = !found?.root[2] && !found?.temporary.sites.length;
    if (!found) return;
    const share = (value, whole) => whole ? `${(100 * value / whole).toFixed(1)} %` : "-";
    const bar = (value, whole) => {
        const made = element("span", undefined, "bar");
        made.style.width = `${whole ? 100 * value / whole : 0}%`;
        return made;
    };
    const rows = found.sizes.flatMap(site => [{ name: site.name, value: site.value, whole: found.root[2] },
        ...site.sizes.map(row => ({ ...row, whole: site.value }))]);
    table("sizes", [
        ["site", row => row.name ?? "", "words name"], ["size", row => row.size ?? ""],
        [flame.kind.endsWith("space") ? "bytes" : "blocks", row => flameFigure(row.value)],
        ["share", row => share(row.value, row.whole)],
        ["", row => row.name === undefined ? bar(row.value, row.whole) : "", "spread"],
    ], rows);
    table("temporary", [
        ["site", row => row.name, "words name"], ["freed", row => number(row.freed)],
        ...found.temporary.heads.map((head, place) => [head, row => share(row.counts[place], row.freed)]),
    ], found.temporary.sites);
}

function drawSwitch(profile) {
    const where = byId("profile-state"), button = byId("profile-switch");
    const rate = profile.mean ? `, a sample every ${bytes(profile.mean)} in the mean` : "";
    where.textContent = profile.note || (profile.on ? `being taken${rate}` : profile.sites ? `stopped${rate}; what it knows is shown` : "not taken");
    byId("profile-controls").hidden = false;
    button.hidden = !profile.may_write || !profile.can;
    button.textContent = profile.on ? "Stop it" : "Take a heap profile";
    button.dataset.on = profile.on ? "0" : "1";
    if (!profile.may_write && !profile.on) where.textContent += "; a server with a token can turn it on";
}

async function switchProfile() {
    const button = byId("profile-switch"), pid = state.pid;
    button.disabled = true;
    byId("profile-state").textContent = "waiting for the process";
    try {
        drawSwitch({ may_write: true, ...await ask(`api/profile/${pid}?on=${button.dataset.on}`, { method: "POST" }) });
        flame.asked = 0;
    } catch (error) {
        byId("profile-state").textContent = error.message;
    }
    button.disabled = false;
}

async function lookAtProfile() {
    if (flame.busy || flame.paused || Date.now() - flame.asked < FLAME_EVERY || byId("profile-switch").disabled) return;
    const pid = state.pid, kind = flame.kind;
    flame.busy = true;
    flame.asked = Date.now();
    try {
        const profile = await ask(`api/profile/${pid}`);
        if (pid === state.pid) drawSwitch(profile);
        const found = profile.sites ? await ask(`api/flame/${pid}?kind=${kind}`) : null;
        if (pid === state.pid && kind === flame.kind && !flame.paused) {
            drawFlame(found && found.root);
            drawSites(found);
        }
    } catch (error) {
        byId("profile-state").textContent = error.message;
    }
    flame.busy = false;
}

function beginFlame() {
    byId("profile-switch").addEventListener("click", switchProfile);
    byId("flame-pause").addEventListener("click", event => {
        flame.paused = !flame.paused;
        event.target.setAttribute("aria-pressed", flame.paused);
        event.target.textContent = flame.paused ? "Go on" : "Pause";
        flame.asked = 0;
    });
    byId("flame-kind").addEventListener("change", event => {
        flame.kind = event.target.value;
        byId("flame-file").href = `flame/${state.pid}?kind=${flame.kind}`;
        flame.asked = 0;
        lookAtProfile();
    });
}

// ---- Why RSS is above what was asked for ----

const WHY_SITES = 30;

function drawWhy(found) {
    const rss = found.chain[found.chain.length - 1].bytes;
    table("why-chain", [
        ["", row => row.name, "words"], ["bytes", row => bytes(row.bytes)],
        ["of RSS", row => rss ? `${(100 * row.bytes / rss).toFixed(1)} %` : "-"], ["", row => row.meaning, "words soft"],
    ], found.chain);
    const some = found.sites.filter(row => ["above_space", "untouched_space", "idle_space"].some(kind => row.flat[kind]));
    const figure = kind => row => row.flat?.[kind] ? bytes(row.flat[kind]) : "";
    const rest = found.held_by_no_site.map(row => ({ name: `(${row.what})`, where: "", flat: { held_space: row.bytes } }));
    byId("why-head").hidden = !some.length;
    if (some.length) {
        table("why-sites", [
            ["site", row => row.name, "words name"], ["above", figure("above_space")], ["rounding", figure("rounding_space")],
            ["held", figure("held_space")], ["kept", figure("kept_space")], ["slabs", row => row.flat?.held_slabs ? number(row.flat.held_slabs) : ""],
            ["untouched", figure("untouched_space")], ...(found.idle ? [["idle", figure("idle_space")]] : []),
            ["in use", figure("inuse_space")], ["where", row => row.where, "words name soft"],
        ], [...some.slice(0, WHY_SITES), ...rest]);
    } else {
        byId("why-sites").replaceChildren();
    }
    byId("why-state").textContent = found.notes.join(" ");
}

async function lookWhy() {
    const button = byId("why-look"), pid = state.pid, seconds = Number(byId("why-idle").value);
    button.disabled = true;
    byId("why-state").textContent = seconds ? `watching for ${seconds} seconds` : "looking";
    try {
        const found = await ask(`api/why/${pid}?idle=${seconds}`);
        if (pid === state.pid) drawWhy(found);
    } catch (error) {
        byId("why-state").textContent = error.message;
    }
    button.disabled = false;
}

function forgetWhy() {
    for (const id of ["why-chain", "why-sites"]) byId(id).replaceChildren();
    byId("why-head").hidden = true;
    byId("why-state").textContent = "";
}

// ---- Looking ----

async function ask(path, how = {}) {
    const answer = await fetch(path, { cache: "no-store", ...how });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error);
    return value;
}

function choose(pid) {
    state.pid = pid;
    state.points = [];
    location.hash = pid;
    flame.asked = 0;
    drawFlame(null);
    drawSites(null);
    forgetWhy();
}

async function look() {
    const list = await ask("api/processes");
    state.interval = list.interval;
    if (!list.processes.some(about => about.pid === state.pid)) {
        const named = Number(location.hash.slice(1));
        choose((list.processes.find(about => about.pid === named) || list.processes[0]).pid);
    }
    drawProcesses(list.processes);
    const pid = state.pid;
    const after = state.points.length ? state.points[state.points.length - 1].number : 0;
    const [shot, history] = await Promise.all([ask(`api/snapshot/${pid}`), ask(`api/history/${pid}?after=${after}`)]);
    if (pid !== state.pid) return;
    // Two looks may have been under way at the same time.
    const last = state.points.length ? state.points[state.points.length - 1].number : 0;
    state.points = [...state.points, ...history.points.filter(point => point.number > last)].slice(-HISTORY);
    drawState(shot.process);
    drawTiles(shot);
    drawTables(shot);
    drawCharts();
    lookAtProfile();
    document.documentElement.dataset.looks = state.points.length ? state.points[state.points.length - 1].number : 0;
}

async function lookOn() {
    try {
        await look();
    } catch (error) {
        const where = document.getElementById("state");
        where.className = "bad";
        where.textContent = error instanceof TypeError ? "the server does not answer" : error.message;
    }
    setTimeout(lookOn, Math.max(state.interval, 0.2) * 1000);
}

function begin() {
    state.charts = makeCharts();
    drawCharts();
}

begin();
beginFlame();
byId("why-look").addEventListener("click", lookWhy);
addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", begin);
lookOn();
