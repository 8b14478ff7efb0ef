// The lanes and what is in them, made of the events. A moment is a number of steps from the beginning.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const END = Math.max(1, data.executed.length);
const CLASSES = ["mma", "copy", "sync", "shared", "memory", "other"];
const CLASS_OF = {
  "matrix multiply": "mma", "asynchronous copy": "copy", synchronization: "sync",
  "shared load": "shared", "shared store": "shared", "matrix move": "shared",
};
const classOf = (kind) => CLASS_OF[kind] || (/load$|store$|atomic|cache/.test(kind) ? "memory" : "other");
const opcodeOf = (text) => text.replace(/^@\S+ /, "").split(" ")[0];
const isTensor = (text) => opcodeOf(text).startsWith("tcgen05");
const classOfPlace = data.instructions.map(({ kind, text }) => CLASSES.indexOf(
  kind === "matrix move" && isTensor(text) ? "mma" : classOf(kind)));
const place = (step) => data.instructions[data.executed[step]];
const warpsOf = (step) => data.together[data.who[step]];
const ctaOf = (warp) => Math.floor(warp / data.warps);
const several = data.ctas.length > 1;

const HEIGHT = { warp: 18, tile: 18, product: 18, steps: 18, mbarrier: 20, barrier: 14, columns: 18, allocation: 12, commit: 12 };
const GAP = 3, TITLE = 22;
const lanes = [], titles = [];
let height = 0;

function addLane(kind, cta, name, items, more) {
  const lane = { kind, cta, name, items, top: height, height: HEIGHT[kind], number: lanes.length, ...more };
  height += lane.height + GAP;
  for (const item of items) item.lane = lane;
  lanes.push(lane);
}

function addTitle(text) {
  titles.push({ text, top: height + 8 });
  height += TITLE;
}

/** The steps in which someone for whom it is so executes something. */
function stepsWhere(test) {
  const steps = [];
  for (let step = 0; step < data.executed.length; step += 1) {
    if (data.executed[step] >= 0 && test(step)) steps.push(step);
  }
  return Int32Array.from(steps);
}

/** Rows of spans that do not overlap, each in the first row that has room. */
function packed(items) {
  const rows = [];
  for (const item of [...items].sort((a, b) => a.from - b.from)) {
    let row = rows.find((one) => one[one.length - 1].to <= item.from);
    if (!row) rows.push(row = []);
    row.push(item);
  }
  return rows;
}

const end = (moment) => (moment === null ? END : moment);

function warpLanes(cta) {
  for (let warp = cta * data.warps; warp < (cta + 1) * data.warps; warp += 1) {
    const acts = data.together.map((warps) => warps.includes(warp));
    const waits = data.waits.filter((one) => one.warps.includes(warp))
      .map((one) => ({ kind: "wait", from: one.since, to: one.until, wait: one, warp }))
      .sort((a, b) => a.from - b.from);
    addLane("warp", cta, `warp ${warp - cta * data.warps}`, waits, {
      warp, steps: stepsWhere((step) => acts[data.who[step]]),
    });
  }
}

function tileLanes(cta) {
  const tiles = data.tiles.filter((tile) => tile.span.cta === cta);
  if (tiles.length) addTitle("shared memory, by copies");
  for (const tile of tiles) {
    const items = tile.fills.map((fill) => {
      const first = data.flights[fill.flights[0]];
      const last = fill.read.length ? fill.read[fill.read.length - 1] + 1 : end(fill.landed);
      return { kind: "fill", from: fill.since, to: Math.max(last, end(fill.landed)), fill, tile, first,
        drains: !first.writes.length };
    });
    addLane("tile", cta, `${tile.name} ${bytes(tile.span.end - tile.span.start)}`, items, { tile });
  }
}

function tensorLanes(cta) {
  const mma = stepsWhere((step) => CLASSES[classOfPlace[data.executed[step]]] === "mma"
    && !/^(wgmma|tcgen05)/.test(opcodeOf(place(step).text)) && warpsOf(step).some((warp) => ctaOf(warp) === cta));
  const items = (kind, test) => data.flights.map((flight, number) => ({ flight, number })).filter(({ flight }) => test(flight))
    .map(({ flight, number }) => ({ kind, from: flight.step, to: end(flight.landed), flight, number }));
  const products = items("product", (flight) => flight.queue === "products" && ctaOf(flight.warps[0]) === cta);
  const work = items("product", (flight) => flight.queue === "tensor_work" && flight.cells_written.some((span) => span.cta === cta));
  const commits = items("commit", (flight) => flight.work === "commit" && ctaOf(flight.warps[0]) === cta);
  if (mma.length || products.length || work.length) addTitle("tensor cores");
  if (mma.length) addLane("steps", cta, "mma", [], { steps: mma });
  for (const row of packed(products)) addLane("product", cta, "wgmma", row);
  for (const row of packed(work)) addLane("product", cta, "tcgen05", row);
  for (const row of packed(commits)) addLane("commit", cta, "commits", row);
}

const columnsOf = ({ start, end: last }) => `columns ${start} to ${last - 1}`;

function columnLanes(cta) {
  const allocated = data.allocations.filter((one) => one.cta === cta), filled = data.columns.filter(({ span }) => span.cta === cta);
  if (allocated.length || filled.length) addTitle("Tensor Memory");
  const items = allocated.map((one) => ({ kind: "allocation", from: one.since, to: end(one.until), allocation: one }));
  for (const row of packed(items)) addLane("allocation", cta, "allocated", row);
  for (const columns of filled) {
    addLane("columns", cta, columnsOf(columns.span), columns.fills.map((fill) => {
      const last = fill.read.length ? fill.read[fill.read.length - 1] + 1 : end(fill.landed);
      return { kind: "columns", from: fill.since, to: Math.max(last, end(fill.landed)), fill, columns };
    }));
  }
}

function mbarrierLanes(cta) {
  const mine = data.mbarriers.map((one, number) => ({ ...one, number })).filter((one) => one.cta === cta);
  if (mine.length) addTitle("mbarriers");
  for (const one of mine) {
    const items = one.states.map((state, at) => ({ kind: "state", from: state.at, state, mbarrier: one,
      to: at + 1 < one.states.length ? one.states[at + 1].at : end(one.unmade) }));
    const most = Math.max(1, ...one.states.map((state) => state.tx));
    addLane("mbarrier", cta, one.name, items, { mbarrier: one, most });
  }
}

function barrierLanes(cta) {
  const mine = data.barriers.filter((one) => one.cta === cta);
  if (mine.length) addTitle(cta === null ? "barrier of the cluster" : "barriers");
  for (const name of new Set(mine.map((one) => one.name))) {
    const items = mine.filter((one) => one.name === name).map((barrier) => (
      { kind: "barrier", from: barrier.arrivals[0], to: end(barrier.complete), barrier }));
    addLane("barrier", cta, cta === null ? name : `barrier ${name}`, items);
  }
}

function bytes(count) {
  const kib = count / 1024;
  return Number.isInteger(kib) && kib ? `${kib} KiB` : `${count.toLocaleString("en-US")} B`;
}

data.ctas.forEach((index, cta) => {
  addTitle(several ? `CTA (${index.join(", ")}), rank ${cta}` : "warps");
  warpLanes(cta);
  tileLanes(cta);
  tensorLanes(cta);
  columnLanes(cta);
  mbarrierLanes(cta);
  barrierLanes(cta);
});
barrierLanes(null);

/** The item of a lane at a moment, null where there is none. */
function itemAt(lane, moment) {
  const item = lane.items.find((one) => one.from <= moment && moment < Math.max(one.to, one.from + 1));
  if (item) return item;
  if (!lane.steps) return null;
  const step = Math.floor(moment);
  return lane.steps.length && lane.steps[below(lane.steps, step)] === step ? stepItem(lane, step) : null;
}

const stepItem = (lane, step) => ({ kind: "step", lane, step, from: step, to: step + 1 });

/** The position of the last of sorted numbers that is not above a limit. */
function below(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** What an event has to do with in other lanes. */
function related(item) {
  const found = [], among = (kind, test) => lanes.filter((lane) => lane.kind === kind)
    .forEach((lane) => found.push(...lane.items.filter(test)));
  const stepsOf = (step, warps) => lanes.filter((lane) => lane.kind === "warp" && warps.includes(lane.warp))
    .forEach((lane) => found.push(stepItem(lane, step)));
  const phase = (number, which) => among("mbarrier",
    (one) => one.mbarrier.number === number && one.state.phase === which);
  switch (item.kind) {
    case "step":
      if (data.executed[item.step] < 0) break;
      among("tile", (one) => one.fill.flights.some((number) => data.flights[number].step === item.step)
        || one.fill.read.includes(item.step));
      among("product", (one) => one.flight.step === item.step);
      among("commit", (one) => one.flight.step === item.step);
      among("columns", (one) => one.fill.flights.some((number) => data.flights[number].step === item.step)
        || one.fill.read.includes(item.step));
      among("allocation", (one) => [one.from, one.to].includes(item.step + 1));
      among("mbarrier", (one) => one.from === item.step + 1);
      among("barrier", (one) => one.barrier.arrivals.includes(item.step));
      break;
    case "wait":
      stepsOf(item.wait.step, [item.warp]);
      if (item.wait.mbarrier === null) among("barrier", (one) => one.to === item.to);
      else among("mbarrier", (one) => one.mbarrier.number === item.wait.mbarrier && one.to === item.to);
      break;
    case "fill":
      for (const number of item.fill.flights) {
        const flight = data.flights[number];
        stepsOf(flight.step, flight.warps);
        for (const [mbarrier, which] of flight.mbarriers) phase(mbarrier, which);
      }
      for (const step of item.fill.read) stepsOf(step, warpsOf(step));
      break;
    case "product":
      stepsOf(item.from, item.flight.warps);
      among("tile", (one) => one.fill.read.includes(item.from));
      among("columns", (one) => one.fill.flights.includes(item.number) || one.fill.read.includes(item.from));
      among("commit", (one) => one.flight.warps[0] === item.flight.warps[0] && one.from + 1 === item.flight.committed);
      break;
    case "commit":
      stepsOf(item.from, item.flight.warps);
      among("product", (one) => one.flight.queue === "tensor_work" && one.flight.warps[0] === item.flight.warps[0]
        && one.flight.committed === item.from + 1);
      for (const [mbarrier, which] of item.flight.mbarriers) phase(mbarrier, which);
      break;
    case "columns":
      for (const number of item.fill.flights) stepsOf(data.flights[number].step, data.flights[number].warps);
      for (const step of item.fill.read) stepsOf(step, warpsOf(step));
      among("product", (one) => item.fill.flights.includes(one.number));
      among("allocation", (one) => one.allocation.cta === item.columns.span.cta && one.allocation.start <= item.columns.span.start
        && item.columns.span.end <= one.allocation.end && one.from <= item.from && item.from < one.to);
      break;
    case "allocation":
      for (const moment of [item.from, item.allocation.until]) if (moment) stepsOf(moment - 1, warpsOf(moment - 1));
      break;
    case "state":
      phase(item.mbarrier.number, item.state.phase);
      among("tile", (one) => one.fill.flights.some((number) => data.flights[number].mbarriers.some(
        ([mbarrier, which]) => mbarrier === item.mbarrier.number && which === item.state.phase)));
      among("warp", (one) => one.wait.mbarrier === item.mbarrier.number && one.to === item.to);
      break;
    case "barrier":
      for (const step of item.barrier.arrivals) stepsOf(step, warpsOf(step));
      among("warp", (one) => one.wait.mbarrier === null && one.to === item.to);
      break;
  }
  return [...new Set(found)];
}
