// Threads: what each does with memory over time, whose pages it uses, where it ran.

async function threadsView() {
  const pictures = await picturesOf(), { groups, threads_per_group: per } = data.pictures, slots = data.slots;
  const label = (group) => per > 1 ? `threads ${group * per} to ${group * per + per - 1}` : threadName(group);
  const top = most(pictures.threadOwn.map((n, i) => n + pictures.threadShared[i])), back = ground();
  const own = OKABE[2], others = OKABE[5], height = Math.max(200, Math.min(900, groups * 14 + 60));
  const of = (g, s) => [pictures.threadOwn[g * slots + s], pictures.threadShared[g * slots + s]];
  const gantt = grid("memory Gantt: threads over time", { columns: slots, rows: groups, height,
    x: { title: "time of the run", ticks: ticks(0, data.report.duration_s, seconds) }, y: { title: "thread", ticks: threadTicks(groups, per) },
    color: (g, s) => { const [a, b] = of(g, s); return a + b ? mix(back, mix(own, others, b / (a + b)), .25 + .75 * Math.sqrt((a + b) / top)) : back; },
    words: (g, s) => { const [a, b] = of(g, s); return `${shown(label(g))} at ${seconds(s * slotSeconds())}: ${count(a)} accesses to pages of its own, ${count(b)} to shared ones`; } });
  const topShared = most(pictures.sharing);
  const sharing = grid("sharing matrix: threads by first toucher", { columns: groups, rows: groups, height: Math.max(260, height),
    x: { title: "thread that touched the page first", ticks: threadTicks(groups, per) }, y: { title: "thread that accesses", ticks: threadTicks(groups, per) },
    color: (g, t) => { const n = pictures.sharing[g * groups + t]; return n ? viridis(bright(n, topShared)) : back; },
    words: (g, t) => `${shown(label(g))}: ${count(pictures.sharing[g * groups + t])} accesses to pages that ${shown(label(t))} touched first` });
  const nodesOf = (t) => [...new Set(t.cpus.map((c) => data.report.nodes.find((n) => n.cpus.includes(c))?.id ?? "?"))].join(" ");
  const columns = [
    { title: "id", number: true, value: (t) => t.id },
    { title: "name", value: (t) => t.name, words: (t) => shown(t.name) },
    { title: "start routine", class: "name", value: (t) => t.start_routine, words: (t) => shown(t.start_routine ?? "-") },
    { title: "worker", number: true, value: (t) => t.rank, words: (t) => t.rank === null ? "-" : `${t.rank} of ${t.workers}` },
    { title: "start", number: true, value: (t) => t.start_s, words: (t) => seconds(t.start_s) },
    { title: "end", number: true, value: (t) => t.end_s, words: (t) => seconds(t.end_s) },
    { title: "samples", number: true, value: (t) => t.samples, words: (t) => count(t.samples) },
    { title: "CPUs", value: (t) => t.cpus.slice(0, 12).join(" ") + (t.cpus.length > 12 ? " ..." : "") },
    { title: "nodes", value: nodesOf },
    { title: "CPU changes", number: true, value: (t) => t.migrations, words: (t) => count(t.migrations) },
  ];
  return el("div", {}, el("div", { class: "columns" },
    section("Memory Gantt", gantt, legend([[own, "pages of its own"], [others, "pages that several threads use"]]), soft("Stronger colours are more accesses. A page counts as its own where no other thread was seen at it during the run.")),
    topShared === 0 ? section("Who uses whose pages", soft("No first touch of an accessed page was recorded.")) : section("Who uses whose pages", sharing, soft("On the diagonal threads use pages that they touched first: local under first touch. A column that is bright from top to bottom is a thread that initialised data for all."))),
    placesOf(pictures),
    section("Threads, in order of creation", data.report.threads.length ? table("threads", columns, data.report.threads,
      { search: (t) => `${t.name} ${t.start_routine ?? ""}` }) : soft("No thread was recorded.")));
}
