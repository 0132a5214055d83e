// One GPU: two bars cut into its pods' parts, and a table of them on demand.

import { element, keyed, setAttribute, setText, setWidth } from "./elements.js";
import { bytes, percent, plural } from "./format.js";
import { asksFor, gpuSummary, heldBytes, podName } from "./model.js";

const COLOURS = 8;

export function createGpu(gpu, expanded, key) {
  const row = element("div", { class: "gpu", "data-uuid": gpu.uuid });
  const parts = {
    title: element("span", { class: "gpu-name" }),
    model: element("span", { class: "gpu-model" }),
    unusable: element("p", { class: "unusable" }),
    memory: element("div", { class: "bar memory", role: "img" }),
    memoryText: element("span", { class: "bar-text" }),
    compute: element("div", { class: "bar compute", role: "img" }),
    computeText: element("span", { class: "bar-text" }),
    button: element("button", { type: "button", class: "more" }),
    table: element("div", { class: "slices", hidden: true, id: `slices-${key}` }),
  };
  setAttribute(parts.button, "aria-controls", parts.table.id);
  parts.button.addEventListener("click", () => {
    if (expanded.has(key)) expanded.delete(key);
    else expanded.add(key);
    row.redraw();
  });
  row.append(
    element("div", { class: "gpu-head" }, parts.title, parts.model, parts.button),
    parts.unusable,
    element("div", { class: "line" }, element("span", { class: "what" }, "memory"), parts.memory,
      parts.memoryText),
    element("div", { class: "line" }, element("span", { class: "what" }, "compute"), parts.compute,
      parts.computeText),
    parts.table,
  );
  row.parts = parts;
  return row;
}

export function updateGpu(row, gpu, words, expanded, key) {
  row.redraw = () => updateGpu(row, gpu, words, expanded, key);
  const { parts } = row;
  const slices = gpu.slices ?? [];
  const sums = gpuSummary(gpu);
  setText(parts.title, `GPU ${gpu.index}`);
  setText(parts.model, gpu.model);
  setText(parts.unusable, gpu.unusable ? `Nothing new starts here: ${gpu.unusable}` : "");
  setAttribute(parts.unusable, "hidden", !gpu.unusable);
  row.classList.toggle("is-unusable", Boolean(gpu.unusable));

  // What is held beyond the whole (compute may be over-committed) still has to fit into the bar.
  const memoryAll = Math.max(sums.memory, sums.memoryHeld) || 1;
  const computeAll = Math.max(sums.compute, sums.computeHeld) || 1;
  drawBar(parts.memory, slices, words, (each) => ({
    part: heldBytes(gpu, each) / memoryAll,
    used: ratio(each.memory_used_bytes, heldBytes(gpu, each)),
    text: `${podName(each)}: ${memoryOf(gpu, each)}`,
  }));
  drawBar(parts.compute, slices, words, (each) => ({
    part: (each.compute_percent ?? 0) / computeAll,
    used: ratio(each.compute_used_percent, each.compute_percent ?? 0),
    text: `${podName(each)}: ${computeOf(each)}`,
  }));
  const memoryText = `${bytes(sums.memoryHeld)} of ${bytes(sums.memory)}`;
  const computeText = `${percent(sums.computeHeld)} of ${percent(sums.compute)}`;
  setText(parts.memoryText, `${memoryText}${used(sums.memoryUsed, bytes)}`);
  setText(parts.computeText, `${computeText}${used(sums.computeUsed, percent)}`);
  setAttribute(parts.memory, "aria-label", `memory: ${parts.memoryText.textContent}`);
  setAttribute(parts.compute, "aria-label", `compute: ${parts.computeText.textContent}`);

  const isOpen = expanded.has(key) && slices.length > 0;
  setText(parts.button, slices.length ? plural(slices.length, "container") : "no container");
  setAttribute(parts.button, "aria-expanded", String(isOpen));
  parts.button.disabled = slices.length === 0;
  parts.table.hidden = !isOpen;
  if (isOpen) drawTable(parts.table, gpu, slices, words);
  else if (parts.table.firstChild) clear(parts.table);
}

function drawBar(bar, slices, words, measure) {
  keyed(bar, numbered(slices), ({ key }) => key, createSlice, (child, { slice }) => {
    const { part, used: usedPart, text } = measure(slice);
    setWidth(child, 100 * part);
    setWidth(child.firstChild, 100 * Math.min(1, usedPart));
    setText(child.lastChild, slice.pod);
    setAttribute(child, "title", text);
    const planned = slice.is_running === false;
    const classes = ["slice", `colour-${colourOf(podName(slice))}`];
    if (planned) classes.push("planned");
    if (usedPart > 1.005) classes.push("borrows");
    if (words.length && asksFor(slice, words)) classes.push("found");
    setAttribute(child, "class", classes.join(" "));
  });
}

function createSlice() {
  return element("span", { class: "slice" }, element("span", { class: "use" }),
    element("span", { class: "name" }));
}

const COLUMNS = ["pod", "container", "policy", "memory", "refused", "compute", "held back", ""];

function drawTable(place, gpu, slices, words) {
  if (!place.firstChild) {
    const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
    place.append(element("table", {}, element("thead", {}, head), element("tbody")));
  }
  const body = place.querySelector("tbody");
  const create = () => element("tr", {}, element("th", { scope: "row" }),
    ...COLUMNS.slice(1).map((name) => element("td", { "data-name": name })));
  keyed(body, numbered(slices), ({ key }) => key, create, (row, { slice }) => {
    const texts = [
      podName(slice), slice.container, slice.policy ?? "fixed", memoryOf(gpu, slice),
      told(slice.memory_refusals, String), computeOf(slice),
      told(slice.throttled_percent, percent), notes(slice),
    ];
    texts.forEach((text, place) => setText(row.children[place], text));
    row.classList.toggle("found", asksFor(slice, words));
  });
}

function clear(place) {
  place.replaceChildren();
}

function memoryOf(gpu, slice) {
  const cap = slice.memory_limit_bytes ?? null;
  const whole = cap === null ? `the whole GPU, ${bytes(gpu.memory_advertised_bytes)}` : bytes(cap);
  if (!Number.isFinite(slice.memory_used_bytes)) return whole;
  const peak = Number.isFinite(slice.memory_peak_bytes) ? `, at most ${bytes(slice.memory_peak_bytes)}` : "";
  return `${bytes(slice.memory_used_bytes)} of ${whole}${peak}`;
}

function computeOf(slice) {
  const share = percent(slice.compute_percent ?? 0);
  if (!Number.isFinite(slice.compute_used_percent)) return share;
  return `${percent(slice.compute_used_percent)} of ${share}`;
}

function notes(slice) {
  const found = [];
  if (slice.is_running === false) found.push("planned, not started");
  if (slice.shim_missing) found.push(`${plural(slice.shim_missing, "process", "processes")} without the shim`);
  return found.join("; ");
}

// Two containers of one name cannot be on one GPU, but what we are told might be wrong.
function numbered(slices) {
  const seen = new Map();
  return slices.map((slice) => {
    const name = `${podName(slice)}/${slice.container}`;
    const count = (seen.get(name) ?? 0) + 1;
    seen.set(name, count);
    return { slice, key: count > 1 ? `${name}#${count}` : name };
  });
}

function used(value, format) {
  return value === null ? "" : `, ${format(value)} used`;
}

function told(value, format) {
  return Number.isFinite(value) ? format(value) : "";
}

function ratio(value, of) {
  return Number.isFinite(value) && of > 0 ? value / of : 0;
}

// A pod has the same colour on every GPU and on every visit.
function colourOf(name) {
  let hash = 2166136261;
  for (let place = 0; place < name.length; place += 1) {
    hash = Math.imul(hash ^ name.charCodeAt(place), 16777619) >>> 0;
  }
  return ((hash ^ (hash >>> 15)) >>> 0) % COLOURS;
}
