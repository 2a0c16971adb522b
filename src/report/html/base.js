// Elements, figures in words, colours. Whatever comes from a profile becomes text, never markup.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

const section = (title, ...children) => el("section", { "aria-label": title }, el("h2", {}, title), ...children);
const soft = (...children) => el("p", { class: "soft" }, ...children);

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < 5) { n /= 1024; unit++; }
  return `${n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toPrecision(3)} ${units[unit]}`;
}
const share = (x) => x === null || x === undefined ? "-" : `${(100 * x).toFixed(1)}%`;
const count = (n) => n === null || n === undefined ? "-" : Math.round(n).toLocaleString("en-US");
function seconds(s) {
  if (s === null || s === undefined) return "-";
  if (s >= 100) return `${count(s)} s`;
  if (s >= 1 || s === 0) return `${s.toFixed(2)} s`;
  return s >= 1e-3 ? `${(s * 1e3).toFixed(1)} ms` : `${(s * 1e6).toFixed(0)} us`;
}
const times = (x) => x === null || x === undefined ? "?" : `${x.toFixed(2)}x`;
const range = (p) => p.low === null && p.high === null ? times(p.speedup)
  : `${times(p.speedup)} (${p.low === null ? "up to" : times(p.low)} ${p.low === null ? "" : "to "}${p.high === null ? "open" : times(p.high)})`;

// Text of a profile: characters that nobody sees or that reorder text are written as escapes, paths and lines of
// source left out where the reader does not want them shown.
let hidden = false;
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
function shown(text) {
  const all = String(text ?? "").replace(UNSEEN, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
  if (!hidden) return all;
  return all.replace(/(?:~|\.{1,2})?\/[^\s:,()[\]]*\//g, ".../").replace(/[\w.+~-]+\.\w{1,4}:\d+/g, "(source)")
    .replace(/\/[^\s:,()[\]]+/g, "/...");
}

// Viridis (Smith and van der Walt, CC0): even in brightness and readable with any colour vision.
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129],
  [92, 200, 99], [170, 220, 50], [253, 231, 37]];
// Okabe and Ito, 2008: eight colours that tell apart with any colour vision.
const OKABE = [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0],
  [240, 228, 66], [120, 120, 120]];

function viridis(x) {
  const at = Math.max(0, Math.min(1, x)) * (VIRIDIS.length - 1);
  const low = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return VIRIDIS[low].map((v, i) => Math.round(v + (VIRIDIS[low + 1][i] - v) * (at - low)));
}
// Neighbours in the order of the threads have near colours where there are many.
const colorOf = (index, many) => many <= 8 ? OKABE[index % 8] : viridis(index / Math.max(1, many - 1));
const css = (rgb) => `rgb(${rgb.join(",")})`;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function ground() {
  const hex = style("--cell");
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}
const mix = (from, to, part) => from.map((v, i) => Math.round(v + (to[i] - v) * part));

function legend(entries) {
  return el("div", { class: "legend" }, entries.map(([color, text]) =>
    el("span", {}, el("i", { style: `background:${css(color)}` }), text)));
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // file:// pages of some browsers have no clipboard.
    const area = el("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}
