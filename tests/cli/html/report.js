// The views of the report.

async function lists() {
  await go("objects", "objects");
  seen.objects = [...rows()].slice(0, 20).map((row) => {
    const cells = row.querySelectorAll("td");
    return { id: Number(row.dataset.id), size: value(cells[3]), cost: value(cells[4]), share: value(cells[5]) };
  });
  const size = [...main().querySelectorAll("th button")].find((b) => b.textContent === "size");
  size?.click();
  seen.steps.sorted = [...rows()].map((row) => value(row.querySelectorAll("td")[3]));
  const search = main().querySelector("input[type=search]");
  if (search) {
    const before = rows().length;
    search.value = "no such object anywhere";
    search.dispatchEvent(new Event("input"));
    seen.steps.searched = [before, rows().length];
  }
}

async function one() {
  const first = data.report.objects.find((o) => data.tiles[o.id]);
  if (!first) return;
  await go(`object=${first.id}`, "object");
  const where = () => document.getElementById("where");
  const select = document.getElementById("quantity");
  const totals = {};
  for (const name of ["accesses", "reads", "writes", "cost"]) {
    select.value = name;
    select.dispatchEvent(new Event("change"));
    totals[name] = Number(where().dataset.total);
  }
  const before = where().textContent;
  main().querySelector("canvas[tabindex]").dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
  seen.steps.zoomed = [before, where().textContent];
  document.getElementById("whole").click();
  seen.steps.unzoomed = where().textContent;
  const named = (label) => main().querySelector(`canvas[aria-label^="${label}"]`);
  seen.evidence = {
    spectrum: Boolean(named("spectrum")), peak: Math.max(0, ...(data.spectra[first.id]?.strengths || [])),
  };
  seen.one = { id: first.id, unpaged: data.details[first.id].unpaged, totals };
  await pause(30);
  const explained = data.report.objects.find((o) => data.details[o.id]?.source.length);
  if (!explained) return;
  await go(`object=${explained.id}`, "object");
  seen.evidence.source = [...main().querySelectorAll("figure")].map((f) => [f.querySelector("figcaption").textContent, f.querySelector(".meant").textContent]);
}

async function slider() {
  await go("cartography", "cartography");
  const input = document.getElementById("slider");
  if (!input) return;
  const losses = [];
  const start = performance.now();
  for (const at of [0, 50, 100]) {
    input.value = at;
    input.dispatchEvent(new Event("input"));
    losses.push(document.getElementById("loss").textContent);
  }
  seen.steps.losses = losses;
  seen.steps.sliderMs = (performance.now() - start) / 3;
}

async function drive() {
  await ready();
  await go("overview", "overview");
  const changes = main().querySelector('section[aria-label="What to change in the source"]');
  seen.fixes = [...changes?.querySelectorAll("tbody tr") ?? []].map((row) =>
    ({ kind: row.cells[0].querySelector(":scope > div > div").textContent, how: row.cells[0].querySelector(".soft").textContent,
      link: row.cells[1].querySelector("a")?.hash ?? null, gain: row.cells[3].textContent }));
  seen.changes = changes?.textContent ?? null;
  await lists();
  await one();
  await go("threads", "threads");
  seen.places = [...main().querySelectorAll("canvas")].map((c) => c.getAttribute("aria-label"));
  await slider();
  if (data.results.length) {
    await go("results", "results");
    seen.bars = [...main().querySelectorAll(".stack")].map((b) => b.getAttribute("aria-label"));
  }
  window.dispatchEvent(new KeyboardEvent("keydown", { key: "1" }));
  await pause(100);
  seen.steps.key = main().dataset.view;
  document.getElementById("theme").click();
  await pause(100);
  seen.steps.theme = document.documentElement.dataset.theme;
  document.getElementById("hide").click();
  await pause(100);
  seen.steps.source = main().querySelectorAll("figure").length;
  seen.steps.paths = /\/opt\/\w+\/\w+/.test(main().textContent);
}

drive().catch((e) => seen.errors.push(String(e))).finally(finish);
