// Where the threads ran: the node of each over time, or on a machine with one node the CPU, and how often it changed.

function placesOf(pictures) {
  const what = data.pictures.places;
  if (!what) return section("Where the threads ran", soft("The profile holds no CPUs over time: it was summed up while it was recorded (--raw keeps all), or is the sum of several."));
  const { groups, threads_per_group: per } = data.pictures, slots = data.slots, back = ground();
  const all = [...new Set(pictures.places)].filter((p) => p).map((p) => p - 1).sort((a, b) => a - b), many = all.length;
  const colors = new Map(all.map((p, i) => [p, what === "node" ? colorOf(p, all.at(-1) + 1) : colorOf(i, many)]));
  const busy = (at) => pictures.threadOwn[at] + pictures.threadShared[at] > 0;
  const label = (g) => per > 1 ? `threads ${g * per} to ${g * per + per - 1}` : threadName(g);
  const picture = grid(`${what} of the threads over time`, { columns: slots, rows: groups, height: Math.max(200, Math.min(900, groups * 14 + 60)),
    x: { title: "time of the run", ticks: ticks(0, data.report.duration_s, seconds) }, y: { title: "thread", ticks: threadTicks(groups, per) },
    color: (g, s) => { const at = g * slots + s, p = pictures.places[at]; return p ? mix(back, colors.get(p - 1), busy(at) ? 1 : .35) : back; },
    words: (g, s) => { const at = g * slots + s, p = pictures.places[at]; return `${shown(label(g))} at ${seconds(s * slotSeconds())}: ${p ? `${what} ${p - 1}` : "not seen"}, ${count(pictures.changes[at])} changes of the CPU${busy(at) ? "" : ", no access seen"}`; } });
  const changes = Array.from({ length: slots }, (_, s) => { let sum = 0; for (let g = 0; g < groups; g++) sum += pictures.changes[g * slots + s]; return sum; });
  return section(`Where the threads ran: ${what} over time`, picture,
    many <= 16 ? legend(all.map((p) => [colors.get(p), `${what} ${p}`])) : soft("Colours from dark to bright in the order of their numbers."),
    most(changes) ? stacked("changes of the CPU over time", [{ values: changes, color: OKABE[5] }], { title: "time of the run", ticks: ticks(0, data.report.duration_s, seconds) },
      { title: "changes", words: (v) => count(v) }, 140) : soft("No thread was seen to change its CPU."),
    soft("Pale where no access of the thread was seen at that time. A change is counted where two samples of a thread in a row are from different CPUs."));
}
