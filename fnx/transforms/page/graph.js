// Drawings on the canvas: a graph in layers, rectangles of memory, lanes over time. Drag to pan,
// wheel to zoom; of lanes only the time.
"use strict";

const WIDTH = 150, HEIGHT = 64, BOX = 132, TALL = 40; // of a node's place, and of its box

class Drawing {
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told; // called with the node under a click, or null
    this.context = canvas.getContext("2d");
    this.boxes = []; this.edges = []; this.hits = new Set(); this.chosen = -1;
    this.x = 0; this.y = 0; this.scale = 1;
    this.lanes = false; this.stretch = 1; // of x beside y
    this.pending = false;
    canvas.addEventListener("pointerdown", e => this.down(e));
    canvas.addEventListener("pointermove", e => this.move(e));
    canvas.addEventListener("pointerup", e => this.up(e));
    canvas.addEventListener("wheel", e => this.wheel(e), { passive: false });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // boxes: {x, y, w, h, title, lines, color}; edges: [from, to]
  show(boxes, edges, lanes = false) {
    this.lanes = lanes; this.stretch = 1;
    this.boxes = boxes; this.edges = edges; this.hits = new Set(); this.chosen = -1;
    this.fit();
  }

  fit() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!this.boxes.length) { this.draw(); return; }
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const b of this.boxes) {
      left = Math.min(left, b.x); right = Math.max(right, b.x + b.w);
      top = Math.min(top, b.y); bottom = Math.max(bottom, b.y + b.h);
    }
    const high = clientHeight / (bottom - top + 40);
    const whole = this.lanes ? high : Math.min(clientWidth / (right - left + 40), high);
    this.scale = Math.min(this.lanes ? 1 : 1.2, Math.max(whole, 0.35));
    if (this.lanes) this.stretch = clientWidth / (right - left + 20) / this.scale;
    this.x = clientWidth / 2 - this.scale * this.stretch * (left + right) / 2;
    this.y = this.scale > whole || this.lanes ? 10 - this.scale * top
                                : clientHeight / 2 - this.scale * (top + bottom) / 2;
    this.draw();
  }

  center(i) {
    const b = this.boxes[i], { clientWidth, clientHeight } = this.canvas;
    this.scale = Math.max(this.scale, 0.6);
    this.x = clientWidth / 2 - this.scale * this.stretch * (b.x + b.w / 2);
    this.y = clientHeight / 2 - this.scale * (b.y + b.h / 2);
    this.chosen = i;
    this.draw();
  }

  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }

  paint() {
    const { canvas, context: c, scale } = this, ratio = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth, high = canvas.clientHeight;
    if (!wide) return;
    canvas.width = wide * ratio; canvas.height = high * ratio;
    const style = getComputedStyle(document.documentElement);
    const color = name => style.getPropertyValue(name).trim();
    const fore = color("--fore"), soft = color("--soft"), accent = color("--accent");
    const fills = { new: color("--new"), plain: color("--back"), hit: color("--mark"),
                    quiet: color("--line") };
    c.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * this.x, ratio * this.y);
    const left = -this.x / scale, top = -this.y / scale;
    const right = left + wide / scale, bottom = top + high / scale;
    c.lineWidth = 1; c.strokeStyle = soft; c.globalAlpha = 0.55;
    c.beginPath();
    for (const [from, to] of this.edges) {
      const a = this.boxes[from], b = this.boxes[to];
      const x1 = a.x + a.w / 2, y1 = a.y + a.h, x2 = b.x + b.w / 2, y2 = b.y;
      if (Math.max(x1, x2) < left || Math.min(x1, x2) > right || y2 < top || y1 > bottom) continue;
      c.moveTo(x1, y1);
      if (scale < 0.25) c.lineTo(x2, y2);
      else c.bezierCurveTo(x1, y1 + 18, x2, y2 - 18, x2, y2);
    }
    c.stroke();
    c.globalAlpha = 1; c.textBaseline = "middle";
    this.boxes.forEach((b, i) => {
      const x = b.x * this.stretch, w = b.w * this.stretch;
      if (x > right || x + w < left || b.y > bottom || b.y + b.h < top) return;
      const hit = this.hits.has(i), ink = hit || fills[b.color] ? fore : "#1d2430"; // hues are light
      c.fillStyle = hit ? fills.hit : fills[b.color] || b.color;
      c.strokeStyle = hit || i === this.chosen ? accent : soft;
      c.lineWidth = hit || i === this.chosen ? 3 : 1;
      c.fillRect(x, b.y, w, b.h);
      c.strokeRect(x, b.y, w, b.h);
      if (scale * b.h < 9 || scale * w < 12) return;
      c.save();
      c.beginPath(); c.rect(x, b.y, w, b.h); c.clip();
      const lines = b.lines.filter(Boolean), step = 15;
      const size = lines.length ? 13 : 11 / scale; // a lone name stays as large in a small window
      c.fillStyle = ink; c.font = `600 ${size}px system-ui, sans-serif`;
      const write = (text, y) => { // what is too long begins at the left, so that it can be read
        const from = Math.max(x, left) + 4 / scale, room = x + w - from - 2 / scale;
        const long = this.lanes || c.measureText(text).width > room;
        c.textAlign = long ? "left" : "center";
        c.fillText(fitted(c, text, room), long ? from : x + w / 2, y);
      };
      let y = b.y + b.h / 2 - step * lines.length / 2;
      write(b.title, y);
      c.fillStyle = soft; c.font = "11px ui-monospace, monospace";
      for (const line of lines) write(line, y += step);
      c.restore();
    });
  }

  at(e) {
    const box = this.canvas.getBoundingClientRect();
    const x = (e.clientX - box.left - this.x) / this.scale / this.stretch;
    const y = (e.clientY - box.top - this.y) / this.scale;
    return this.boxes.findIndex(b => x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h);
  }

  down(e) {
    this.canvas.setPointerCapture(e.pointerId);
    this.drag = { x: e.clientX, y: e.clientY, left: this.x, top: this.y, moved: false };
  }

  move(e) {
    if (!this.drag) return;
    const dx = e.clientX - this.drag.x, dy = e.clientY - this.drag.y;
    this.drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    this.x = this.drag.left + dx; this.y = this.drag.top + dy;
    this.draw();
  }

  up(e) {
    if (this.drag && !this.drag.moved) {
      this.chosen = this.at(e);
      this.told(this.chosen);
      this.draw();
    }
    this.drag = null;
  }

  wheel(e) {
    e.preventDefault();
    const box = this.canvas.getBoundingClientRect();
    const x = e.clientX - box.left, y = e.clientY - box.top;
    if (this.lanes) {
      const stretch = Math.min(1e4, Math.max(0.5, this.stretch * Math.exp(-e.deltaY / 400)));
      this.x = x - (x - this.x) * stretch / this.stretch;
      this.stretch = stretch;
      this.draw();
      return;
    }
    const scale = Math.min(4, Math.max(0.02, this.scale * Math.exp(-e.deltaY / 400)));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.draw();
  }
}

const ms = ns => ns < 1e5 ? `${(ns / 1e3).toFixed(2)} us` : `${(ns / 1e6).toFixed(3)} ms`;
const shortened = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

// The text, or as much of it as the room holds, with an ellipsis; nothing below three characters.
function fitted(context, text, room) {
  let n = text.length;
  while (n > 2 && context.measureText(shortened(text, n)).width > room) n--;
  return n > 2 || text.length < 3 ? shortened(text, n) : "";
}

function nodeBoxes(graph) {
  return graph.nodes.map(n => ({
    x: n.x * WIDTH, y: n.y * HEIGHT, w: BOX, h: TALL, title: n.op,
    lines: [shortened(n.type.replaceAll(", ", ","), 18)],
    color: n.new ? "new" : "plain" }));
}

const HUES = ["#8fb8de", "#e3c48f", "#9fd3a8", "#d8a7c4", "#b4a7e0", "#e0a797", "#8fd0cf", "#c9cf7f",
              "#f0a8a8", "#a9b7c6"];
const hues = new Map(); // of source lines, in the order of their kernels
const lineHue = line => hues.get(line) || hues.set(line, HUES[hues.size % HUES.length]).get(line);

// Buffers of the arena: commands to the right, addresses downwards.
function memoryBoxes(memory) {
  const step = 1000 / Math.max(1, memory.commands.length), high = 600, most = Math.max(1, memory.arena);
  return memory.buffers.map((b, i) => ({
    x: b.first * step, y: b.offset / most * high, w: (b.last - b.first + 1) * step,
    h: Math.max(1.5, b.bytes / most * high), title: b.name, lines: [], color: HUES[i % HUES.length] }));
}

// Time to the right: ticks, a lane of kernels, a lane of each worker, below them the bytes in use.
function timeBoxes(found, tell, room) { // room: the pixels of its width
  const names = 94, wide = Math.max(100, room - names - 30), lane = 26, gap = 4, high = 96;
  const end = Math.max(1, found.runs.at(-1)?.stop || 1), at = ns => ns / end * wide;
  const most = Math.max(1, ...found.runs.map(r => r.living));
  const boxes = [], told = [];
  const add = (x, y, w, h, title, color, text, line) => {
    boxes.push({ x, y, w, h, title, lines: [], color, line });
    told.push(text);
  };
  const label = (y, h, text) => add(-names, y, names - gap, h, text, "plain", text);
  const ticks = Math.min(10, Math.floor(wide / 70)) || 1;
  for (let i = 0; i < ticks; i++)
    add(wide * i / ticks, 0, wide / ticks, 22, ms(end * i / ticks), "plain", "");
  const top = 22 + gap, worker = i => top + (i + 1) * (lane + gap), bottom = worker(found.workers);
  label(top, lane, "kernels");
  for (let i = 0; i < found.workers; i++) label(worker(i), lane, `worker ${i}`);
  label(bottom, high, "bytes in use");
  found.runs.forEach((r, i) => {
    const next = found.runs[i + 1]?.start ?? end, tall = r.living / most * high;
    add(at(r.start), top, Math.max(at(r.stop - r.start), 0.3), lane, r.name, lineHue(r.line),
        tell(r), r.line);
    if (tall > 0)
      add(at(r.start), bottom + high - tall, at(next - r.start), tall, "", "quiet", tell(r));
  });
  for (const [k, i, start, stop] of found.parts) {
    const r = found.runs[k];
    add(at(start), worker(i), Math.max(at(stop - start), 0.3), lane, r.name, lineHue(r.line),
        `worker ${i}, ${ms(stop - start)} of ${tell(r)}`, r.line);
  }
  return { boxes, told };
}
