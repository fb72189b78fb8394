"use strict";
// Everything shown is set as text, never as markup: names and texts come from outside.

const SHOWN = 200; // tasks listed at once; a filter finds the others
const $ = (id) => document.getElementById(id);
const chosen = new Set();
let tasks = [];

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

async function ask(path, options) {
  const reply = await fetch(path, options).catch(() => {
    throw new Error("The server cannot be reached.");
  });
  const found = await reply.json().catch(() => ({ error: `the server answered ${reply.status}` }));
  if (!reply.ok) throw Object.assign(new Error(found.error || `the server answered ${reply.status}`), { status: reply.status });
  return found;
}

const size = (bytes) => (bytes < 1e4 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(2)} MB`);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const points = (score, metric) => `${score.toFixed(1)} ${metric.replaceAll("_", "-")}`;
const mainScore = (task) => Object.entries(task.scores)[0] || ["", null];

// The list of tasks.
function matching() {
  const wanted = $("filter").value.trim().toLowerCase();
  return tasks.filter((task) => task.name.toLowerCase().includes(wanted));
}

function showPicker() {
  const found = matching();
  $("picker").replaceChildren(...found.slice(0, SHOWN).map(pick));
  if (!found.length) $("picker").append(make("p", tasks.length ? "No task of that name." : "No tasks yet.", "small muted note"));
  showPicked();
}

function pick(task) {
  const label = make("label");
  const box = make("input");
  box.type = "checkbox";
  box.checked = chosen.has(task.name);
  box.addEventListener("change", () => {
    chosen[box.checked ? "add" : "delete"](task.name);
    showPicked();
  });
  const whole = task.state === "ok";
  label.append(box, make("bdi", task.name), make("small", whole ? task.kind : task.state, whole ? "" : "bad"));
  return label;
}

const showPicked = () => ($("picked").textContent = chosen.size ? `${chosen.size} chosen` : "choose at least one");

function showTasks() {
  $("tasks").tBodies[0].replaceChildren(...(tasks.length ? tasks.slice(0, SHOWN).map(taskRow) : [emptyRow()]));
  $("more").hidden = tasks.length <= SHOWN;
  $("more").textContent = `${tasks.length - SHOWN} more tasks are not listed here.`;
}

function emptyRow() {
  const row = make("tr");
  row.append(make("td", "No tasks yet. They appear here as they are learnt.", "muted"));
  row.cells[0].colSpan = 5;
  return row;
}

function taskRow(task) {
  const row = make("tr");
  const name = make("th");
  name.scope = "row";
  name.append(make("bdi", task.name));
  if (task.version > 1) name.append(make("span", ` version ${task.version}`, "small muted"));
  if (task.beside.length) name.append(make("span", ` together with ${task.beside.join(", ")}`, "small muted"));
  if (task.state !== "ok") name.append(make("span", ` ${task.state}`, "small bad"));
  const [metric, score] = mainScore(task);
  const kind = task.labels ? `${task.kind}, ${task.labels} labels` : task.kind;
  const near = alike.get(task.name);
  const reused = make("td");
  if (near) reused.append(make("bdi", near[0]), make("span", ` ${percent(near[1])}`, "small muted"));
  else reused.textContent = "–";
  const shown = score === null ? "–" : points(score, metric);
  row.append(name, make("td", kind), make("td", size(task.bytes), "num"), make("td", shown, "num"), reused);
  // Where the columns do not fit, each cell stands on a line of its own and says what it is.
  ["on disk", "score", "most equal gates with"].forEach((what, i) => (row.cells[i + 2].dataset.name = what));
  return row;
}

// Asking.
async function send(event) {
  event.preventDefault();
  const [text, pair] = [$("text").value, $("pair").value.trim()];
  $("problem").hidden = true;
  if (!chosen.size || !text.trim()) return complain(chosen.size ? "Type a text first." : "Choose at least one task.");
  $("send").disabled = true;
  $("send").textContent = "Asking …";
  const items = [...chosen].map((task) => (pair ? { task, text, pair } : { task, text }));
  try {
    const found = await answersTo(items);
    $("answers").replaceChildren(...found.map(answer));
  } catch (problem) {
    complain(problem.message);
  } finally {
    $("send").disabled = false;
    $("send").textContent = "Ask";
  }
}

async function answersTo(items) {
  const told = (sent) => ask("predict", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) });
  try {
    return (await told({ items })).answers;
  } catch (problem) {
    if (problem.status !== 422 || (items.length === 1 && !items[0].pair)) throw problem;
  }
  // One task refused the input: the others still answer, those that take one text without the second field.
  const found = [];
  for (const item of items) {
    const failed = (one) => ({ task: item.task, error: one.message });
    const single = (one) => (item.pair ? told({ task: item.task, text: item.text }).catch(() => failed(one)) : failed(one));
    found.push(await told(item).catch(single));
  }
  return found;
}

function complain(message) {
  $("answers").replaceChildren(); // they belong to an earlier question
  $("problem").textContent = message;
  $("problem").hidden = false;
}

function answer(found) {
  const item = make("li");
  const head = make("h3");
  head.append(make("bdi", found.task));
  item.append(head);
  if (found.error) item.append(make("p", found.error, "bad"));
  else if (found.kind === "tagging") item.append(tagged(found));
  else if (found.kind === "generation") item.append(make("blockquote", found.answer || "(nothing)"));
  else item.append(labelled(found));
  if (found.truncated) item.append(make("p", "The text was longer than this task takes, and was cut.", "note"));
  if (found.unfinished) item.append(make("p", "The answer reached its longest length before its end.", "note"));
  return item;
}

function labelled({ answer: label, confidence }) {
  const line = make("div", null, "label");
  const bar = make("span", null, "bar");
  bar.setAttribute("aria-hidden", "true");
  const fill = make("i");
  fill.style.width = `${100 * confidence}%`;
  bar.append(fill);
  line.append(make("b", label), bar, make("span", `${percent(confidence)} sure`, "muted"));
  return line;
}

// Words with BIO tags: each entity becomes one mark with its type and the least sure of its words.
function tagged({ words, answer: tags, confidence }) {
  const line = make("p", null, "tagged");
  const typeOf = (tag) => tag.replace(/^[BI]-/, "");
  const types = [...new Set(tags.filter((tag) => tag !== "O").map(typeOf))].sort();
  for (let i = 0; i < words.length; i++) {
    if (i) line.append(" ");
    if (tags[i] === "O") {
      line.append(words[i]);
      continue;
    }
    const type = typeOf(tags[i]);
    let end = i + 1;
    while (end < words.length && tags[end] === `I-${type}`) end++;
    const mark = make("mark", words.slice(i, end).join(" "), `e${types.indexOf(type) % 6}`);
    mark.append(make("small", `${type} ${percent(Math.min(...confidence.slice(i, end)), 0)}`));
    line.append(mark);
    i = end - 1;
  }
  if (!types.length) line.append(make("span", "  (no entities)", "muted small"));
  return line;
}

// Looking.
function showLoad(load) {
  const most = Math.max(4, ...load.answers_each_second);
  const line = load.answers_each_second.map((n, i) => `${((300 * i) / 59).toFixed(1)} ${(60 - (54 * n) / most).toFixed(1)}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M${line.join("L")}`);
  $("spark").replaceChildren(path);
  $("most").textContent = Math.max(...load.answers_each_second);
  const shown = (value, unit = "") => (value === null ? "–" : `${value}${unit}`);
  const last = load.answers_each_second.slice(-11, -1).reduce((sum, n) => sum + n, 0) / 10;
  const numbers = {
    "answers a second": last.toFixed(1),
    "waiting now": load.waiting,
    "half answered within": shown(load.p50_ms && Math.round(load.p50_ms), " ms"),
    "95 % within": shown(load.p95_ms && Math.round(load.p95_ms), " ms"),
    "texts a batch": shown(load.rows_a_batch),
    "tasks a batch": shown(load.tasks_a_batch),
    "model busy": percent(load.busy, 0),
    "refused": load.refused,
    "tasks in memory": load.in_memory,
  };
  $("numbers").replaceChildren(
    ...Object.entries(numbers).map(([name, value]) => {
      const pair = make("div");
      pair.append(make("dt", name), make("dd", String(value)));
      return pair;
    }),
  );
  const waiting = tasks.length ? "loading the model …" : "waiting for the first task";
  say(load.ready ? `ready · ${tasks.length} task${tasks.length === 1 ? "" : "s"}` : waiting, load.ready ? "good" : "");
}

function say(text, mood) {
  if ($("state").textContent === text) return; // a screen reader need not hear it again
  $("state").textContent = text;
  $("state").className = `pill ${mood}`;
}

let known = null;
async function followTasks() {
  const told = await ask("tasks");
  const found = told.tasks;
  const now = JSON.stringify(told);
  if (now === known) return;
  const first = known === null;
  const files = found.map((task) => `${task.name}/${task.version}`).join("\n");
  const before = tasks.map((task) => `${task.name}/${task.version}`).join("\n");
  known = now;
  tasks = found;
  for (const name of chosen) if (!found.some((task) => task.name === name)) chosen.delete(name);
  showPicker();
  showTasks();
  showMatrix(found, told.forgets);
  if (first || files !== before) {
    showOverlap(await ask("overlap"));
    showTasks();
  }
}

async function look() {
  if (!document.hidden) {
    try {
      await followTasks();
      showLoad(await ask("load"));
    } catch (problem) {
      say(problem.message, "bad");
    }
  }
  setTimeout(look, 2000);
}

$("form").addEventListener("submit", send);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("filter").addEventListener("input", showPicker);
$("all").addEventListener("click", () => {
  for (const task of matching().slice(0, SHOWN)) chosen.add(task.name);
  showPicker();
});
$("none").addEventListener("click", () => (chosen.clear(), showPicker()));
showScales();
look();
