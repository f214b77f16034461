// The page: a list on the left, one thing of it on the right. Texts are set as text, never as HTML.
"use strict";

const $ = id => document.getElementById(id);
const TABS = { timeline: "Time and source", kernels: "Kernels", passes: "Passes", steps: "Steps",
               memory: "Memory" };
const state = { tab: "timeline", at: 0, view: "", overview: null, shown: null, boxed: [] };
const cache = new Map();
const drawing = new Drawing($("graph"), i => tellBox(i));

async function ask(path) {
  const whole = `data/${path}`;
  if (!cache.has(whole)) {
    cache.set(whole, fetch(whole).then(async answer => {
      const value = await answer.json();
      if (!answer.ok) throw new Error(value.error);
      return value;
    }));
  }
  return cache.get(whole);
}

const own = part => ask(`${$("functions").value}/${part}`);

function make(tag, text, parent, kind) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (kind) element.className = kind;
  if (parent) parent.append(element);
  return element;
}

const show = (id, on) => $(id).classList.toggle("hidden", !on);
const say = text => { $("status").textContent = text; };
const size = n => n < 1e3 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} KB`
                                               : `${(n / 1e6).toFixed(1)} MB`;  // as in show()

// ---- the list

const LISTS = {
  passes: () => {
    let of = null;
    return state.overview.passes.map((p, i) => {
      const head = p.of !== of ? p.of || "the function" : null;
      of = p.of;
      return { head, text: p.name, note: `${p.ms.toFixed(1)} ms`, same: !p.changed, i };
    });
  },
  kernels: () => state.overview.kernels.map((k, i) => ({ text: k.name, note: k.line, i })),
  steps: () => state.overview.steps.map((s, i) => ({ text: s.name, note: "", i })),
  timeline: () => state.files.map((f, i) => ({ text: f.file, note: "", i })),
  memory: () => [{ text: "buffers over commands", note: "", i: 0 }],
};

function list() {
  const rows = LISTS[state.tab]();
  $("list").replaceChildren();
  for (const row of rows) {
    if (row.head) make("h3", row.head, $("list"));
    const element = make("div", null, $("list"), "row" + (row.same ? " same" : ""));
    element.dataset.i = row.i;
    make("span", row.text, element).title = row.text;
    make("small", row.note, element).title = row.note;
    element.onclick = () => go(state.tab, row.i);
  }
  markRows();
}

function markRows() {
  const words = $("search").value.trim().toLowerCase();
  for (const row of $("list").querySelectorAll(".row")) {
    row.classList.toggle("on", Number(row.dataset.i) === state.at);
    row.classList.toggle("hit", words !== "" && row.textContent.toLowerCase().includes(words));
  }
  $("list").querySelector(".row.on")?.scrollIntoView({ block: "nearest" });
}

// ---- what is shown

const VIEWS = {
  passes: async i => {
    const ran = await own(`pass/${i}`);
    return {
      head: [`${ran.name}  ${ran.of}`,
             ran.rules.map(r => `${r.name}: ${r.count}`).join(",  "), ...ran.why],
      views: { graph: () => graph(ran.graph), changes: () => changes(ran.before, ran.after),
               after: () => text(ran.after), before: () => text(ran.before) } };
  },
  kernels: async i => {
    const kernel = await own(`kernel/${i}`), row = state.overview.kernels[i];
    const views = { table: () => kernelTable() };
    for (const name of kernel.levels) views[name] = () => later(own(`${name}/${i}`));
    views.graph = () => graph(kernel.graph);
    return { head: [row.name, `${row.line}   ${row.loops}   ${row.flops.toLocaleString()} FLOP   ` +
                    `${size(row.bytes)}   ${row.schedule}   (${row.chosen})`], views };
  },
  steps: async i => {
    const row = state.overview.steps[i], step = await own(`step/${row.name}`);
    return { head: [row.name, row.times], views: { text: () => text(step.text) } };
  },
  timeline: async i => {
    const file = state.files[i] || { file: "no source", lines: [] };
    let found;
    try {
      found = await own("timeline");
    } catch (error) {
      return { head: [file.file, `no times: ${error.message}`],
               views: { lines: () => source(file, []) } };
    }
    const end = found.runs.at(-1)?.stop || 0;
    const most = Math.max(0, ...found.runs.map(r => r.living));
    const busy = Array.from({ length: found.workers }, (_, i) => found.parts.reduce(
      (sum, p) => p[1] === i ? sum + p[3] - p[2] : sum, 0));
    return { head: [`${found.runs.length.toLocaleString()} kernels in ${ms(end)}` +
                    (found.left_out ? `, and ${found.left_out.toLocaleString()} more` : ""),
                    [...busy.map((ns, i) => `worker ${i}: busy for ${ms(ns)}`),
                     `intermediate buffers: up to ${size(most)} in use at once`].join(",  "),
                    "a colour is a line of the source; drag to pan, wheel to zoom into time, " +
                    "click a box or a line"],
             views: { time: () => { timeMap(found); source(file, found.runs); },
                      table: () => timeTable(found) } };
  },
  memory: async () => {
    const memory = await own("memory");
    return { head: [`${size(memory.arena)} of intermediate buffers, ` +
                    `${memory.commands.length} commands`,
                    "commands to the right, addresses downwards; click a buffer"],
             views: { map: () => memoryMap(memory), table: () => memoryTable(memory) } };
  },
};

// A text that is made when somebody wants to read it.
async function later(found) {
  const { shown, view } = state;
  say("…");
  let body;
  try { body = (await found).text; } catch (error) { body = error.message; }
  if (state.shown !== shown || state.view !== view) return; // the reader went on
  text(body);
  search();
  say("");
  document.body.dataset.read = `${state.tab}/${state.at}/${view}`;
}

async function go(tab, i) {
  const start = performance.now();
  if (tab === "timeline") state.files = await own("source");
  const changed = tab !== state.tab || !$("list").children.length;
  Object.assign(state, { tab, at: i });
  for (const button of $("tabs").children)
    button.classList.toggle("on", button.dataset.tab === tab);
  if (changed) list(); else markRows();
  say("…");
  let shown;
  try {
    shown = await VIEWS[tab](i);
  } catch (error) {
    shown = { head: ["This part cannot be shown", error.message], views: {} };
  }
  if (state.tab !== tab || state.at !== i) return; // the reader went on
  state.shown = shown;
  $("head").replaceChildren();
  shown.head.forEach((line, n) => line && make(n ? "p" : "b", line, $("head")));
  $("views").replaceChildren();
  for (const name of Object.keys(shown.views)) {
    const button = make("button", name, $("views"));
    button.onclick = () => open(name);
  }
  open(shown.views[state.view] ? state.view : Object.keys(shown.views)[0]);
  say(`${(performance.now() - start).toFixed(0)} ms`);
  document.body.dataset.ready = `${tab}/${i}`;
}

function open(name) {
  for (const button of $("views").children)
    button.classList.toggle("on", button.textContent === name);
  state.boxed = [];
  show("graph", false);
  show("text", true);
  $("detail").classList.remove("both");
  $("text").replaceChildren();
  if (!name) return;
  state.view = name;
  state.shown.views[name]();
  search();
}

function lines(rows) {
  const pre = make("pre", null, $("text"));
  for (const [line, kind] of rows) make("div", line, pre, kind);
}

const text = body => lines(body.split("\n").map(line => [line]));

function changes(before, after) {
  const olds = new Set(before.split("\n")), news = new Set(after.split("\n"));
  const gone = before.split("\n").filter(line => line && !news.has(line));
  lines([...gone.map(line => ["- " + line, "gone"]),
         ...after.split("\n").map(line => ["  " + line, line && !olds.has(line) ? "new" : ""])]);
}

function graph(found) {
  if (found.left_out) {
    text(`This graph has ${found.left_out.toLocaleString()} nodes: read it as text.`);
    return;
  }
  boxes(found.nodes.map(n => [n.op, n.type, n.detail, n.line].filter(Boolean).join("   ")),
        nodeBoxes(found), found.edges);
}

function memoryMap(memory) {
  boxes(memory.buffers.map(b => `${b.name}: ${size(b.bytes)} at ${b.offset.toLocaleString()}, ` +
                                `commands ${b.first} to ${b.last}`), memoryBoxes(memory), []);
}

function timeMap(found) {
  const { boxes: places, told } = timeBoxes(found, r => [
    r.name, r.line, `${ms(r.stop - r.start)} from ${ms(r.start)} on`, size(r.bytes),
    `${(r.flops / Math.max(1, r.stop - r.start)).toFixed(1)} GFLOP/s`,
    `${size(r.living)} of intermediate buffers in use`].filter(Boolean).join("   "),
    $("detail").clientWidth);
  boxes(told, places, [], true);
}

function timeTable(found) {
  table(["kernel", "line", "begins, us", "takes, us", "bytes", "FLOP", "bytes in use"],
        found.runs.map(r => [r.name, r.line, r.start / 1e3, (r.stop - r.start) / 1e3, r.bytes,
                             r.flops, r.living]));
}

function boxes(told, places, edges, lanes = false) {
  state.boxed = told;
  show("text", false);
  show("graph", true);
  drawing.show(places, edges, lanes);
}

function tellBox(i) {
  if (i >= 0) say(state.boxed[i]);
  const line = drawing.boxes[i]?.line;
  for (const row of $("text").querySelectorAll("pre div"))
    row.classList.toggle("chosen", line !== undefined && row.dataset.line === line);
  $("text").querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
}

function table(heads, rows, chosen) {
  const whole = make("table", null, $("text")), head = make("tr", null, make("thead", null, whole));
  const body = make("tbody", null, whole);
  const order = rows.map((_, i) => i);
  heads.forEach((name, k) => {
    const number = rows.some(row => typeof row[k] === "number");
    make("th", name, head, number ? "number" : "").onclick = () => {
      order.sort((a, b) => number ? rows[b][k] - rows[a][k] : rows[a][k] < rows[b][k] ? -1 : 1);
      fill();
    };
  });
  const fill = () => {
    body.replaceChildren();
    for (const i of order) {
      const line = make("tr", null, body);
      for (const cell of rows[i])
        make("td", typeof cell === "number" ? cell.toLocaleString() : cell, line,
             typeof cell === "number" ? "number" : "");
      if (chosen) line.onclick = () => chosen(i);
    }
    search();
  };
  fill();
}

function kernelTable() {
  table(["kernel", "line", "loops", "FLOP", "bytes", "schedule", "chosen by"],
        state.overview.kernels.map(k => [k.name, k.line, k.loops, k.flops, k.bytes, k.schedule, k.chosen]),
        i => { state.view = "tiled"; go("kernels", i); });
}

function memoryTable(memory) {
  table(["written by", "bytes", "offset", "first command", "last command"],
        memory.buffers.map(b => [b.name, b.bytes, b.offset, b.first, b.last]));
}

// The lines of a file, below the timeline: the colour of each, and the time of its kernels.
function source(file, runs) {
  const pre = make("pre", null, $("text")), times = new Map();
  for (const r of runs) times.set(r.line, (times.get(r.line) || 0) + r.stop - r.start);
  const most = Math.max(1, ...times.values());
  show("text", true);
  $("detail").classList.toggle("both", runs.length > 0);
  let last = 0;
  for (const line of file.lines) {
    if (last && line.number > last + 1) make("div", "…", pre);
    last = line.number;
    const name = `${file.file}:${line.number}`, ns = times.get(name) || 0;
    const row = make("div", null, pre, line.nodes ? "made" : "");
    row.dataset.line = name;
    make("i", line.number, row);
    const bar = make("i", null, row, "time");
    if (ns) {
      const fill = make("b", null, bar);
      fill.style.background = lineHue(name);
      fill.style.width = `${Math.max(4, 100 * ns / most)}%`;
      make("span", `${(ns / 1e3).toFixed(1)} us`, bar);
    } else if (line.nodes) {
      make("span", `${line.nodes} node${line.nodes > 1 ? "s" : ""}`, bar);
    }
    row.append(line.text);
    if (line.kernels.length) row.title = line.kernels.join("\n");
    row.onclick = () => {
      drawing.hits = new Set(drawing.boxes.flatMap((b, i) => b.line === name ? [i] : []));
      drawing.draw();
    };
  }
}

// ---- searching, keys

function search() {
  const words = $("search").value.trim().toLowerCase();
  markRows();
  let hits = 0;
  for (const line of $("text").querySelectorAll("pre div, tbody tr")) {
    const hit = words !== "" && line.textContent.toLowerCase().includes(words);
    line.classList.toggle("hit", hit);
    if (hit && hits++ === 0) line.scrollIntoView({ block: "center" });
  }
  if (hits) $("text").scrollLeft = 0;
  const found = words === "" ? [] :
    state.boxed.flatMap((text, i) => text.toLowerCase().includes(words) ? [i] : []);
  drawing.hits = new Set(found);
  if (found.length) drawing.center(found[0]); else drawing.draw();
  $("found").textContent = words === "" ? "" : `${hits + found.length} found`;
}

document.addEventListener("keydown", e => {
  if (e.target === $("search")) {
    if (e.key === "Escape") $("search").blur();
    return;
  }
  if (e.key === "/") { e.preventDefault(); $("search").focus(); }
  const count = LISTS[state.tab]().length;
  if (e.key === "ArrowDown" || e.key === "j") go(state.tab, Math.min(count - 1, state.at + 1));
  if (e.key === "ArrowUp" || e.key === "k") go(state.tab, Math.max(0, state.at - 1));
});
$("search").addEventListener("input", search);

async function start(tab) {
  say("making the passes again for reading …");
  state.overview = await own("overview");
  $("title").textContent = state.overview.title.replace(/(\d+) bytes/g, (_, n) => size(Number(n)));
  $("title").title = $("title").textContent;
  $("list").replaceChildren();
  await go(tab, 0);
}

async function begin() {
  const names = await ask("functions");
  names.forEach((name, i) => { make("option", name, $("functions")).value = i; });
  $("functions").onchange = () => start(state.tab);
  for (const [tab, name] of Object.entries(TABS)) {
    const button = make("button", name, $("tabs"));
    button.dataset.tab = tab;
    button.onclick = () => go(tab, 0);
  }
  await start("timeline");
}

begin().catch(error => say(String(error)));
