// What an object is judged by: its spectrum, and the source that allocates and accesses it.

// Strengths over periods on a logarithmic axis, with the level that an object without structure would have.
function spectrum(object) {
  const s = data.spectra[object.id];
  if (!s) return null;
  const canvas = el("canvas", { role: "img", "aria-label": "spectrum: agreement of the threads by period" });
  const holder = el("div", {}, canvas, el("div", { class: "read" }));
  const read = holder.lastChild, height = 220, n = s.strengths.length;
  const period = (part) => s.longest * (s.shortest / s.longest) ** part;
  const partOf = (bytes) => Math.log(bytes / s.longest) / Math.log(s.shortest / s.longest);
  const top = Math.max(.1, most(s.strengths)), figures = object.pattern?.figures;
  let box = null;
  onResize(holder, () => {
    const { context, width } = prepared(canvas, height);
    box = { x: LEFT, y: TOP, w: width - LEFT - RIGHT, h: height - TOP - BOTTOM };
    context.fillStyle = css(OKABE[0]);
    s.strengths.forEach((v, i) => { context.fillRect(box.x + i / n * box.w, box.y + box.h * (1 - v / top), Math.max(1, box.w / n - .5), box.h * v / top); });
    if (figures?.noise > 0 && figures.noise < top) {
      context.strokeStyle = css(OKABE[5]);
      context.setLineDash([6, 4]);
      const y = box.y + box.h * (1 - figures.noise / top);
      context.beginPath(); context.moveTo(box.x, y); context.lineTo(box.x + box.w, y); context.stroke();
      context.setLineDash([]);
    }
    const at = object.pattern?.period ? partOf(object.pattern.period) : -1;
    if (at > 0 && at < 1) {
      context.fillStyle = style("--text");
      context.textAlign = at > .7 ? "right" : "left";
      context.textBaseline = "top";
      context.fillRect(box.x + at * box.w, box.y, 1, box.h);
      context.fillText(`period ${bytes(object.pattern.period)}`, box.x + at * box.w + (at > .7 ? -6 : 6), box.y + 2);
    }
    axes(context, box, { title: "period (logarithmic)", ticks: [0, .25, .5, .75, 1].map((part) => [part, bytes(rounded(period(part)))]) },
      { title: "agreement", ticks: ticks(top, 0, (v) => v.toFixed(2), 3) });
  });
  canvas.addEventListener("pointermove", (e) => {
    const part = (e.clientX - canvas.getBoundingClientRect().left - box.x) / box.w, i = Math.floor(part * n);
    read.textContent = s.strengths[i] === undefined ? "" : `period ${bytes(rounded(period(part)))}: ${s.strengths[i].toFixed(3)}`;
  });
  return section("Spectrum", holder, legend([[OKABE[0], "share of the samples that agree on a period"], [OKABE[5], "highest without structure (dashed)"]]),
    soft("Each sample is an arrow in the direction of its worker, added up over the pages with the turn of each period (Fourier transform). Slices in the order of the workers peak at their period, or at the length of an object that they divide once."));
}
const rounded = (n) => n >= 1024 ? Number(n.toPrecision(3)) : Math.round(n);

// Lines around the allocation and the accesses with the highest cost.
function sources(detail) {
  const list = detail?.source || [];
  if (!list.length) return null;
  if (hidden) return section("Source", soft("Source is hidden."));
  return section("Source", list.map(({ what, source, cost_share }) => {
    const s = data.sources[source], wide = String(s.first + s.lines.length - 1).length;
    const lines = s.lines.map((line, i) => el("span", { class: s.first + i === s.line ? "line meant" : "line" },
      `${String(s.first + i).padStart(wide)}  ${shown(line)}`));
    return el("figure", {}, el("figcaption", {}, `${what === "allocated" ? "allocated here" : `accessed here, ${share(cost_share)} of its cost`}: ${shown(s.file)}:${s.line}`,
      s.newer ? el("span", { class: "soft" }, " (changed since the run: lines may have moved)") : null), el("pre", { tabindex: 0 }, lines));
  }));
}
