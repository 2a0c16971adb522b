// What to change in the source, as `numamma fixes` lists it.

const how = (f) => [f.by_policy ? "done by the policy, too" : "in the source only", f.is_hint ? "a hint" : ""].filter(Boolean).join(", ");
const FIXES = [
  { title: "change", value: (f) => f.kind, node: (f) => el("div", { title: f.about }, el("div", {}, f.kind), el("div", { class: "soft" }, how(f))) },
  { title: "object", class: "name", value: (f) => f.object ?? "", node: (f) => f.object === null ? "(threads)"
    : f.id === null ? el("span", { class: "long" }, shown(f.object)) : link(f.id, f.object) },
  { title: "cost", number: true, value: (f) => f.share, words: (f) => share(f.object === null ? null : f.share), help: "share of the CPU time at memory accesses" },
  { title: "expected gain", class: "name", value: (f) => f.speedup ?? 0, words: (f) => shown(f.gain) },
  { title: "what, why and where", class: "name", value: (f) => [f.what, f.why, ...f.places].join("; "), node: (f) => el("div", {},
    el("div", {}, shown(f.what)), el("div", { class: "soft" }, shown(f.why)), f.places.map((place) => el("div", {}, shown(place)))) },
];

// Of all objects, or of one.
function fixes(id = null) {
  const list = (data.fixes || []).filter((f) => id === null || f.id === id);
  const unjudged = id === null && data.unjudged ? soft(data.unjudged.map(shown).join(" ")) : null;
  if (!list.length) return id === null && data.fixes ? section("What to change in the source", soft("Nothing was found."), unjudged) : null;
  return section("What to change in the source", table("fixes", id === null ? FIXES : FIXES.filter((c) => c.title !== "object" && c.title !== "cost"), list, { limit: 20 }),
    soft("The changes that `numamma fixes` lists, those that save most first. Gains are speed-ups of the whole run with this change alone, and the range in which the samples leave them (95 %). A hint is a guess from what samples at pages show."), unjudged);
}
