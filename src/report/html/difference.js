// Two profiles compared: the whole run, and the objects by the change of their share of the cost.

// With its sign, but for what rounds to nothing.
const signed = (x) => { const text = (100 * x).toFixed(1); return Number(text) === 0 ? "0.0" : x > 0 ? `+${text}` : text; };
const points = (p) => p ? signed(p.change) : "-";
const relative = (r) => r ? `${signed(r.change)}%` : "-";
const interval = (p, scale) => p === null ? "-" : `${p.low === null ? "open" : (scale * p.low).toFixed(1)} to ${p.high === null ? "open" : (scale * p.high).toFixed(1)}`;

// The interval of a change in points beside the line of no change; `most` points are half the width.
function changeBar(figure, most) {
  const p = figure.points;
  if (p === null) return el("span", {}, "-");
  const at = (x) => 50 + 50 * Math.max(-1, Math.min(1, 100 * x / most));
  const low = at(p.low ?? -1), high = at(p.high ?? 1);
  const color = figure.sure ? (p.change > 0 ? OKABE[5] : OKABE[0]) : OKABE[7];
  return el("span", { class: "change", role: "img", "aria-label": `${points(p)} points, from ${interval(p, 100)}` },
    el("i", { class: "zero" }), el("i", { style: `left:${low}%;width:${Math.max(.6, high - low)}%;background:${css(color)};opacity:.45` }),
    el("i", { style: `left:calc(${at(p.change)}% - 2px);width:4px;background:${css(color)}` }));
}

const widest = (figures) => Math.max(1, ...figures.map((f) => f?.points).filter(Boolean).map((p) => 100 * Math.abs(p.change))) * 1.3;

function sides() {
  const of = (name, value) => ({ name, before: value(data.before), after: value(data.after) });
  const rows = [of("profile", (s) => shown(s.name)), of("program", (s) => shown(s.program)), of("host", (s) => shown(s.host)),
    of("nodes", (s) => count(s.nodes)), of("threads", (s) => count(s.threads)), of("run", (s) => seconds(s.duration_s)), of("CPU time", (s) => seconds(s.cpu_s)),
    of("CPU time at accesses", (s) => seconds(s.cost_s)), of("samples", (s) => count(s.samples)), of("samples at accesses", (s) => count(s.samples_at_accesses))];
  return section("The two runs", table("the two runs", [{ title: "figure", class: "short", value: (r) => r.name }, { title: "before", class: "name", value: (r) => r.before }, { title: "after", class: "name", value: (r) => r.after }], rows));
}

// The rows of the text: times change by a part of themselves, shares by points.
function wholeRun() {
  const { cost, remote, by_others } = data.run, [first, second] = [data.before.cpu_s, data.after.cpu_s];
  const time = (name, before, after, change) => ({ name, before, after, words: seconds, change: relative(change), interval: change && "low" in change ? `${interval(change, 100)} %` : "" });
  const part = (name, figure) => ({ name, before: figure.before, after: figure.after, words: share, figure,
    change: figure.points ? `${points(figure.points)} points` : "-", interval: figure.points ? interval(figure.points, 100) : "" });
  const rows = [time("CPU time", first, second, first > 0 ? { change: second / first - 1 } : null),
    time("cost: CPU time at accesses", cost.before_s, cost.after_s, cost.relative),
    part("cost, share of samples", cost), part("remote accesses", remote), part("accesses by others", by_others)];
  const most = widest(rows.map((r) => r.figure));
  return section("The whole run", table("the whole run", [
    { title: "figure", class: "short", value: (r) => r.name },
    { title: "before", number: true, value: (r) => r.before, words: (r) => r.words(r.before) },
    { title: "after", number: true, value: (r) => r.after, words: (r) => r.words(r.after) },
    { title: "change", number: true, value: (r) => r.figure ? r.figure.points?.change : null, words: (r) => r.change },
    { title: "95 % interval", class: "short", value: (r) => r.interval },
    { title: `\u00b1${most.toFixed(0)} points`, value: (r) => r.interval, node: (r) => r.figure ? changeBar(r.figure, most) : el("span") },
    { title: "sure", value: (r) => r.figure?.sure ? "*" : "" },
  ], rows));
}

function changedObjects(rows, limit) {
  const most = widest(rows.map((o) => o.cost)), size = (n) => n === null ? "-" : bytes(n);
  return table("objects", [
    { title: "object", class: "name", value: (o) => o.name, words: (o) => shown(o.old_name && o.old_name !== o.name ? `${o.name} (was ${o.old_name})` : o.name) },
    { title: "matched", class: "short", value: (o) => o.matched },
    { title: "size before", number: true, value: (o) => o.size_before, words: (o) => size(o.size_before) },
    { title: "size after", number: true, value: (o) => o.size_after, words: (o) => size(o.size_after) },
    { title: "cost before", number: true, value: (o) => o.cost.before, words: (o) => share(o.cost.before) },
    { title: "cost after", number: true, value: (o) => o.cost.after, words: (o) => share(o.cost.after) },
    { title: "points", number: true, value: (o) => o.cost.points?.change, words: (o) => points(o.cost.points) },
    { title: `\u00b1${most.toFixed(0)} points`, value: (o) => interval(o.cost.points, 100), node: (o) => changeBar(o.cost, most) },
    { title: "sure", value: (o) => o.cost.sure ? "*" : "" },
    { title: "CPU time before", number: true, value: (o) => o.cost.before_s, words: (o) => seconds(o.cost.before_s) },
    { title: "after", number: true, value: (o) => o.cost.after_s, words: (o) => seconds(o.cost.after_s) },
    { title: "remote", number: true, value: (o) => o.remote.points?.change, words: (o) => points(o.remote.points) },
    { title: "by others", number: true, value: (o) => o.by_others.points?.change, words: (o) => points(o.by_others.points) },
  ], rows, { search: (o) => `${o.name} ${o.old_name ?? ""} ${o.matched}`, limit });
}

function conditions() {
  if (!data.fail_if.length) return null;
  return section("Conditions", table("conditions", [
    { title: "--fail-if", class: "name", value: (c) => c.condition, words: (c) => shown(c.condition) },
    { title: "change", number: true, value: (c) => c.change?.change ?? null, words: (c) => c.change ? `${signed(c.change.change)} (${interval(c.change, 100)}) ${/%\s*$/.test(c.condition) ? "%" : "points"}` : "not known" },
    { title: "fulfilled", value: (c) => c.fulfilled ? "yes" : "no" },
  ], data.fail_if));
}

const placeables = () => data.objects.filter((o) => o.placeable);
const note = () => soft("Changes in points of the share of the cost, with the interval of 95 % that the samples leave. *: more than chance makes of all figures together. How much runs vary besides is in none of it.");

start(() => ({
  views: [
    ["overview", "overview", () => el("div", {}, section("Verdict", el("p", { class: "verdict" }, shown(data.verdict)),
      facts([...data.notes.map((text) => ["note", text]), ...data.cut.map((text) => ["left out", text])])), wholeRun(), conditions(),
    section("Objects that changed most", changedObjects(placeables().slice(0, 15), 15), note()), sides())],
    ["objects", "objects", () => section(`${count(data.objects.length)} objects`, changedObjects(data.objects), note())],
  ],
  title: () => `${baseOf(data.before.name)} and ${baseOf(data.after.name)}`,
}));
