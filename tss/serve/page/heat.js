"use strict";
// Heat maps: tables of tasks against tasks, with a number and a colour in each cell.

const NEWEST = 48; // tasks of a map; /overlap tells as many
let alike = new Map(); // task -> [earlier task, share of equal gates]

// cellOf(row, column) -> what is known there: text, title, bold, and heat from 0 to 1, undefined for no colour.
function heatMap(table, corner, names, cellOf) {
  const top = make("thead");
  top.append(make("tr"));
  top.rows[0].append(make("th", corner), ...names.map(columnHead));
  const body = make("tbody");
  names.forEach((name, i) => {
    const row = make("tr");
    row.append(rowHead(name, i), ...names.map((_, j) => heatCell(cellOf(i, j))));
    body.append(row);
  });
  table.replaceChildren(top, body);
}

function columnHead(name, i) {
  const head = make("th", String(i + 1));
  head.scope = "col";
  head.title = name;
  head.setAttribute("aria-label", name);
  return head;
}

function rowHead(name, i) {
  const head = make("th");
  head.scope = "row";
  head.title = name;
  head.append(make("b", String(i + 1)), " ", make("bdi", name));
  return head;
}

function heatCell({ text, title, heat, bold }) {
  const cell = make("td", text, heat === undefined ? "muted" : `h${Math.max(0, Math.min(9, Math.floor(10 * heat)))}`);
  cell.classList.toggle("bold", Boolean(bold));
  if (title) cell.title = title;
  return cell;
}

const noMap = (table, why) => table.replaceChildren(make("caption", why, "small muted note"));

function showOverlap({ tasks: names, equal }) {
  alike = new Map();
  names.forEach((name, i) => {
    const before = equal[i].slice(0, i);
    if (i) alike.set(name, [names[before.indexOf(Math.max(...before))], Math.max(...before)]);
  });
  if (names.length < 2) return noMap($("heat"), "Two tasks with gates are needed for this.");
  heatMap($("heat"), "", names, (i, j) => ({
    text: (100 * equal[i][j]).toFixed(0),
    title: `${names[i]} and ${names[j]}: ${percent(equal[i][j])} equal gates`,
    heat: 2 * equal[i][j] - 1,
  }));
}

// The score of each task after each later one. forgets: null if the tasks were not learnt one after another.
function showMatrix(all, forgets) {
  const shown = [...all].sort((a, b) => a.id - b.id).slice(-NEWEST); // a task learnt again stands where its new version does
  const why = {
    true: "With this method later tasks may change earlier ones, and the store has no scores of that: they are unknown (–).",
    false: "The scores below it are equal by hash, not tested again: the method keeps each task in a file that never changes, " +
      "and its hash is checked when it is read.",
    null: "The tasks were learnt together, so there are no others.",
  };
  const part = all.length > shown.length ? `The newest ${shown.length} of ${all.length} tasks. ` : "";
  $("matrix-note").textContent = `${part}Bold on the diagonal: tested when the task was learnt. ${why[forgets]}`;
  $("matrix-note").hidden = !shown.length;
  if (!shown.length) return noMap($("matrix"), "No tasks yet.");
  const names = shown.map((task) => task.name);
  heatMap($("matrix"), "after learning", names, (k, i) => {
    if (i > k) return {};
    const [metric, score] = mainScore(shown[i]);
    const known = score !== null && (i === k || (forgets === false && shown[i].state === "ok"));
    const what = `${names[i]} after ${names[k]}`;
    if (!known) return { text: "–", title: `${what}: unknown` };
    return { text: score.toFixed(0), title: `${what}: ${points(score, metric)}`, heat: score / 100, bold: i === k };
  });
}

function showScales() {
  for (const scale of document.querySelectorAll(".scale")) {
    const colours = Array.from({ length: 10 }, (_, i) => make("i", null, `h${i}`));
    scale.replaceChildren(make("span", scale.dataset.low), ...colours, make("span", scale.dataset.high));
  }
}
