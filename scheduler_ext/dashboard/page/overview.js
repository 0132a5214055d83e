// What stands above the nodes: the cluster's sums, and the pods that wait.

import { element, keyed, setText, setWidth } from "./elements.js";
import { age, bytes, partOf, percent, plural } from "./format.js";
import { podName } from "./model.js";

export function drawTotals(place, sum, nodes, waiting) {
  const tiles = [
    { name: "nodes", value: String(nodes) },
    { name: "GPUs", value: String(sum.gpus), more: sum.unusable ? `${sum.unusable} unusable` : "all usable" },
    measured("memory", sum.memoryHeld, sum.memoryUsed, sum.memory,
      (value, all) => `${bytes(value)} of ${bytes(all)}`),
    measured("compute", sum.computeHeld, sum.computeUsed, sum.compute,
      (value, all) => percent(partOf(value, all))),
    { name: "containers", value: String(sum.slices) },
    { name: "waiting", value: plural(waiting, "pod"), isBad: waiting > 0 },
  ];
  keyed(place, tiles, ({ name }) => name, createTile, (tile, each) => {
    const [, value, meter, more] = tile.children;
    tile.classList.toggle("is-bad", Boolean(each.isBad));
    setText(value, each.value);
    meter.hidden = !each.all;
    if (each.all) {
      setWidth(meter.firstChild, Math.min(100, 100 * each.held / each.all));
      setWidth(meter.lastChild, Math.min(100, 100 * (each.used ?? 0) / each.all));
    }
    setText(more, each.more ?? "");
  });
}

function measured(name, held, used, all, format) {
  const more = used === null ? "use is not known" : `${format(used, all)} used`;
  return { name, value: `${format(held, all)} booked`, more, held, used, all };
}

function createTile({ name }) {
  const meter = element("dd", { class: "meter", hidden: true, "aria-hidden": "true" },
    element("span", { class: "held" }), element("span", { class: "used" }));
  return element("div", { class: "tile", "data-tile": name }, element("dt", {}, name),
    element("dd", { class: "value" }), meter, element("dd", { class: "tile-more" }));
}

const SHOWN_AT_FIRST = 10;

export function drawWaiting(place, waiting, now, isAll, showAll) {
  if (!waiting.length) {
    setText(place, "");
    return;
  }
  if (!place.querySelector("table")) {
    const head = element("tr", {}, ...["pod", "asks for", "waits", "because"].map(
      (name) => element("th", { scope: "col" }, name)));
    const button = element("button", { type: "button", class: "more" });
    button.addEventListener("click", showAll);
    place.replaceChildren(
      element("table", { class: "waiting" }, element("thead", {}, head), element("tbody")), button);
  }
  const shown = isAll ? waiting : waiting.slice(0, SHOWN_AT_FIRST);
  const create = () => element("tr", {}, element("th", { scope: "row" }), element("td"), element("td"), element("td"));
  keyed(place.querySelector("tbody"), shown, podName, create, (row, each) => {
    const [pod, asks, waits, reason] = row.children;
    setText(pod, podName(each));
    setText(asks, each.asks);
    setText(waits, each.since ? age(now - each.since) : "?");
    setText(reason, each.reason ?? "");
  });
  const button = place.lastChild;
  button.hidden = shown.length === waiting.length;
  setText(button, `show all ${waiting.length}`);
}
