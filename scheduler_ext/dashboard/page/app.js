// The page: asks for the view, and hands its parts to those who draw them.

import { drawCharts } from "./charts.js";
import { setText } from "./elements.js";
import { age, clock } from "./format.js";
import { added, matches, nodeSummary, ordered, waitingMatches, wordsOf } from "./model.js";
import { NodeList } from "./nodes.js";
import { drawTotals, drawWaiting } from "./overview.js";
import { poll } from "./polling.js";

const EVERY_MS = 2500;
const HISTORY_EVERY_MS = 30_000;

const at = (id) => document.getElementById(id);
const list = new NodeList(at("nodes"));
let view = null;
let history = null;
let sums = added([]);
let showsAllWaiting = false;

function draw() {
  if (!view) return;
  const words = wordsOf(at("search").value);
  const nodes = (view.nodes ?? []).map((node) => ({ node, sum: nodeSummary(node) }));
  const waiting = view.waiting ?? [];
  sums = added(nodes.map(({ sum }) => sum));
  drawTotals(at("totals"), sums, nodes.length, waiting.length);

  const shown = ordered(nodes.filter(({ node }) => matches(node, words)), at("sort").value);
  setText(at("nodes-count"), words.length ? `${shown.length} of ${nodes.length}` : String(nodes.length));
  list.show(shown, words);
  at("nothing").hidden = shown.length > 0;
  setText(at("nothing"), nodes.length
    ? "No node, GPU or pod has such a name."
    : "No node reports GPUs yet. See whether the node agent runs on them: kubectl -n aliquot-system get pods");

  const found = waiting.filter((each) => waitingMatches(each, words));
  setText(at("waiting-count"), words.length ? `${found.length} of ${waiting.length}` : String(waiting.length));
  at("waiting-section").hidden = waiting.length === 0;
  drawWaiting(at("waiting"), found, view.taken_at, showsAllWaiting, () => {
    showsAllWaiting = true;
    draw();
  });
  setText(at("version"), view.version ?? "");
}

function drawHistory() {
  if (history) drawCharts(at("history"), history, sums, "the cluster");
}

poll("view", EVERY_MS, {
  onData(told) {
    view = told;
    draw();
    drawHistory();
    document.body.classList.remove("is-stale");
    // Read aloud when it changes, so the time stands apart.
    setText(at("state"), "live");
    setText(at("time"), clock(view.taken_at));
  },
  onTrouble(text, pauseMs) {
    document.body.classList.add("is-stale");
    const old = view ? ` What is shown is from ${clock(view.taken_at)}.` : "";
    setText(at("state"), `No news: ${text}.${old}`);
    setText(at("time"), `next attempt in ${age(pauseMs / 1000)}`);
  },
});

poll("view?history", HISTORY_EVERY_MS, {
  onData(told) {
    history = told.history ?? null;
    drawHistory();
  },
  // The other one says so.
  onTrouble() {},
});

at("search").addEventListener("input", draw);
at("sort").addEventListener("change", draw);
