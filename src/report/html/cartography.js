// The whole program: addresses x time, aggregated as far as the slider says.
//
// The measure is that of Ocelotl (Dosimont, Lamarche-Perrin, Schnorr, Huard and Vincent: A Spatiotemporal Data
// Aggregation Technique for Performance Analysis of Large-scale Execution Traces, IEEE CLUSTER 2014), which MOCA's
// reports use. A rectangle of n cells that is shown as its mean loses the Kullback-Leibler divergence of the cells from
// their mean, sum of x log2(x / mean), and saves n - 1 values. Both are divided by those of the whole picture. The
// partition shown is the best of all hierarchical ones that halve addresses or time: it has the highest
// p x saved - (1 - p) x lost, p being the slider.

// All rectangles that halving gives, by level of rows and of slots; sums of children are added up once.
function levels(rows, slots, own, shared) {
  const heights = Math.log2(rows) + 1, widths = Math.log2(slots) + 1, all = [];
  for (let i = 0; i < heights; i++) {
    all.push([]);
    for (let j = 0; j < widths; j++) {
      const h = rows >> i, w = slots >> j, sums = { own: new Float64Array(h * w), shared: new Float64Array(h * w), log: new Float64Array(h * w) };
      for (let r = 0; r < h; r++) {
        for (let s = 0; s < w; s++) {
          const at = r * w + s;
          for (const name of ["own", "shared", "log"]) {
            if (i) { const o = all[i - 1][j][name]; sums[name][at] = o[2 * r * w + s] + o[(2 * r + 1) * w + s]; }
            else if (j) { const o = all[0][j - 1][name]; sums[name][at] = o[r * 2 * w + 2 * s] + o[r * 2 * w + 2 * s + 1]; }
          }
          if (!i && !j) {
            const x = own[at] + shared[at];
            sums.own[at] = own[at]; sums.shared[at] = shared[at]; sums.log[at] = x ? x * Math.log2(x) : 0;
          }
        }
      }
      all[i].push(sums);
    }
  }
  return all;
}

const lost = (sums, at, n) => {
  const x = sums.own[at] + sums.shared[at];
  return x ? Math.max(0, sums.log[at] - x * Math.log2(x / n)) : 0;
};

// The best partition for p, as rectangles [level of rows, level of slots, index].
function partition(all, rows, slots, p) {
  const top = [all.length - 1, all[0].length - 1];
  const wholeLoss = lost(all[top[0]][top[1]], 0, rows * slots) || 1, wholeGain = rows * slots - 1 || 1;
  const best = all.map((line) => line.map((sums) => new Float64Array(sums.own.length)));
  const cut = all.map((line) => line.map((sums) => new Uint8Array(sums.own.length)));
  for (let i = 0; i < all.length; i++) {
    for (let j = 0; j < all[0].length; j++) {
      const w = slots >> j, n = 2 ** (i + j), sums = all[i][j];
      for (let at = 0; at < sums.own.length; at++) {
        const r = Math.floor(at / w), s = at % w;
        let value = p * (n - 1) / wholeGain - (1 - p) * lost(sums, at, n) / wholeLoss, how = 0;
        if (i) { const o = best[i - 1][j], v = o[2 * r * w + s] + o[(2 * r + 1) * w + s]; if (v > value + 1e-15) { value = v; how = 1; } }
        if (j) { const o = best[i][j - 1], v = o[r * 2 * w + 2 * s] + o[r * 2 * w + 2 * s + 1]; if (v > value + 1e-15) { value = v; how = 2; } }
        best[i][j][at] = value;
        cut[i][j][at] = how;
      }
    }
  }
  const list = [], open = [[top[0], top[1], 0]];
  let loss = 0;
  while (open.length) {
    const [i, j, at] = open.pop(), w = slots >> j, r = Math.floor(at / w), s = at % w;
    if (cut[i][j][at] === 1) open.push([i - 1, j, 2 * r * w + s], [i - 1, j, (2 * r + 1) * w + s]);
    else if (cut[i][j][at] === 2) open.push([i, j - 1, r * 2 * w + 2 * s], [i, j - 1, r * 2 * w + 2 * s + 1]);
    else { list.push([i, j, at]); loss += lost(all[i][j], at, 2 ** (i + j)); }
  }
  return { list, loss: loss / wholeLoss, cells: rows * slots };
}

async function cartographyView() {
  const pictures = await picturesOf(), { rows, bytes: size } = data.pictures, slots = data.slots;
  if (!size) return section("Cartography", soft("No access with a known address was seen."));
  const all = levels(rows, slots, pictures.own, pictures.shared), holder = el("div"), said = el("span", { class: "soft", id: "loss" });
  const own = OKABE[2], others = OKABE[5];
  // Where accesses are sparse, as samples are, anything is saved at a p near 1 only.
  const part = (at) => 1 - (1 - at / 100) ** 2.5;
  const nameOf = (row) => { const id = pictures.objects[row] - 1; return id < 0 ? "no access" : shown(objectOf(id)?.name ?? `object ${id}`); };
  function fill(p) {
    const parts = partition(all, rows, slots, p), back = ground();
    const means = new Float64Array(rows * slots), mixed = new Float64Array(rows * slots), size_of = new Uint32Array(rows * slots);
    for (const [i, j, at] of parts.list) {
      const w = slots >> j, r = Math.floor(at / w) << i, s = (at % w) << j, n = 2 ** (i + j);
      const a = all[i][j].own[at], b = all[i][j].shared[at];
      for (let y = r; y < r + 2 ** i; y++) for (let x = s; x < s + 2 ** j; x++) { means[y * slots + x] = (a + b) / n; mixed[y * slots + x] = a + b ? b / (a + b) : 0; size_of[y * slots + x] = n; }
    }
    const top = most(means);
    said.textContent = `${count(parts.list.length)} of ${count(parts.cells)} values shown; ${share(parts.loss)} of the information lost`;
    holder.replaceChildren(grid("cartography: addresses over time", { columns: slots, rows, height: 640, hint: "a click opens the object of a row",
      x: { title: "time of the run", ticks: ticks(0, data.report.duration_s, seconds) },
      y: { title: "addresses, without the gaps", ticks: ticks(0, size, bytes, 7) },
      color: (r, s) => { const n = means[r * slots + s]; return n ? mix(back, mix(own, others, mixed[r * slots + s]), .35 + .65 * Math.sqrt(n / top)) : back; },
      click: (r) => { if (pictures.objects[r]) location.hash = `object=${pictures.objects[r] - 1}`; },
      words: (r, s) => `${nameOf(r)}, at ${seconds(s * slotSeconds())}: mean ${means[r * slots + s].toPrecision(3)} accesses in a part of ${count(size_of[r * slots + s])} cells, ${share(mixed[r * slots + s])} to shared pages` }));
  }
  const slider = el("input", { type: "range", min: 0, max: 100, value: 40, id: "slider", "aria-label": "aggregation: from all detail to one value", oninput: (e) => fill(part(e.target.value)) });
  fill(part(40));
  return section("Cartography: all addresses over time", el("div", { class: "bar" }, el("label", {}, "detail ", slider, " summary"), said), holder,
    legend([[own, "pages of one thread"], [others, "pages that several threads use"]]),
    soft("Addresses ascend downwards; stretches of more than 2 MiB without an access are left out. Parts that differ little are shown as their mean: each value saved counts p, each bit of Kullback-Leibler divergence lost 1 - p (Ocelotl, Dosimont et al., IEEE CLUSTER 2014), and the slider sets p."));
}
