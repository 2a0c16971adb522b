// What compare, tune and verify said: tables of its lists, figures of the rest.
async function resultView() {
  const pictures = await Promise.all(data.results.map(({ value }) => pagesChecked(value)));
  return el("div", {}, data.results.map(({ file, value }, i) => section(shown(file), pictures[i], generic(value, shown(file)))));
}

const isCheck = (value) => Array.isArray(value?.objects) && value.objects.length > 0 && value.objects.every((o) => Number.isFinite(o?.pages_planned));

// What verify counted: the pages of each object by node, before under first touch and after under the policy.
async function pagesChecked(value) {
  if (!isCheck(value)) return null;
  const parts = await Promise.all(value.objects.slice(0, 50).map(async (checked) => {
    const object = objects().find((o) => o.name === checked.name), tile = object && await tileOf(object.id);
    // Instances lie on top of each other in a tile.
    const before = tile && object.instances === 1 ? firstTouchNodes(tile) : [];
    const of = (n) => (checked.pages_planned ? n / checked.pages_planned : 0);
    const absent = Math.max(0, checked.pages_planned - checked.pages_present);
    const after = [...found(checked).map(([n, words, color]) => [of(n), words, color]), [of(absent), "not touched", [150, 150, 150]]];
    return el("div", {}, el("h3", {}, object ? link(object.id, checked.name) : shown(checked.name)), bar("before, by first touch", before), bar("after, placed", after),
      soft(`${checked.pages_on_plan} of ${checked.pages_present} present pages on plan, ${checked.pages_off_plan} off plan`));
  }));
  return el("div", { class: "checked" }, parts, soft("Before: the nodes of the threads that touched the pages first, in the profile of this page. After: the nodes on which verify found the pages."));
}

// The present pages by node; results of older versions only say which are on plan.
function found(checked) {
  const byNode = Object.entries(checked.pages_by_node ?? {}).map(([node, n]) => [n, `node ${node}`, OKABE[node % 7], Number(node)]);
  if (byNode.length) return byNode.sort((a, b) => a[3] - b[3]);
  return [[checked.pages_on_plan, "on plan", OKABE[2]], [checked.pages_off_plan, "off plan", OKABE[5]]];
}

function firstTouchNodes(tile) {
  const nodeOf = (t) => data.report.nodes.find((n) => n.cpus.includes(data.report.threads[t]?.cpus[0]))?.id;
  const nodes = [...tile.touchers].map((t) => t ? nodeOf(t - 1) : undefined);
  return shares(nodes, (n) => n === undefined ? "not known" : `node ${n}`, (n) => n === undefined ? [150, 150, 150] : OKABE[n % 7]);
}

function shares(list, words, color) {
  const sums = new Map();
  for (const one of list) sums.set(one, (sums.get(one) || 0) + 1);
  return [...sums].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity)).map(([one, n]) => [n / list.length, words(one), color(one)]);
}

function bar(title, parts) {
  const all = parts.filter(([part]) => part > 0);
  if (!all.length) return soft(`${title}: not known`);
  const words = all.map(([part, text]) => `${text} ${share(part)}`).join(", ");
  return el("div", {}, el("div", { class: "stack", role: "img", "aria-label": `${title}: ${words}` },
    all.map(([part, text, color]) => el("i", { style: `width:${100 * part}%;background:${css(color)}`, title: `${text} ${share(part)}` }))), soft(`${title}: ${words}`));
}

function generic(value, path) {
  if (value === null || typeof value !== "object") return el("span", {}, shown(value ?? "-"));
  if (Array.isArray(value)) {
    const rows = value.filter((v) => v && typeof v === "object" && !Array.isArray(v));
    if (!rows.length || rows.length < value.length) return el("span", {}, value.map((v) => shown(typeof v === "object" ? JSON.stringify(v) : v)).join(", ") || "none");
    const names = [...new Set(rows.flatMap((r) => Object.keys(r)))].slice(0, 14);
    const column = (name) => {
      const number = rows.every((r) => r[name] === null || r[name] === undefined || typeof r[name] === "number");
      const words = (r) => { const v = r[name]; return v === null || v === undefined ? "-" : typeof v === "number" ? (Number.isInteger(v) ? count(v) : v.toPrecision(4)) : shown(typeof v === "object" ? JSON.stringify(v) : v); };
      return { title: name.replaceAll("_", " "), number, value: (r) => typeof r[name] === "object" ? JSON.stringify(r[name]) : r[name], words };
    };
    return table(path, names.map(column), rows);
  }
  const flat = Object.entries(value).filter(([, v]) => v === null || typeof v !== "object" || (Array.isArray(v) && v.every((x) => typeof x !== "object")));
  const deep = Object.entries(value).filter((entry) => !flat.includes(entry));
  return el("div", {}, facts(flat.map(([name, v]) => [name.replaceAll("_", " "), Array.isArray(v) ? v.join(", ") : String(v ?? "-")])),
    deep.map(([name, v]) => el("div", {}, el("h3", {}, name.replaceAll("_", " ")), generic(v, `${path} ${name}`))));
}
