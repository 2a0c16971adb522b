// The views of the report: #overview, #objects, #object=3, #threads, #cartography, #results.

start(() => ({
  views: [["overview", "overview", overview], ["objects", "objects", objectList], ["threads", "threads", threadsView],
    ["cartography", "cartography", cartographyView], ...(data.results.length ? [["results", "results", resultView]] : [])],
  keys: "n and p: next and previous object, + - and arrows in a picture of pages.",
  title: () => baseOf(data.report.program),
  route: (wanted) => {
    const id = wanted.match(/^object=(\d+)$/);
    return id && { tab: "objects", name: "object", content: () => objectView(Number(id[1])) };
  },
  key: (event) => {
    if (event.key !== "n" && event.key !== "p") return;
    const all = objects(), id = Number(viewOf().split("=")[1]), at = all.findIndex((o) => o.id === id);
    const next = all[at + (event.key === "n" ? 1 : -1)];
    if (next) location.hash = `object=${next.id}`;
  },
}));
