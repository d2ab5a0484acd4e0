// What the pages with a chart over time (uPlot) share.
"use strict";

const timeChart = {
    // A color of the page's style.
    color: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),

    // The look of an axis.
    axis() {
        const line = timeChart.color("--line");
        return { stroke: timeChart.color("--soft"), grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    },

    // Where an axis of memory has its ticks, as uPlot asks for them: at multiples of a power of two.
    byteSplits(_, __, low, high) {
        let step = 1;
        while ((high - low) / step > 6) {
            step *= 2;
        }
        const found = [];
        for (let at = Math.ceil(low / step) * step; at <= high; at += step) {
            found.push(at);
        }
        return found;
    },
};
