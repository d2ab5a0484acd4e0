"use strict";
/* Draws the visible rows of SuperSlabs on one canvas. The box around it scrolls over the space of all rows. */
(() => {
    const data = JSON.parse(document.getElementById("data").textContent);
    const box = document.getElementById("window");
    if (!box) {
        document.documentElement.dataset.drawn = "yes";
        return;
    }
    const canvas = document.getElementById("map"), space = document.getElementById("space");
    const hint = document.getElementById("hint"), told = document.getElementById("told"), legend = document.getElementById("legend");
    const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
    const number = new Uint32Array(bytes(data.number)), tier = new Uint8Array(bytes(data.tier));
    const flags = new Uint8Array(bytes(data.flags)), state = new Uint8Array(bytes(data.state));
    const first = new Uint8Array(bytes(data.first)), classOf = new Uint8Array(bytes(data.class));
    const used = new Uint16Array(bytes(data.used)), cached = new Uint16Array(bytes(data.cached));
    const owner = new Uint32Array(bytes(data.owner));
    const UNITS = data.unitsInSuperslab, ROWS = number.length, ACTIVE = data.states.indexOf("active"), GUARD = data.states.indexOf("guard");
    const ROW = 18, GAP = 2, LABEL = 104;
    let view = "class", chosen = null, at = null, cell = 14;

    const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
    /* Kelly's colours of maximum contrast, the most distinct first. His greys are left out: they mark free units. */
    const APART = ["#0067a5", "#f38400", "#008856", "#875692", "#f3c300", "#be0032", "#a1caf1", "#8db600", "#e68fac", "#654522",
                   "#604e97", "#f99379", "#00b5ad", "#b3446c", "#dcd300", "#882d17", "#c2b280", "#e25822", "#5a7d2a", "#d6a5ff"];
    const hue = index => `hsl(${(index * 137.508) % 360} ${58 + index % 3 * 10}% ${(dark() ? 56 : 45) + index % 4 * 4}%)`;
    const size = count => count < 1024 ? `${count} B` : count < 1048576 ? `${+(count / 1024).toFixed(1)} KiB` :
        `${+(count / 1048576).toFixed(1)} MiB`;

    /* What a unit shows in this view. */
    function keyOf(row, unit) {
        const begin = row * UNITS + first[row * UNITS + unit], kind = state[row * UNITS + unit];
        if (view === "state")
            return kind;
        if (kind !== ACTIVE)
            return -kind - 1;
        if (view === "fill")
            return 0;
        return view === "class" ? classOf[begin] : owner[begin];
    }

    /* In all views but that of states, a unit outside of slabs has a key below 0 and a grey of its own. */
    const colorOf = key => view === "state" ? color(data.states[key]) : key < 0 ? color(`grey-${data.states[-key - 1]}`) :
        view === "fill" ? color("active") : rank.get(key) < APART.length ? APART[rank.get(key)] : hue(key);

    /* Sorts classes and owners by number of units: those with most get the colours that differ most. */
    let rank = new Map();
    function countKeys() {
        const keys = new Map();
        for (let row = 0; row < ROWS; row++)
            for (let unit = 1; unit < UNITS; unit++) {
                const key = keyOf(row, unit);
                keys.set(key, (keys.get(key) || 0) + 1);
            }
        rank = new Map([...keys].filter(([key]) => key >= 0).sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([key], place) => [key, place]));
        return keys;
    }

    /* Tells how much of a SuperSlab's slabs is live. FULL has no free block or unit. */
    function fillOf(row) {
        let live = 0, room = 0, free = false;
        for (let unit = 1; unit < UNITS; unit++) {
            const place = row * UNITS + unit, kind = classOf[place];
            if (state[place] === GUARD) continue;
            room += data.unitSize;
            free ||= state[place] !== ACTIVE;
            if (state[place] !== ACTIVE || first[place] !== unit) continue;
            live += (used[place] - cached[place]) * data.blockSizes[kind];
            free ||= used[place] - cached[place] < data.classBlocks[kind];
        }
        return free ? `${Math.min(Math.floor(100 * live / room), 99)} %` : "FULL";
    }

    function draw() {
        const width = box.clientWidth, height = Math.min(box.clientHeight, ROWS * ROW), scale = devicePixelRatio || 1;
        cell = Math.max(5, Math.floor((width - LABEL - 8) / (UNITS - 1)));
        canvas.width = width * scale;
        canvas.height = height * scale;
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
        const pen = canvas.getContext("2d");
        pen.scale(scale, scale);
        pen.clearRect(0, 0, width, height);
        pen.font = "11px ui-monospace, monospace";
        pen.textBaseline = "middle";
        const top = box.scrollTop, soft = color("soft"), last = Math.min(ROWS, Math.ceil((top + height) / ROW));
        for (let row = Math.floor(top / ROW); row < last; row++) {
            const y = row * ROW - top;
            pen.globalAlpha = 1;
            pen.fillStyle = soft;
            pen.fillText(`${number[row]} ${fillOf(row)}`, 6, y + ROW / 2);
            for (let unit = 1; unit < UNITS; unit++)
                drawUnit(pen, row, unit, LABEL + (unit - 1) * cell, y);
        }
        if (at) {
            pen.globalAlpha = 1;
            pen.strokeStyle = color("text");
            pen.lineWidth = 2;
            pen.strokeRect(LABEL + (at.unit - 1) * cell, at.row * ROW - top + 1, cell - 1, ROW - GAP);
        }
    }

    /* An active unit is filled from below: live blocks in full colour, cached ones paler, free ones palest. */
    function drawUnit(pen, row, unit, x, y) {
        const place = row * UNITS + unit, begin = row * UNITS + first[place], key = keyOf(row, unit);
        const inner = ROW - GAP, joined = first[place] && first[place] < unit, left = joined ? x - 1 : x;
        const width = cell - 1 + (joined ? 1 : 0), fade = chosen !== null && key !== chosen ? 0.18 : 1;
        pen.globalAlpha = fade;
        if (state[place] !== ACTIVE || view === "state") {
            pen.fillStyle = colorOf(key);
            pen.fillRect(left, y + 1, width, inner);
            if (state[place] === GUARD)
                cross(pen, left, y + 1, width, inner);
            return;
        }
        const blocks = data.classBlocks[classOf[begin]], live = (used[begin] - cached[begin]) / blocks * inner;
        const held = cached[begin] / blocks * inner;
        pen.fillStyle = colorOf(key);
        pen.globalAlpha = 0.22 * fade;
        pen.fillRect(left, y + 1, width, inner);
        pen.globalAlpha = 0.55 * fade;
        pen.fillRect(left, y + 1 + inner - live - held, width, held);
        pen.globalAlpha = fade;
        pen.fillRect(left, y + 1 + inner - live, width, live);
    }

    /* A guard unit is crossed out, so that it is known without its colour. */
    function cross(pen, x, y, width, height) {
        pen.strokeStyle = color("soft");
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(x, y + height);
        pen.lineTo(x + width, y);
        pen.stroke();
    }

    function text(row, unit) {
        const place = row * UNITS + unit, begin = row * UNITS + first[place];
        const where = `0x${(BigInt(`0x${data.address[row]}`) + BigInt(unit * data.unitSize)).toString(16)}`;
        const lines = [`SuperSlab ${number[row]} (${fillOf(row)} live, ${data.tierWords[tier[row]]}${flags[row] & 1 ? ", huge pages" : ""}${flags[row] & 2 ?
            ", decommitted" : ""}), unit ${unit} at ${where}`];
        if (state[place] === ACTIVE) {
            const kind = classOf[begin], blocks = data.classBlocks[kind];
            lines.push(`class ${kind}: blocks of ${data.blockSizes[kind].toLocaleString("en")} bytes`);
            lines.push(`${used[begin] - cached[begin]} live, ${cached[begin]} cached, ${blocks - used[begin]} free of ${blocks}`);
            lines.push(`owner: ${data.heaps[owner[begin]] || "unknown"}`);
        } else {
            lines.push({ untouched: "free, no memory behind it", dirty: "free, with memory behind it",
                         warm: "in a heap's warm pool, ready to carve", between: "on its way between two states",
                         guard: "a guard unit, which nobody can access: a write that leaves a slab faults here" }[
                data.states[state[place]]]);
        }
        return lines;
    }

    function show(row, unit, x, y) {
        at = { row, unit };
        const lines = text(row, unit);
        told.textContent = lines.join("; ");
        hint.textContent = lines.join("\n");
        hint.hidden = x === undefined;
        if (x !== undefined) {
            hint.style.left = `${Math.min(x + 14, innerWidth - hint.offsetWidth - 8)}px`;
            hint.style.top = `${y + 18 + hint.offsetHeight > innerHeight ? y - hint.offsetHeight - 10 : y + 18}px`;
        }
        draw();
    }

    function drawLegend() {
        const keys = countKeys();
        legend.replaceChildren(...[...keys].sort((a, b) => (a[0] < 0) - (b[0] < 0) || a[0] - b[0]).map(([key, count]) => {
            const entry = document.createElement("button"), swatch = document.createElement("i");
            entry.type = "button";
            entry.dataset.key = key;
            entry.setAttribute("aria-pressed", String(chosen === key));
            swatch.className = "swatch";
            swatch.style.background = colorOf(key);
            const name = key < 0 ? data.states[-key - 1] : view === "class" ? size(data.blockSizes[key]) : view === "state" ? data.states[key] :
                view === "fill" ? "live, cached (paler), free (palest)" : data.heaps[key] || "unknown";
            entry.append(swatch, `${name} × ${count}`);
            entry.addEventListener("click", () => {
                chosen = chosen === key ? null : key;
                drawLegend();
                draw();
            });
            return entry;
        }));
    }

    canvas.addEventListener("mousemove", event => {
        const place = canvas.getBoundingClientRect();
        const row = Math.floor((event.clientY - place.top + box.scrollTop) / ROW);
        const unit = Math.floor((event.clientX - place.left - LABEL) / cell) + 1;
        if (row >= 0 && row < ROWS && unit >= 1 && unit < UNITS)
            show(row, unit, event.clientX, event.clientY);
        else
            hint.hidden = true;
    });
    canvas.addEventListener("mouseleave", () => { hint.hidden = true; });
    box.addEventListener("keydown", event => {
        const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
        if (!step)
            return;
        event.preventDefault();
        const from = at || { row: 0, unit: 1 - step[1] };
        const row = Math.min(Math.max(from.row + step[0], 0), ROWS - 1);
        const unit = Math.min(Math.max(from.unit + step[1], 1), UNITS - 1);
        if (row * ROW < box.scrollTop)
            box.scrollTop = row * ROW;
        else if ((row + 1) * ROW > box.scrollTop + box.clientHeight)
            box.scrollTop = (row + 1) * ROW - box.clientHeight;
        show(row, unit);
    });
    for (const button of document.querySelectorAll("[data-view]"))
        button.addEventListener("click", () => {
            view = button.dataset.view;
            chosen = null;
            for (const other of document.querySelectorAll("[data-view]"))
                other.setAttribute("aria-pressed", String(other === button));
            drawLegend();
            draw();
        });
    /* The canvas stays in the box and takes no room itself: the space below it is as high as all rows. */
    function layOut() {
        space.style.height = `${ROWS * ROW}px`;
        canvas.style.height = canvas.style.marginBottom = "0";
        draw();
        canvas.style.marginBottom = `-${canvas.style.height}`;
    }
    box.addEventListener("scroll", draw);
    addEventListener("resize", () => requestAnimationFrame(layOut));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawLegend(); draw(); });
    drawLegend();
    layOut();
    document.documentElement.dataset.drawn = "yes";
})();
