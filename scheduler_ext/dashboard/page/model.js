// What is computed from a view before anything of it is drawn. Nothing here knows the page.

const number = (value) => (Number.isFinite(value) ? Math.max(0, value) : 0);

// What a slice takes of its GPU; without a limit it has all of it.
export function heldBytes(gpu, slice) {
  const limit = slice.memory_limit_bytes;
  return limit === null || limit === undefined ? number(gpu.memory_advertised_bytes) : number(limit);
}

export function gpuSummary(gpu) {
  const slices = gpu.slices ?? [];
  const memory = number(gpu.memory_advertised_bytes);
  const compute = number(gpu.compute_advertised_percent ?? 100);
  return {
    gpus: 1,
    unusable: gpu.unusable ? 1 : 0,
    memory,
    compute,
    memoryHeld: sum(slices, (each) => heldBytes(gpu, each)),
    computeHeld: sum(slices, (each) => number(each.compute_percent)),
    memoryUsed: known(gpu.memory_used_bytes) ?? sumKnown(slices, "memory_used_bytes"),
    computeUsed: known(gpu.utilization_percent) ?? sumKnown(slices, "compute_used_percent"),
    slices: slices.length,
  };
}

export function nodeSummary(node) {
  return added((node.gpus ?? []).map(gpuSummary));
}

export function added(summaries) {
  const all = {
    gpus: 0, unusable: 0, memory: 0, compute: 0, memoryHeld: 0, computeHeld: 0,
    memoryUsed: null, computeUsed: null, slices: 0,
  };
  for (const each of summaries) {
    for (const name of Object.keys(all)) {
      if (each[name] !== null) all[name] = (all[name] ?? 0) + each[name];
    }
  }
  return all;
}

// Every word has to be found somewhere in the node: its name, a model, a uuid, a pod.
export function matches(node, words) {
  return words.every((word) => contains(node.name, word) || (node.gpus ?? []).some(
    (gpu) => contains(gpu.model, word) || contains(gpu.uuid, word)
      || (gpu.slices ?? []).some((slice) => contains(podName(slice), word))));
}

// Whether the words ask for this pod, and not only for its node.
export function asksFor(slice, words) {
  return words.length > 0 && words.some((word) => contains(podName(slice), word));
}

export function waitingMatches(waiting, words) {
  return words.every((word) => contains(podName(waiting), word));
}

export function podName(each) {
  return `${each.namespace}/${each.pod}`;
}

export function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

const ORDERS = {
  "memory-free": ({ sum: each }) => each.memoryHeld - each.memory,
  "memory-used": ({ sum: each }) => -(each.memoryUsed ?? -1),
  "compute-free": ({ sum: each }) => each.computeHeld - each.compute,
  "compute-used": ({ sum: each }) => -(each.computeUsed ?? -1),
  problems: ({ node, sum: each }) => -(each.unusable * 2 + (node.problem ? 1 : 0)),
};

// Nodes with their sums, in the order that was asked for; equals by name, gpu-2 before gpu-10.
export function ordered(shown, by) {
  const rank = ORDERS[by] ?? (() => 0);
  return shown
    .map((each) => ({ each, rank: rank(each) }))
    .sort((one, other) => one.rank - other.rank || names.compare(one.each.node.name, other.each.node.name))
    .map(({ each }) => each);
}

const names = new Intl.Collator("en", { numeric: true });

function contains(text, word) {
  return (text ?? "").toLowerCase().includes(word);
}

function known(value) {
  return Number.isFinite(value) ? Math.max(0, value) : null;
}

function sum(items, valueOf) {
  return items.reduce((total, each) => total + valueOf(each), 0);
}

function sumKnown(items, name) {
  const found = items.map((each) => known(each[name])).filter((value) => value !== null);
  return found.length ? sum(found, (value) => value) : null;
}
