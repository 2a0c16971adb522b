// Pictures on canvas: a grid of coloured cells with axes, bars over time; tables.

const LEFT = 88, RIGHT = 8, TOP = 8, BOTTOM = 40;

function prepared(canvas, height) {
  const width = Math.max(320, canvas.parentElement.clientWidth);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = style("--text");
  context.font = "12px system-ui, sans-serif";
  return { context, width };
}

// `axis` = { title, ticks: [[position 0 to 1, text]] }
function axes(context, box, x, y) {
  context.fillStyle = style("--soft");
  context.strokeStyle = style("--line");
  context.strokeRect(box.x - .5, box.y - .5, box.w + 1, box.h + 1);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const [at, text] of y.ticks) context.fillText(text, box.x - 6, box.y + at * box.h);
  context.textBaseline = "top";
  for (const [at, text] of x.ticks) {
    context.textAlign = at < .02 ? "left" : at > .98 ? "right" : "center";
    context.fillText(text, box.x + at * box.w, box.y + box.h + 5);
  }
  context.textAlign = "center";
  context.fillText(x.title, box.x + box.w / 2, box.y + box.h + 21);
  context.save();
  context.translate(4, box.y + box.h / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(y.title, 0, 0);
  context.restore();
}

const ticks = (low, high, words, number = 5) =>
  Array.from({ length: number }, (_, i) => [i / (number - 1), words(low + (high - low) * i / (number - 1))]);
const threadTicks = (groups, per) => {
  const step = Math.max(1, Math.ceil(groups / 16));
  return Array.from({ length: Math.ceil(groups / step) }, (_, i) => [(i * step + .5) / groups, String(i * step * per)]);
};

// A grid of cells. `what` = { columns, rows, color(row, column) -> [r, g, b], x, y, height, words(row, column),
// brush(from, to) with parts 0 to 1 of the rows, strips: [{ title, color(row), rows }] }
function grid(label, what) {
  const canvas = el("canvas", { role: "img", "aria-label": label, tabindex: what.brush ? 0 : null });
  const read = el("div", { class: "read" }, what.hint || "");
  const holder = el("div", {}, canvas, read);
  const strips = what.strips || [];
  let box = null, from = null;
  const part = (event) => {
    const at = canvas.getBoundingClientRect();
    return [(event.clientX - at.left - box.x) / box.w, (event.clientY - at.top - box.y) / box.h];
  };
  const clamp = (x) => Math.max(0, Math.min(.999999, x));
  const draw = (brushed) => {
    const { context, width } = prepared(canvas, what.height || 360);
    const side = strips.length * 58;
    box = { x: LEFT, y: TOP, w: width - LEFT - RIGHT - side, h: (what.height || 360) - TOP - BOTTOM };
    context.imageSmoothingEnabled = false;
    context.drawImage(image(what.columns, what.rows, what.color), box.x, box.y, box.w, box.h);
    axes(context, box, what.x, what.y);
    strips.forEach((strip, i) => {
      const x = box.x + box.w + 12 + i * 58;
      context.drawImage(image(1, strip.rows, strip.color), x, box.y, 26, box.h);
      context.strokeRect(x - .5, box.y - .5, 27, box.h + 1);
      context.textAlign = "center";
      strip.title.split(" ").forEach((word, n) => { context.fillText(word, x + 13, box.y + box.h + 5 + 13 * n); });
    });
    if (brushed) {
      context.fillStyle = "rgba(128,128,128,.4)";
      context.fillRect(box.x, box.y + brushed[0] * box.h, box.w, (brushed[1] - brushed[0]) * box.h);
    }
  };
  canvas.addEventListener("pointerdown", (e) => {
    if (!what.brush) return;
    from = clamp(part(e)[1]);
    if (e.isTrusted) canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y] = part(e);
    if (from !== null) draw([Math.min(from, clamp(y)), Math.max(from, clamp(y))]);
    const inside = x >= 0 && x < 1 && y >= 0 && y < 1;
    read.textContent = inside ? what.words(Math.floor(y * what.rows), Math.floor(x * what.columns)) : what.hint || "";
  });
  canvas.addEventListener("pointerup", (e) => {
    if (from === null) return;
    const to = clamp(part(e)[1]), start = from;
    from = null;
    if (Math.abs(to - start) > .01) what.brush(Math.min(start, to), Math.max(start, to)); else draw();
  });
  if (what.brush) canvas.addEventListener("keydown", (e) => {
    const move = { "+": [.25, .75], "-": [-.5, 1.5], ArrowDown: [.25, 1.25], ArrowUp: [-.25, .75] }[e.key];
    if (move) { e.preventDefault(); what.brush(...move); }
  });
  if (what.click) canvas.addEventListener("click", (e) => what.click(Math.floor(clamp(part(e)[1]) * what.rows)));
  onResize(holder, draw);
  holder.redraw = draw;
  return holder;
}

function image(columns, rows, color) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), pixels = context.createImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at += 4) {
      const [r, g, b] = color(row, column);
      pixels.data[at] = r; pixels.data[at + 1] = g; pixels.data[at + 2] = b; pixels.data[at + 3] = 255;
    }
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

// Bars on each other, one for each slot. `rows` = [{ values, color }]
function stacked(label, rows, x, y, height = 260) {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  const holder = el("div", {}, canvas);
  const slots = rows[0] ? rows[0].values.length : 1;
  const most = Math.max(1e-12, ...Array.from({ length: slots }, (_, s) => rows.reduce((sum, r) => sum + r.values[s], 0)));
  onResize(holder, () => {
    const { context, width } = prepared(canvas, height);
    const box = { x: LEFT, y: TOP, w: width - LEFT - RIGHT, h: height - TOP - BOTTOM };
    for (let slot = 0; slot < slots; slot++) {
      let bottom = box.y + box.h;
      for (const row of rows) {
        const h = row.values[slot] / most * box.h;
        context.fillStyle = css(row.color);
        context.fillRect(box.x + slot * box.w / slots, bottom - h, Math.max(1, box.w / slots - 1), h);
        bottom -= h;
      }
    }
    axes(context, box, x, { title: y.title, ticks: ticks(most, 0, y.words, 4) });
  });
  return holder;
}

const drawn = new Set();
function onResize(holder, draw) {
  const entry = { holder, draw };
  drawn.add(entry);
  requestAnimationFrame(() => { if (holder.isConnected) draw(); });
}
window.addEventListener("resize", redraw);
function redraw() {
  for (const entry of drawn) { if (entry.holder.isConnected) entry.draw(); else drawn.delete(entry); }
}

// `columns` = [{ title, number, value(row), words(row) }]; a click on a title sorts.
function table(label, columns, rows, options = {}) {
  let by = options.by ?? null, falling = true, limit = options.limit || 200, wanted = "";
  const body = el("tbody"), more = el("button", { type: "button", onclick: () => { limit += 2000; fill(); } });
  const chosen = () => {
    const list = wanted ? rows.filter((r) => options.search(r).toLowerCase().includes(wanted)) : rows.slice();
    if (by !== null) {
      const value = columns[by].value;
      list.sort((a, b) => {
        const [x, y] = [value(a) ?? -Infinity, value(b) ?? -Infinity];
        return (typeof x === "string" ? x.localeCompare(String(y)) : x - y) * (falling ? -1 : 1);
      });
    }
    return list;
  };
  const cell = (column, row) => {
    const value = column.value(row);
    return el("td", { class: column.number ? "number" : column.class, "data-value": column.number ? value : null },
      column.node ? column.node(row) : column.words ? column.words(row) : value ?? "-");
  };
  function fill() {
    const list = chosen();
    body.replaceChildren(...list.slice(0, limit).map((row) =>
      el("tr", options.id ? { "data-id": options.id(row), onclick: () => options.open(row) } : {}, columns.map((c) => cell(c, row)))));
    more.hidden = list.length <= limit;
    more.textContent = `show more (${limit} of ${list.length})`;
  }
  const head = columns.map((column, i) => el("th", { class: column.number ? "number" : null, scope: "col" },
    el("button", { type: "button", title: column.help || "sort", onclick: () => { falling = by === i ? !falling : true; by = i; fill(); } }, column.title)));
  const csv = () => [columns.map((c) => c.title), ...chosen().map((row) => columns.map((c) => shown(c.value(row) ?? "")))]
    .map((line) => line.map((v) => /[",\n]/.test(String(v)) ? `"${String(v).replace(/"/g, "\"\"")}"` : v).join(",")).join("\n");
  const button = el("button", { type: "button", onclick: (e) => copy(csv(), e.target) }, "copy as CSV");
  const search = options.search && rows.length > 8 ? el("input", { type: "search", placeholder: "search (/)", "aria-label": `search ${label}`,
    oninput: (e) => { wanted = e.target.value.toLowerCase(); fill(); } }) : null;
  fill();
  return el("div", {}, el("div", { class: "bar" }, search, button),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `table: ${label}` }, el("table", {}, el("thead", {}, el("tr", {}, head)), body)), more);
}
