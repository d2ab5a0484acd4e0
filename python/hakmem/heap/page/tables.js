// The tables of sizes and of temporary blocks. Each takes the page's data, a site's button, and texts of figures.
"use strict";

const heapTables = (() => {
    const ROWS = 500;

    function cell(row, kindOf, content, className) {
        const made = document.createElement(kindOf);
        made.append(content);
        if (className) {
            made.className = className;
        }
        row.append(made);
        return made;
    }

    // Makes a row that begins with a site. scope: "rowgroup" for the first row of several.
    function siteRow(button, scope) {
        const row = document.createElement("tr");
        cell(row, "th", button).scope = scope;
        return row;
    }

    function bar(value, total) {
        const made = document.createElement("span");
        made.className = value < 0 ? "bar less" : "bar";
        made.style.width = `${total === 0 ? 0 : Math.max(0.5, 100 * Math.abs(value) / total)}%`;
        return made;
    }

    // One body for each site: its own row, then one for each size.
    function sizes(data, kind, button, valueText) {
        const table = document.getElementById("spreads");
        if (table === null) {
            return;
        }
        const rows = data.spreads[kind] ?? [];
        const whole = data.nodes[0][data.compared ? 4 : 3][kind];
        const counted = (objects) => objects === null ? "" : heapGraph.valueText(objects, "count", data.compared);
        for (const body of [...table.tBodies]) {
            body.remove();
        }
        table.append(...rows.map(([name, flat, spread]) => {
            const body = document.createElement("tbody");
            const total = spread.reduce((sum, [, value]) => sum + Math.abs(value), 0);
            const objects = spread.reduce((sum, [, , count]) => count === null ? null : sum + count, 0);
            const head = siteRow(button(data.texts[name]), "rowgroup");
            for (const text of ["", valueText(flat), heapGraph.shareText(flat, whole), counted(objects), ""]) {
                cell(head, "td", text);
            }
            body.append(head, ...spread.map(([size, value, count]) => {
                const row = document.createElement("tr");
                const share = heapGraph.shareText(value, total);
                for (const text of ["", data.texts[size], valueText(value), share, counted(count)]) {
                    cell(row, "td", text);
                }
                cell(row, "td", bar(value, total), "spread");
                return row;
            }));
            return body;
        }));
        const all = data.sites.filter((site) => site[2][kind] !== 0).length;
        document.getElementById("more-spreads").textContent = all > rows.length
            ? `The first ${rows.length} of ${all.toLocaleString("en")} sites; "hakmem heap --sizes" prints more.` : "";
    }

    // A click on a head sorts by its column. The table begins as the data are: most temporary blocks first.
    function temporary(data, button) {
        const table = document.getElementById("temporary");
        if (table === null) {
            return;
        }
        const heads = [...table.querySelectorAll("[data-column]")];

        function draw(column) {
            const figure = ([, freed, counts]) => Math.abs(column < 0 ? freed : counts[column]);
            const rows = column === null ? data.temporary : [...data.temporary].sort((a, b) => figure(b) - figure(a));
            table.tBodies[0].replaceChildren(...rows.slice(0, ROWS).map(([name, freed, counts]) => {
                const row = siteRow(button(data.texts[name]), "row");
                cell(row, "td", heapGraph.valueText(freed, "count", data.compared));
                for (const count of counts) {
                    cell(row, "td", heapGraph.shareText(count, freed));
                }
                return row;
            }));
            for (const head of heads) {
                const sorted = Number(head.dataset.column) === (column ?? 0);
                head.setAttribute("aria-sort", sorted ? "descending" : "none");
            }
        }

        for (const head of heads) {
            const made = document.createElement("button");
            made.type = "button";
            made.append(...head.childNodes);
            made.addEventListener("click", () => draw(Number(head.dataset.column)));
            head.append(made);
        }
        document.getElementById("more-temporary").textContent = data.temporary.length > ROWS
            ? `The first ${ROWS} of ${data.temporary.length.toLocaleString("en")} sites.` : "";
        draw(null);
    }

    return { cell, sizes, temporary };
})();
