// The data of the page: inflated once, tiles when an object is opened.

const packed = JSON.parse(document.getElementById("data").textContent);
let data = null;
const tiles = new Map();

async function inflate(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Reads what pack.rs writes: seven bits to a byte, lowest first.
function reader(raw) {
  let at = 0;
  const next = () => {
    let n = 0, scale = 1, byte;
    do {
      byte = raw[at++];
      n += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return n;
  };
  return { next, list: (length) => Float64Array.from({ length }, next) };
}

const QUANTITIES = [["accesses", "accesses"], ["reads", "reads"], ["writes", "writes"], ["cost", "cost (CPU time)"],
  ["remote", "remote accesses"], ["others", "accesses by others"]];

// The counters of an object, see tile.rs: for each cell its first page, thread and slot, and the quantities.
async function tileOf(id) {
  if (tiles.has(id)) return tiles.get(id);
  const head = data.tiles[id];
  if (!head) return null;
  const numbers = reader(await inflate(packed.tiles[id]));
  const length = numbers.next();
  const bins = numbers.list(length);
  for (let i = 1; i < length; i++) bins[i] += bins[i - 1];
  const tile = { head, length, bins, threads: numbers.list(length), slots: numbers.list(length) };
  for (const name of ["reads", "writes", "cost", "remote", "others"]) tile[name] = numbers.list(length);
  tile.accesses = tile.reads.map((n, i) => n + tile.writes[i]);
  tile.touchers = numbers.list(numbers.next());
  tile.nodes = numbers.list(numbers.next());
  tiles.set(id, tile);
  return tile;
}

let pictures = null;
async function picturesOf() {
  if (pictures) return pictures;
  const { rows, groups } = data.pictures, slots = data.slots;
  const map = reader(await inflate(packed.cartography));
  const by = reader(await inflate(packed.threads));
  pictures = {
    objects: map.list(rows), own: map.list(rows * slots), shared: map.list(rows * slots),
    threadOwn: by.list(groups * slots), threadShared: by.list(groups * slots), sharing: by.list(groups * groups),
    places: data.pictures.places ? by.list(groups * slots) : null, changes: data.pictures.places ? by.list(groups * slots) : null,
  };
  return pictures;
}

const objects = () => data.report.objects;
const objectOf = (id) => objects().find((o) => o.id === id);
const pageSize = () => data.report.page_size;
const slotSeconds = () => data.report.duration_s / data.slots;
const threadName = (id) => {
  const thread = data.report.threads[id];
  return thread ? `thread ${id} ${thread.name}` : `thread ${id}`;
};
