// The run, the machine, what costs and what to do.

const pattern = (p) => !p ? "-" : (p.kind === "unsure" ? "too few samples" : p.kind) + (p.period ? ` ${bytes(p.period)}` : "");
const KINDS = { smallheap: "small heap" };
const link = (id, text) => el("a", { href: `#object=${id}` }, shown(text));

function facts(list) {
  return el("dl", {}, list.filter(([, text]) => text !== null && text !== undefined && text !== "")
    .flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text instanceof Node ? text : shown(text))]));
}

function runFacts() {
  const r = data.report;
  const cpus = r.nodes.reduce((sum, n) => sum + n.cpus.length, 0);
  return facts([
    ["program", r.program], ["arguments", r.argv.slice(1).join(" ")], ["host", r.host],
    ["run", `${new Date(r.started_unix * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC, ${seconds(r.duration_s)}, ${seconds(r.cpu_s)} CPU time`],
    ["ended", r.went_on ? "the program went on" : r.signal ? `killed by signal ${r.signal}` : r.exit_status !== null ? `exit status ${r.exit_status}` : "not recorded"],
    ["machine", `${r.nodes.length} NUMA node${r.nodes.length > 1 ? "s" : ""}, ${cpus} CPUs, pages of ${bytes(r.page_size)}, transparent huge pages: ${r.thp}`],
    ["sampler", `${r.sampler}, a sample each ${seconds(r.period_s)} of CPU time: ${count(r.samples.total)} samples, ${count(r.samples.accesses)} accesses`],
    ["cost of recording", r.overhead === null ? "not measured" : share(r.overhead)],
    ["samples", data.run_verdict],
    ...r.notes.map((note) => ["note", note]), ...data.cut.map((text) => ["left out", text]),
  ]);
}

// Nodes as boxes: CPUs, memory, distances. Lines would say nothing that the table of distances does not.
function machine() {
  const nodes = data.report.nodes, wide = Math.min(4, nodes.length), w = 190, h = 84;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const add = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
    if (text) node.textContent = text;
    svg.append(node);
  };
  const drawnNodes = nodes.slice(0, 16);
  svg.setAttribute("viewBox", `0 0 ${wide * w} ${Math.ceil(drawnNodes.length / wide) * h}`);
  svg.setAttribute("width", wide * w);
  svg.setAttribute("role", "img");
  svg.setAttribute("style", "max-width:100%;height:auto");
  svg.setAttribute("aria-label", `${nodes.length} NUMA nodes`);
  drawnNodes.forEach((node, i) => {
    const x = (i % wide) * w + 4, y = Math.floor(i / wide) * h + 4;
    const ids = node.cpus.length > 8 ? `${node.cpus.slice(0, 6).join(" ")} ... ${node.cpus.at(-1)}` : node.cpus.join(" ");
    add("rect", { x, y, width: w - 10, height: h - 10, rx: 6 });
    add("text", { x: x + 10, y: y + 20, "font-weight": 600 }, `node ${node.id}`);
    add("text", { x: x + 10, y: y + 39 }, node.cpus.length ? `CPUs ${ids}` : "no CPUs (memory only)");
    add("text", { x: x + 10, y: y + 58 }, node.memory ? `memory ${bytes(node.memory)}` : "memory not recorded");
  });
  const rows = nodes.slice(0, 32);
  const distances = nodes.length < 2 ? soft("One node: all memory is equally far here.")
    : el("div", { class: "scroll" }, el("table", { "aria-label": "distances" },
      el("thead", {}, el("tr", {}, el("th", {}, "distance from\\to"), rows.map((n) => el("th", { class: "number" }, n.id)))),
      el("tbody", {}, rows.map((n) => el("tr", {}, el("th", {}, `node ${n.id}`), rows.map((_, i) => el("td", { class: "number" }, n.distances[i] ?? "?")))))));
  return section("Machine of the run", svg, nodes.length > 16 ? soft(`${nodes.length - 16} more nodes are not drawn.`) : null, distances);
}

function costOverTime() {
  const rows = data.stacked.map((r, i) => ({ ...r, values: r.cost_ns.map((n) => n / 1e9), color: r.id === null ? [150, 150, 150] : OKABE[i % 8] }));
  if (!rows.some((r) => r.values.some((v) => v > 0))) return null;
  const d = data.report.duration_s;
  return section("Cost by object over time",
    stacked("CPU time at memory accesses, by object, over the run", rows, { title: "time of the run", ticks: ticks(0, d, seconds) },
      { title: "CPU time", words: (v) => seconds(v) }),
    el("div", { class: "legend" }, rows.map((r) => el("span", {}, el("i", { style: `background:${css(r.color)}` }),
      r.id === null ? r.name : link(r.id, r.name.length > 60 ? `${r.name.slice(0, 40)} ... ${r.name.slice(-15)}` : r.name)))),
    soft(`Each bar is ${seconds(slotSeconds())}: the CPU time spent waiting at accesses whose page is known.`));
}

function policy() {
  if (!data.policy) return null;
  const button = el("button", { type: "button", onclick: (e) => copy(data.policy, e.target) }, "copy the policy");
  const columns = [
    { title: "object", class: "name", value: (i) => i.name, node: (i) => i.id === null ? el("span", { class: "long" }, shown(i.name)) : link(i.id, i.name) },
    { title: "cost", number: true, value: (i) => i.share, words: (i) => share(i.share) },
    { title: "placement", value: (i) => i.place },
    { title: "why", class: "name", value: (i) => i.why, words: (i) => shown(i.why) },
  ];
  const text = hidden ? soft("The policy names paths and lines of source, which are hidden; the button copies it.") : el("pre", { tabindex: 0 }, data.policy);
  return section("What to do", (data.remarks || []).map((r) => soft(shown(r))), table("advice", columns, data.items),
    el("div", { class: "bar" }, button, el("span", { class: "soft" },
      "save it as policy.toml; then: numamma run --policy policy.toml -- ", shown(data.report.program))), text);
}

function prices(list, waiting) {
  return table(waiting ? "policies for this object" : "policies", [
    { title: "policy", value: (p) => p.name, words: (p) => shown(p.name) },
    { title: "local", number: true, value: (p) => p.local_share, words: (p) => share(p.local_share), help: "share of the cache lines from the thread's own node" },
    { title: "busiest node", number: true, value: (p) => p.busiest_node_share, words: (p) => share(p.busiest_node_share) },
    { title: waiting ? "time waited" : "time", number: true, value: (p) => p.time, words: (p) => p.time.toFixed(2) },
    { title: "speed-up (95 % range)", number: true, value: (p) => p.speedup, words: range },
  ], list);
}

function predicted() {
  const p = data.prediction;
  if (!p) return null;
  return section(`Expected on ${p.target}`, prices(p.policies, false), soft(`1.00x is ${p.baseline}. `, share(p.priced_share),
    " of the cost is priced; the rest does not depend on placement. ", [...p.inputs, ...p.remarks].map(shown).join(". ")));
}

function account() {
  return section("Where the samples went", table("account", [
    { title: "what", class: "name", value: (r) => r.label },
    { title: "share of cost", number: true, value: (r) => r.cost, words: (r) => share(r.cost) },
    { title: "share of samples", number: true, value: (r) => r.samples, words: (r) => share(r.samples) },
  ], data.account.rows), soft(`${count(data.account.samples)} samples, taken or lost, are all.`));
}

const objectColumns = () => [
  { title: "#", number: true, value: (o) => o.id },
  { title: "object", class: "name", value: (o) => o.name, node: (o) => el("a", { href: `#object=${o.id}`, class: "long", title: shown(o.name.slice(0, 300)) }, shown(o.name)) },
  { title: "kind", class: "short", value: (o) => KINDS[o.kind] || o.kind },
  { title: "size", number: true, value: (o) => o.size, words: (o) => bytes(o.size) },
  { title: "cost", number: true, value: (o) => o.cost_share, words: (o) => share(o.cost_share), help: "share of the CPU time at memory accesses" },
  { title: "accesses", number: true, value: (o) => o.share, words: (o) => share(o.share) },
  { title: "threads", number: true, value: (o) => o.threads.length },
  { title: "first touch", value: (o) => o.first_touch[0] ? `thread ${o.first_touch[0].thread}${o.first_touch.length > 1 ? ` +${o.first_touch.length - 1}` : ""}` : "not seen" },
  { title: "remote", number: true, value: (o) => o.remote_share, words: (o) => share(o.remote_share) },
  { title: "by others", number: true, value: (o) => o.by_others_share, words: (o) => share(o.by_others_share), help: "accesses to pages that another thread touched first" },
  { title: "pattern", class: "short", value: (o) => pattern(o.pattern), help: "which thread uses which part" },
];

function objectTable(rows, limit) {
  return table("objects", objectColumns(), rows, { id: (o) => o.id, open: (o) => { location.hash = `object=${o.id}`; },
    search: (o) => `${o.name} ${o.kind} ${pattern(o.pattern)}`, limit });
}

function overview() {
  const first = objects().filter((o) => !["stack", "tls", "unknown"].includes(o.kind)).slice(0, 12);
  return el("div", {}, section("Verdict", el("p", { class: "verdict" }, shown(data.verdict)), runFacts()),
    first.length ? section("Objects by cost", objectTable(first, 12), objects().length > first.length ? el("a", { href: "#objects" }, `all ${objects().length} objects`) : null)
      : section("Objects by cost", soft("No access to an object was seen.")),
    policy(), predicted(), fixes(),
    el("div", { class: "columns" }, costOverTime(), machine()), account());
}
