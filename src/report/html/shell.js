// What all pages have: views in tabs, links, keys, light and dark, paths hidden or not.

// `page` = { views: [[name, title, content()]], keys, title() -> text, route(name) -> { tab, name, content() } or null,
// key(event) for further keys }
const page = { views: [], keys: "", title: () => "", route: () => null, key: () => {} };
const KEYS = "Keys: numbers for the views, / search, h hide paths, t light or dark, ? this list. A click on a title sorts.";
const viewOf = () => location.hash.slice(1).split("&")[0] || page.views[0][0];
let last = 0;

async function show() {
  const wanted = viewOf(), turn = ++last, special = page.route(wanted);
  const view = page.views.find(([name]) => name === (special?.tab ?? wanted)) || page.views[0];
  document.getElementById("tabs").replaceChildren(...page.views.map(([name, title]) =>
    el("a", { href: `#${name}`, "aria-current": name === view[0] ? "page" : null }, title)));
  const content = special ? await special.content() : await view[2]();
  if (turn !== last) return;
  const main = document.getElementById("main");
  main.replaceChildren(content);
  main.dataset.view = special ? special.name : view[0];
  redraw();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "light" : "dark";
}

function toggleHelp() {
  const help = document.getElementById("help"), button = document.getElementById("keys");
  help.textContent = `${KEYS} ${page.keys}`;
  help.hidden = !help.hidden;
  button.setAttribute("aria-expanded", String(!help.hidden));
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const number = Number(event.key);
  if (number >= 1 && number <= page.views.length) location.hash = page.views[number - 1][0];
  else if (event.key === "/") { event.preventDefault(); document.querySelector("main input[type=search]")?.focus(); }
  else if (event.key === "t") document.getElementById("theme").click();
  else if (event.key === "h") document.getElementById("hide").click();
  else if (event.key === "?") toggleHelp();
  else page.key(event);
}

async function run(views) {
  data = JSON.parse(new TextDecoder().decode(await inflate(packed.facts)));
  Object.assign(page, views());
  const titles = () => { document.getElementById("program").textContent = document.title = `NumaMMA: ${page.title()}`; };
  titles();
  const asked = new URLSearchParams(location.search).get("theme");
  theme(asked || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); show(); });
  document.getElementById("hide").addEventListener("change", (e) => { hidden = e.target.checked; titles(); show(); });
  document.getElementById("keys").addEventListener("click", toggleHelp);
  window.addEventListener("hashchange", () => { show(); window.scrollTo(0, 0); });
  window.addEventListener("keydown", key);
  await show();
  document.documentElement.dataset.ready = "true";
  performance.mark("ready");
}

const start = (views) => run(views).catch((error) => {
  document.getElementById("main").textContent = `The page cannot be shown: ${error.message}. It needs a browser of 2023 or later (DecompressionStream).`;
  throw error;
});
const baseOf = (path) => shown(path).split("/").at(-1) || "program";
