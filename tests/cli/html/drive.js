// What the steps on all pages have in common. They use the page as a reader does; what they saw goes into the element
// `driven`, which the test reads.
const seen = { errors: [], views: {}, steps: {}, axe: {} };
window.addEventListener("error", (e) => seen.errors.push(e.message));
window.addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const main = () => document.getElementById("main");
const rows = () => main().querySelectorAll("tbody tr[data-id]");
const value = (cell) => Number(cell.dataset.value);

async function go(hash, view) {
  location.hash = hash;
  for (let i = 0; i < 200 && main().dataset.view !== view; i++) await pause(10);
  await pause(60);
  if (typeof axe !== "undefined") await judged(view);
  const canvases = [...main().querySelectorAll("canvas")];
  seen.views[view] = {
    shown: main().dataset.view, sections: main().querySelectorAll("section").length,
    empty: canvases.filter((c) => !c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((n) => n)).length,
    pictures: canvases.length, unnamed: canvases.filter((c) => !c.getAttribute("aria-label")).length,
  };
}

// Violations of the rules for readers with other senses and devices, in light and in dark.
async function judged(view) {
  for (const name of ["light", "dark"]) {
    theme(name);
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    const words = violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary}`).join(" | ")}`);
    if (words.length) seen.axe[`${view} ${name}`] = words;
  }
  theme("light");
}

async function ready() {
  for (let i = 0; i < 500 && !document.documentElement.dataset.ready; i++) await pause(10);
  seen.ready = Boolean(document.documentElement.dataset.ready);
}

function finish() {
  seen.injected = typeof window.injected;
  seen.markup = main().querySelectorAll("script, img, iframe, b").length;
  const out = document.createElement("pre");
  out.id = "driven";
  out.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
  document.body.append(out);
}
