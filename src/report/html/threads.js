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
  const { migration, kinds } = data.report;
  if (data.report.threads.some((t) => t.waits !== null)) {
    columns.push({ title: "waits", number: true, value: (t) => t.waits_for_threads, words: (t) => t.waits_for_threads === null ? "?" : count(Math.round(t.waits_for_threads)) });
    columns.push({ title: "blocked", number: true, value: (t) => t.blocked_s, words: (t) => t.blocked_s === null ? "?" : seconds(t.blocked_s) });
  }
  const score = migration && soft(`Migration score ${Math.round(migration.score)}: waits for other threads, after which a thread may be on another CPU, per thread and second; ${migration.score > migration.threshold ? "above" : "not above"} ${migration.threshold}${migration.bound_share ? `; ${share(migration.bound_share)} of them of threads that are bound and stay where they are` : ""}${migration.crowded_share ? `; ${share(migration.crowded_share)} of them in OpenMP teams with more threads than CPUs, which do not count` : ""}.`);
  const kindColumns = [
    { title: "runs", class: "name", value: (k) => k.name, words: (k) => shown(k.name) },
    { title: "threads", number: true, value: (k) => k.threads },
    { title: "accesses", number: true, value: (k) => k.accesses, words: (k) => count(k.accesses) },
    { title: "threads that its work needs", number: true, value: (k) => k.proposed_threads },
  ];
  return el("div", {}, el("div", { class: "columns" },
    section("Memory Gantt", gantt, legend([[own, "pages of its own"], [others, "pages that several threads use"]]), soft("Stronger colours are more accesses. A page counts as its own where no other thread was seen at it during the run.")),
    topShared === 0 ? section("Who uses whose pages", soft("No first touch of an accessed page was recorded.")) : section("Who uses whose pages", sharing, soft("On the diagonal threads use pages that they touched first: local under first touch. A column that is bright from top to bottom is a thread that initialised data for all."))),
    placesOf(pictures),
    section("Threads, in order of creation", data.report.threads.length ? table("threads", columns, data.report.threads,
      { search: (t) => `${t.name} ${t.start_routine ?? ""}` }) : soft("No thread was recorded."), ...(score ? [score] : [])),
    ...(kinds.length ? [section("Threads by kind, of those that run beside each other", table("kinds", kindColumns, kinds, {}))] : []));
}
