// The page of a difference.

async function drive() {
  await ready();
  await go("overview", "overview");
  seen.verdict = main().querySelector(".verdict").textContent;
  await go("objects", "objects");
  const rows = () => [...main().querySelectorAll("tbody tr")];
  seen.objects = rows().map((row) => {
    const cells = [...row.querySelectorAll("td")];
    return { name: cells[0].textContent, before: value(cells[4]), after: value(cells[5]), points: value(cells[6]), bar: cells[7].querySelector("[role=img]")?.getAttribute("aria-label") ?? null };
  });
  [...main().querySelectorAll("th button")].find((b) => b.textContent === "cost after").click();
  seen.steps.sorted = rows().map((row) => value(row.querySelectorAll("td")[5]));
}

drive().catch((e) => seen.errors.push(String(e))).finally(finish);
