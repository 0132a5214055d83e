// The list of nodes. Only those near the visible part are drawn: 500 nodes have 4,000 GPUs.

import { createGpu, updateGpu } from "./bars.js";
import { drawCharts } from "./charts.js";
import { element, keyed, setAttribute, setText } from "./elements.js";
import { bytes, partOf, percent, plural } from "./format.js";
import { poll } from "./polling.js";

const HISTORY_EVERY_MS = 30_000;

export class NodeList {
  constructor(place) {
    this.place = place;
    this.expanded = new Set();
    this.words = [];
    this.near = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.#approach(target, isIntersecting);
    }, { rootMargin: "600px 0px" });
  }

  show(shown, words) {
    this.words = words;
    const before = new Set(this.place.children);
    keyed(this.place, shown, ({ node }) => node.name, (each) => this.#create(each),
      (item, each) => this.#update(item, each));
    for (const item of before) {
      if (!item.isConnected) {
        this.near.unobserve(item);
        item.history?.stop();
      }
    }
  }

  #create({ node }) {
    const item = element("li", { class: "node", "data-node": node.name });
    item.parts = {
      name: element("h3"),
      sum: element("span", { class: "sum" }),
      button: element("button", { type: "button", class: "more", "aria-expanded": "false" }, "last hour"),
      problem: element("p", { class: "problem" }),
      charts: element("div", { class: "charts", hidden: true }),
      gpus: element("div", { class: "gpus" }),
    };
    const { name, sum, button, problem, charts, gpus } = item.parts;
    button.addEventListener("click", () => this.#toggleHistory(item));
    item.append(element("div", { class: "node-head" }, name, sum, button), problem, charts, gpus);
    this.near.observe(item);
    return item;
  }

  #update(item, { node, sum }) {
    item.node = node;
    item.sum = sum;
    const { parts } = item;
    setText(parts.name, node.name);
    setText(parts.sum, [
      plural(sum.gpus, "GPU"),
      `memory ${bytes(sum.memoryHeld)} of ${bytes(sum.memory)}`,
      `compute ${percent(partOf(sum.computeHeld, sum.compute))}`,
    ].join(" · "));
    setAttribute(parts.button, "aria-label", `last hour of ${node.name}`);
    setText(parts.problem, node.problem ?? "");
    parts.problem.hidden = !node.problem;
    if (item.isNear) this.#draw(item);
    else this.#hold(item);
  }

  #approach(item, isNear) {
    if (item.isNear === isNear) return;
    item.isNear = isNear;
    if (isNear) this.#draw(item);
    else {
      item.lastHeight = item.parts.gpus.offsetHeight;
      this.#hold(item);
      keyed(item.parts.gpus, [], (each) => each, null, null);
    }
  }

  // Keeps the room that its GPUs need, so that nothing moves while one scrolls.
  #hold(item) {
    const { gpus } = item.parts;
    const height = item.lastHeight ? `${item.lastHeight}px` : `calc(${item.sum.gpus} * var(--gpu-height))`;
    if (gpus.style.minHeight !== height) gpus.style.minHeight = height;
  }

  #draw(item) {
    const { gpus } = item.parts;
    gpus.style.minHeight = "";
    const keyOf = (gpu) => `${item.node.name}-${gpu.uuid}`;
    keyed(gpus, item.node.gpus ?? [], keyOf, (gpu) => createGpu(gpu, this.expanded, keyOf(gpu)),
      (row, gpu) => updateGpu(row, gpu, this.words, this.expanded, keyOf(gpu)));
  }

  #toggleHistory(item) {
    const { button, charts } = item.parts;
    const opens = charts.hidden;
    charts.hidden = !opens;
    setAttribute(button, "aria-expanded", String(opens));
    item.history?.stop();
    if (!opens) return;
    setText(charts, "asking the node’s agent …");
    const url = `view?history&node=${encodeURIComponent(item.node.name)}`;
    item.history = poll(url, HISTORY_EVERY_MS, {
      onData: (view) => drawCharts(charts, view.history ?? null, item.sum, `node ${item.node.name}`),
      onTrouble: (text) => setText(charts, `There is no history: ${text}`),
    });
  }
}
