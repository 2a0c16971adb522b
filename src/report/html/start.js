// Views, keys, links: #overview, #objects, #object=3, #threads, #cartography, #results.

const VIEWS = [["overview", "overview", overview], ["objects", "objects", objectList], ["threads", "threads", threadsView], ["cartography", "cartography", cartographyView]];
const KEYS = "Keys: 1 to 5 views, / search, n and p next and previous object, + - and arrows in a picture of pages, h hide paths, t light or dark, ? this list. A click on a title sorts.";

const viewOf = () => location.hash.slice(1).split("&")[0] || "overview";
let last = 0;

async function show() {
  const wanted = viewOf(), turn = ++last, id = wanted.match(/^object=(\d+)$/);
  const current = id ? "objects" : wanted;
  const view = VIEWS.find(([name]) => name === current) || VIEWS[0];
  document.getElementById("tabs").replaceChildren(...VIEWS.map(([name, title]) =>
    el("a", { href: `#${name}`, "aria-current": name === view[0] ? "page" : null }, title)));
  const content = id ? await objectView(Number(id[1])) : await view[2]();
  if (turn !== last) return;
  const main = document.getElementById("main");
  main.replaceChildren(content);
  main.dataset.view = id ? "object" : view[0];
  redraw();
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "light" : "dark";
}

function toggleHelp() {
  const help = document.getElementById("help"), button = document.getElementById("keys");
  help.textContent = KEYS;
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
  if (number >= 1 && number <= VIEWS.length) location.hash = VIEWS[number - 1][0];
  else if (event.key === "/") { event.preventDefault(); document.querySelector("main input[type=search]")?.focus(); }
  else if (event.key === "n" || event.key === "p") {
    const all = objects(), id = Number(viewOf().split("=")[1]), at = all.findIndex((o) => o.id === id);
    const next = all[at + (event.key === "n" ? 1 : -1)];
    if (next) location.hash = `object=${next.id}`;
  } else if (event.key === "t") document.getElementById("theme").click();
  else if (event.key === "h") document.getElementById("hide").click();
  else if (event.key === "?") toggleHelp();
}

async function start() {
  data = JSON.parse(new TextDecoder().decode(await inflate(packed.facts)));
  if (data.results.length) VIEWS.push(["results", "results", resultView]);
  const titles = () => {
    const name = shown(data.report.program).split("/").at(-1) || "program";
    document.title = `NumaMMA: ${name}`;
    document.getElementById("program").textContent = `NumaMMA: ${name}`;
  };
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
}

start().catch((error) => { document.getElementById("main").textContent = `The page cannot be shown: ${error.message}. It needs a browser of 2023 or later (DecompressionStream).`; throw error; });
