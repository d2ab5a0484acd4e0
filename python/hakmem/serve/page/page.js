"use strict";

const { parts, rates } = JSON.parse(document.getElementById("settings").textContent);
const HISTORY = 600;
const state = { pid: null, points: [], interval: 1, charts: null };

// ---- Figures as texts ----

function bytes(count) {
    if (count === null || count === undefined) return "-";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let value = Math.abs(count), unit = 0;
    while (value >= 999.5 && unit < units.length - 1) { value /= 1024; unit++; }
    const digits = unit === 0 || value >= 99.95 ? 0 : 1;
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

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

const clock = seconds => seconds === null ? "-" : new Date(seconds * 1000).toLocaleTimeString("en-GB");

function axes(values) {
    const line = color("--line");
    const common = { stroke: color("--soft"), grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    return [{ ...common, values: (_, ticks) => ticks.map(clock) },
        { ...common, size: 70, values: (_, ticks) => ticks.map(values) }];
}

/* Memory is a multiple of a power of two. */
function byteSplits(_, __, low, high) {
    let step = 1;
    while ((high - low) / step > 6) step *= 2;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
    return found;
}

function chart(id, series, values, splits) {
    const where = document.getElementById(id);
    where.replaceChildren();
    const made = axes(values);
    if (splits) made[1].splits = splits;
    return new uPlot({
        width: where.clientWidth, height: 240, cursor: { sync: { key: "time" } }, axes: made,
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1) * 1.05] } },
        series: [{ label: "time", value: (_, seconds) => clock(seconds ?? null) }, ...series] },
        [[], ...series.map(() => [])], where);
}

/* The parts stand on one another: each is filled down to 0 and those below are drawn over it; the key tells its own
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
            bytes, byteSplits),
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
        for (const [, value, kind] of columns) line.append(element("td", value(row), kind));
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

// ---- Looking ----

async function ask(path) {
    const answer = await fetch(path, { cache: "no-store" });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error);
    return value;
}

function choose(pid) {
    state.pid = pid;
    state.points = [];
    location.hash = pid;
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
    // Two looks may have been under way at once.
    const last = state.points.length ? state.points[state.points.length - 1].number : 0;
    state.points = [...state.points, ...history.points.filter(point => point.number > last)].slice(-HISTORY);
    drawState(shot.process);
    drawTiles(shot);
    drawTables(shot);
    drawCharts();
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
addEventListener("resize", resize);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", begin);
lookOn();
