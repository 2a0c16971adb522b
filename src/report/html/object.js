// The list of objects, and one object: identity, pattern, pages x threads, offsets over time, placement.

function objectList() {
  const all = objects();
  return section(`${count(all.length)} objects that were accessed`, all.length ? objectTable(all) : soft("No access to an object was seen."));
}

function identity(object, detail) {
  const site = object.callsite.map((line, i) => el("div", {}, i === detail?.naming ? "> " : "", shown(line)));
  return section("Identity", facts([
    ["name", object.name], ["kind", detail?.kind ?? object.kind],
    ["size", `${bytes(object.size)}${object.instances > 1 ? `, ${count(object.instances)} instances, ${count(detail?.seen)} seen` : ""}`],
    ["cost", `${share(object.cost_share)} of the CPU time at memory accesses (${seconds(object.cost_s)})`],
    ["accesses", `${share(object.share)} of all: ${count(object.reads)} reads, ${count(object.writes)} writes`],
    ["without a page", detail?.unpaged ? `${count(detail.unpaged)} of them: only the object is known` : null],
    ["remote", object.remote_share === null ? "not known, or one node" : share(object.remote_share)],
    ["by others", object.by_others_share === null ? "unknown: no first touch was recorded"
      : `${share(object.by_others_share)} to pages that another thread touched first`],
    ["touched", detail?.touched_by], ["lifetime", detail?.lifetime],
    ["allocated by", site.length ? el("div", {}, site) : null],
    ["module", object.module ? `${object.module} at 0x${object.vaddr.toString(16)}` : null],
  ]));
}

function evidence(object, detail) {
  const p = object.pattern, f = p?.figures;
  const list = p ? [
    ["pattern", `${pattern(p)}, confidence ${share(p.confidence)}`], ["evidence", p.evidence],
    ["explained", f.explained ? `${share(f.explained)} of ${count(f.samples)} samples beyond chance; ${share(f.residual)} outside their own slice` : null],
    ["spectrum", f.peak ? `${f.peak.toFixed(2)} at the period; ${f.noise.toFixed(2)} would be without structure` : null],
    ...(p.phases || []).map((s) => [`${s.start_s.toFixed(2)} to ${s.end_s.toFixed(2)} s`, `${s.initialisation ? "initialisation, " : ""}${pattern(s)} (${share(s.share)}): ${s.evidence}`]),
    ...(p.by_code || []).map((c) => [shown(c.function), `${pattern(c)} (${share(c.share)}): ${c.evidence}`]),
  ] : [];
  const item = detail?.item;
  if (item) list.push(["advice", item.place], ["why", shown(item.why)]);
  return section("Pattern and advice", list.length ? facts(list) : soft("No pattern was sought."), slices(object, detail));
}

// The folded slices of the threads: which part of the object, or of a period of it, is whose.
function slices(object, detail) {
  const list = detail?.slices || [];
  if (!list.length) return null;
  const end = list.at(-1).end, many = Math.max(...list.map((s) => s.thread)) + 1, columns = 512;
  const of = (column) => list.find((s) => s.start <= (column + .5) / columns * end && (column + .5) / columns * end < s.end);
  const words = (_, column) => {
    const s = of(column);
    return s ? `worker ${s.thread}: ${bytes(s.start)} to ${bytes(s.end)}` : "no worker";
  };
  return el("div", {}, grid("slices of the workers", { columns, rows: 1, height: 90,
    color: (_, column) => { const s = of(column); return s ? colorOf(s.thread, many) : ground(); }, words,
    x: { title: object.pattern.period ? "offset in a period" : "offset", ticks: ticks(0, end, bytes) }, y: { title: "", ticks: [[.5, "worker"]] } }),
    many <= 8 ? legend([...Array(many).keys()].map((t) => [colorOf(t, many), `worker ${t}`])) : soft("Colours from dark to bright in the order of the workers."));
}

// The cells of a tile in `rows` rows of the pages [low, high).
function binned(tile, quantity, low, high) {
  const { page_shift, thread_shift, slot_shift } = tile.head;
  const unit = 2 ** page_shift, rows = Math.max(1, Math.min(256, Math.ceil((high - low) / unit)));
  const per = 2 ** thread_shift, slots = Math.ceil(data.slots / 2 ** slot_shift);
  const threads = Math.max(...tile.threads) + 1 || 1;
  const columns = Math.min(threads, 256), by = new Float64Array(rows * columns);
  const byTime = new Map(), sums = new Float64Array(rows * slots);
  const values = tile[quantity];
  let total = 0;
  for (let i = 0; i < tile.length; i++) {
    const page = tile.bins[i] * unit;
    if (page + unit <= low || page >= high || !values[i]) continue;
    const row = Math.max(0, Math.min(rows - 1, Math.floor((page + unit / 2 - low) / (high - low) * rows)));
    by[row * columns + Math.floor(tile.threads[i] * columns / threads)] += values[i];
    const at = row * slots + tile.slots[i];
    sums[at] += values[i];
    total += values[i];
    if (!byTime.has(at)) byTime.set(at, new Map());
    const cell = byTime.get(at);
    cell.set(tile.threads[i], (cell.get(tile.threads[i]) || 0) + values[i]);
  }
  const main = (map) => [...map].reduce((best, next) => next[1] > best[1] ? next : best, [0, -1])[0];
  return { rows, columns, threads, per, slots, by, sums, total, main: new Map([...byTime].map(([at, map]) => [at, main(map)])) };
}

const most = (list) => list.reduce((a, b) => Math.max(a, b), 0);
// The square root: a tenth of the peak must still be seen.
const bright = (n, top) => n ? .12 + .88 * Math.sqrt(n / top) : 0;
const inUnits = (quantity, n) => quantity === "cost" ? seconds(n / 1e9) : `${count(n)} ${quantity === "others" ? "by others" : quantity}`;

function pictures_of(object, tile) {
  const holder = el("div", {}), pages = tile.head.pages;
  let low = 0, high = pages, quantity = location.hash.match(/quantity=(\w+)/)?.[1] || "accesses";
  if (!QUANTITIES.some(([name]) => name === quantity)) quantity = "accesses";
  const zoom = (from, to) => {
    const wide = Math.max(1, Math.min(pages, Math.round((to - from) * (high - low))));
    const start = Math.max(0, Math.min(pages - wide, Math.floor(low + from * (high - low))));
    [low, high] = [start, start + wide];
    fill();
  };
  const select = el("select", { "aria-label": "quantity", id: "quantity", onchange: (e) => { quantity = e.target.value; fill(); } },
    QUANTITIES.filter(([name]) => name !== "remote" || tile.remote.some((n) => n)).map(([name, words]) => el("option", { value: name, selected: name === quantity }, words)));
  const whole = el("button", { type: "button", id: "whole", onclick: () => { [low, high] = [0, pages]; fill(); } }, "whole object");
  const where = el("span", { class: "soft", id: "where" });
  function fill() {
    const b = binned(tile, quantity, low, high), top = most(b.by), topTime = most(b.sums);
    const offset = (part) => bytes((low + part * (high - low)) * pageSize());
    const y = { title: "offset in the object", ticks: ticks(0, 1, offset) };
    const rowWords = (row) => `${offset(row / b.rows)} to ${offset((row + 1) / b.rows)}`;
    const groups = (column) => { const t = Math.floor(column * b.threads / b.columns) * b.per; return b.per > 1 || b.columns < b.threads ? `threads from ${t}` : threadName(t); };
    where.textContent = `${offset(0)} to ${offset(1)} of ${bytes(pages * pageSize())}: ${inUnits(quantity, b.total)}`;
    where.dataset.total = b.total;
    whole.hidden = low === 0 && high === pages;
    const back = ground(), many = b.threads;
    const matrix = grid("page x thread matrix", { columns: b.columns, rows: b.rows, height: 420, brush: zoom, y,
      hint: "drag over rows to zoom; with the keyboard: + - and arrows",
      x: { title: "thread", ticks: threadTicks(b.columns, b.per * b.threads / b.columns) },
      color: (row, column) => { const n = b.by[row * b.columns + column]; return n ? viridis(bright(n, top)) : back; },
      words: (row, column) => `${rowWords(row)}, ${shown(groups(column))}: ${inUnits(quantity, b.by[row * b.columns + column])}`, strips: strips(tile, b, low, high) });
    const scatter = grid("offset over time by thread", { columns: b.slots, rows: b.rows, height: 420, brush: zoom, y,
      hint: "drag over rows to zoom", x: { title: "time of the run", ticks: ticks(0, data.report.duration_s, seconds) },
      color: (row, slot) => { const at = row * b.slots + slot; return b.sums[at] ? mix(back, colorOf(b.main.get(at), many), Math.min(1, .35 + bright(b.sums[at], topTime))) : back; },
      words: (row, slot) => { const at = row * b.slots + slot; return `${rowWords(row)} at ${seconds(slot / b.slots * data.report.duration_s)}: ${inUnits(quantity, b.sums[at])}${b.main.has(at) ? `, most by ${shown(groups(b.main.get(at)))}` : ""}`; } });
    holder.replaceChildren(el("div", { class: "columns" }, section("Pages x threads", matrix, stripLegend(tile, many)),
      section("Offset over time, coloured by the thread with most", scatter,
        many <= 8 ? legend([...Array(many).keys()].map((t) => [colorOf(t, many), shown(threadName(t * b.per))])) : soft("Colours from dark to bright in the order of the threads."))));
  }
  fill();
  const shifts = tile.head.page_shift ? soft(`Pages are stored in bins of ${bytes(pageSize() * 2 ** tile.head.page_shift)}; the profile has each.`) : null;
  return el("div", {}, el("div", { class: "bar" }, el("label", {}, "show ", select), whole, where), holder, shifts,
    object.instances > 1 ? soft("Instances lie on top of each other.") : null,
    data.details[object.id]?.item?.placed && !tile.nodes.length ? soft("The advice does not give single pages a node of their own that could be drawn: see its words.") : null);
}

// Beside the matrix: first toucher, main user, advised node of each row.
function strips(tile, b, low, high) {
  const back = ground(), many = b.threads;
  const at = (list, row) => list[Math.min(list.length - 1, Math.floor((low + (row + .5) / b.rows * (high - low)) / tile.head.pages * list.length))];
  const user = (row) => {
    let best = -1, top = 0;
    for (let c = 0; c < b.columns; c++) if (b.by[row * b.columns + c] > top) { top = b.by[row * b.columns + c]; best = c; }
    return best < 0 ? back : colorOf(Math.floor(best * b.threads / b.columns), many);
  };
  const list = [{ title: "first touch", rows: b.rows, color: (row) => { const t = at(tile.touchers, row); return t ? colorOf((t - 1) / b.per | 0, many) : back; } },
    { title: "main user", rows: b.rows, color: user }];
  if (tile.nodes.length) list.push({ title: "advised node", rows: b.rows, color: (row) => OKABE[at(tile.nodes, row) % 8] });
  return list;
}

function stripLegend(tile, many) {
  const nodes = [...new Set(tile.nodes)].sort((a, b) => a - b).slice(0, 16);
  return el("div", {}, el("div", { class: "legend" }, "few ", el("i", { style: `width:7em;background:linear-gradient(90deg,${[0, .25, .5, .75, 1].map((x) => css(viridis(x))).join(",")})` }), " many (square root)"),
    nodes.length ? legend(nodes.map((n) => [OKABE[n % 8], `advised node ${n}`])) : null,
    many <= 8 ? null : soft("First touch and main user have the colours of the threads, as beside."));
}

function usedBy(detail) {
  if (!detail) return null;
  const code = [
    { title: "function and line", class: "name", value: (c) => c.name, words: (c) => shown(c.name) },
    { title: "instruction", value: (c) => c.place, words: (c) => shown(c.place) },
    { title: "cost", number: true, value: (c) => c.cost_share, words: (c) => share(c.cost_share) },
    { title: "reads", number: true, value: (c) => c.reads, words: (c) => count(c.reads) },
    { title: "writes", number: true, value: (c) => c.writes, words: (c) => count(c.writes) },
  ];
  const threads = [
    { title: "thread", value: (t) => t.thread, words: (t) => shown(threadName(t.thread)) },
    { title: "cost", number: true, value: (t) => t.cost_share, words: (t) => share(t.cost_share) },
    { title: "reads", number: true, value: (t) => t.reads, words: (t) => count(t.reads) },
    { title: "writes", number: true, value: (t) => t.writes, words: (t) => count(t.writes) },
    { title: "remote", number: true, value: (t) => t.remote_share, words: (t) => share(t.remote_share) },
    { title: "by others", number: true, value: (t) => t.by_others_share, words: (t) => share(t.by_others_share) },
  ];
  return el("div", { class: "columns" }, detail.code.length ? section("Code that accesses it", table("code", code, detail.code)) : null,
    detail.threads.length ? section("Threads that access it", table("threads of the object", threads, detail.threads, { limit: 32 })) : null);
}

async function objectView(id) {
  const object = objectOf(id);
  if (!object) return section("No such object", soft(`This file holds no object ${id}.`), el("a", { href: "#objects" }, "all objects"));
  const detail = data.details[id], tile = await tileOf(id), all = objects(), at = all.indexOf(object);
  const near = (step, text) => all[at + step] ? el("a", { href: `#object=${all[at + step].id}` }, text) : null;
  const priced = detail?.prices;
  return el("div", {}, el("div", { class: "bar" }, el("a", { href: "#objects" }, "all objects"), near(-1, "previous (p)"), near(1, "next (n)")),
    el("h2", {}, el("span", { class: "long", title: shown(object.name.slice(0, 300)) }, shown(object.name))),
    el("div", { class: "columns" }, identity(object, detail), evidence(object, detail)),
    el("div", { class: "columns" }, spectrum(object), sources(detail)),
    tile ? pictures_of(object, tile) : section("Pages", soft("No page of its accesses is known, or there was no room for them in this file.")),
    fixes(object.id),
    priced ? section(`This object on ${shown(data.prediction.target)}`, prices(priced.policies, true)) : null, usedBy(detail));
}
