// The last hour as two charts: what was booked as a line, what was used as an area.

import { element, setAttribute, setText, svg } from "./elements.js";
import { age, bytes, partOf, percent } from "./format.js";

const WIDTH = 600;
const HEIGHT = 100;

export function drawCharts(place, history, sum, whose) {
  if (!history) {
    setText(place, "No agent has told of the last hour yet.");
    return;
  }
  if (!place.charts || !place.contains(place.charts[0].figure)) {
    place.charts = [createChart(), createChart()];
    place.replaceChildren(...place.charts.map(({ figure }) => figure));
  }
  const lasts = history.memory_held_bytes.length * history.step_s;
  draw(place.charts[0], { title: "memory", whose, lasts, held: history.memory_held_bytes,
    used: history.memory_used_bytes, all: sum.memory, format: bytes });
  draw(place.charts[1], { title: "compute", whose, lasts, held: history.compute_held_percent,
    used: history.compute_used_percent, all: sum.compute,
    format: (value) => percent(partOf(value, sum.compute)) });
}

function createChart() {
  const chart = {
    caption: element("span", { class: "chart-title" }),
    numbers: element("span", { class: "chart-numbers" }),
    top: element("span", { class: "chart-top" }),
    begin: element("span"),
    area: svg("path", { class: "used-area" }),
    line: svg("path", { class: "held-line", "vector-effect": "non-scaling-stroke" }),
  };
  chart.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    chart.area, chart.line);
  chart.figure = element("figure", {},
    element("figcaption", {}, chart.caption, chart.numbers),
    element("div", { class: "plot" }, chart.picture, chart.top),
    element("div", { class: "chart-axis", "aria-hidden": "true" }, chart.begin, element("span", {}, "now")));
  return chart;
}

function draw(chart, { title, whose, lasts, held, used, all, format }) {
  const most = Math.max(all || 0, ...held.map(Number), ...used.map(Number)) || 1;
  setAttribute(chart.area, "d", areas(used, most));
  setAttribute(chart.line, "d", lines(held, most));
  const now = `booked ${format(last(held))}, used ${format(last(used))}`;
  setText(chart.caption, title);
  setText(chart.numbers, now);
  setText(chart.top, format(most));
  setText(chart.begin, `${age(lasts)} ago`);
  const peak = used.some(Number.isFinite) ? format(Math.max(...used.map(Number))) : "?";
  setAttribute(chart.picture, "aria-label", `${title} of ${whose}, the last ${age(lasts)}: ${now}, at most ${peak} used`);
}

function last(values) {
  return values.findLast(Number.isFinite) ?? null;
}

// Runs of steps of which something is known; a gap stays a gap.
function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, place) => {
    if (!Number.isFinite(value)) run = null;
    else if (run) run.push([place, value]);
    else found.push((run = [[place, value]]));
  });
  return found;
}

function points(run, count, most) {
  const step = WIDTH / count;
  const y = (value) => (HEIGHT * (1 - Math.max(0, value) / most)).toFixed(2);
  return run.flatMap(([place, value]) => [
    `${(place * step).toFixed(2)} ${y(value)}`, `${((place + 1) * step).toFixed(2)} ${y(value)}`,
  ]);
}

function lines(values, most) {
  return runs(values).map((run) => `M${points(run, values.length, most).join("L")}`).join("");
}

function areas(values, most) {
  const step = WIDTH / values.length;
  return runs(values).map((run) => {
    const from = (run[0][0] * step).toFixed(2);
    const to = ((run.at(-1)[0] + 1) * step).toFixed(2);
    return `M${from} ${HEIGHT}L${points(run, values.length, most).join("L")}L${to} ${HEIGHT}Z`;
  }).join("");
}
