// What is said of an event.

const plural = (count, what) => `${count.toLocaleString("en-US")} ${what}${count === 1 ? "" : "s"}`;
const number = (value) => value.toLocaleString("en-US");
const hex = (value) => `0x${value.toString(16)}`;
const ofRank = (cta) => (several ? ` of rank ${cta}` : "");
const range = (span) => `${hex(span.start)} to ${hex(span.end)}${ofRank(span.cta)}`;

const cellsOf = (span) => `${columnsOf(span)} of lanes ${span.lanes[0]} to ${span.lanes[1] - 1}${ofRank(span.cta)}`;

/** Name warps, those of one CTA by ranges. */
function warpNames(warps) {
  const parts = [];
  for (const warp of warps) {
    const last = parts[parts.length - 1];
    if (last && last.cta === ctaOf(warp) && last.to === warp - 1) last.to = warp;
    else parts.push({ cta: ctaOf(warp), from: warp, to: warp });
  }
  const short = (warp) => warp % data.warps;
  const names = parts.map(({ cta, from, to }) => (from === to ? `${short(from)}` : `${short(from)} to ${short(to)}`)
    + ofRank(cta));
  return `warp${warps.length === 1 ? "" : "s"} ${names.join(", ")}`;
}

/** The step that ends an event's story in the program, for its line of PTX. */
function stepOf(item) {
  switch (item.kind) {
    case "step": return item.step;
    case "wait": return item.wait.step;
    case "fill": return item.first.step;
    case "product": case "commit": case "columns": return item.from;
    case "barrier": return item.barrier.arrivals[item.barrier.arrivals.length - 1];
    default: return item.from - 1;
  }
}

function wordsOf(item) {
  switch (item.kind) {
    case "step": return stepWords(item);
    case "wait": return waitWords(item);
    case "fill": return fillWords(item);
    case "product": return item.flight.queue === "products" ? productWords(item) : tensorWords(item);
    case "commit": return { title: "commit", facts: [["by", warpNames(item.flight.warps)], ["began", number(item.from)],
      ["behind", plural(data.flights.filter((one) => one.queue === "tensor_work" && one.committed === item.from + 1).length, "operation")],
      ...flightFacts(item.flight)] };
    case "columns": return columnsWords(item);
    case "allocation": return { title: `${columnsOf(item.allocation)} allocated`, facts: [["columns", number(item.allocation.end - item.allocation.start)],
      ["from", number(item.from)], ["until", item.allocation.until === null ? "never given back" : number(item.to)]] };
    case "state": return stateWords(item);
    default: return barrierWords(item);
  }
}

function stepWords({ step }) {
  const facts = [["step", number(step)], ["by", warpNames(warpsOf(step))], ["kind", place(step).kind]];
  for (const one of data.accesses.filter((access) => access.step === step)) {
    facts.push([one.verb, `${bytes(one.nbytes)}, ${hex(one.low)} to ${hex(one.high)} of ${one.memory}`]);
  }
  for (const flight of data.flights.filter((one) => one.step === step)) facts.push(...flightFacts(flight));
  return { title: opcodeOf(place(step).text), facts };
}

function flightFacts(flight) {
  const facts = [];
  if (flight.nbytes) facts.push(["moves", bytes(flight.nbytes)]);
  if (flight.writes.length) facts.push(["writes", flight.writes.map(range).join(", ")]);
  if (flight.reads.length) facts.push(["reads", flight.reads.map(range).join(", ")]);
  if (flight.shape) facts.push(["multiplies", `${flight.shape}${flight.adds ? ", added to D" : ""}`]);
  if (flight.cells_written.length) facts.push(["to cells", flight.cells_written.map(cellsOf).join(", ")]);
  if (flight.cells_read.length) facts.push(["from cells", flight.cells_read.map(cellsOf).join(", ")]);
  if (flight.far) {
    facts.push([flight.writes.length ? "from" : "to", `${hex(flight.low)} to ${hex(flight.high)} of ${flight.far}`]);
  }
  const group = flight.queue === "tensor_work" ? "commit" : "group";
  if (flight.group !== null) facts.push([group, `${flight.group}, ${group === "commit" ? "" : "committed "}at ${number(flight.committed)}`]);
  for (const [mbarrier, phase] of flight.mbarriers) {
    const { name, cta } = data.mbarriers[mbarrier];
    facts.push(["tells", `${name}${ofRank(cta)}, phase ${phase}`]);
  }
  facts.push(["landed", flight.landed === null ? "not while this was watched"
    : `at ${number(flight.landed)}, ${plural(flight.landed - flight.step, "step")} after its beginning`]);
  return facts;
}

function waitWords({ wait, warp }) {
  const which = wait.mbarrier === null ? null : data.mbarriers[wait.mbarrier];
  const facts = [["who", warpNames([warp])], ["from", number(wait.since)], ["until", number(wait.until)],
    ["for", plural(wait.until - wait.since, "step") + " of others"]];
  if (which) facts.push(["mbarrier", which.name], ...phaseFacts(which, wait.until - 1));
  const by = causeOf(wait.until - 1);
  if (by) facts.push(["ended by", by]);
  return { title: which ? `waits for ${which.name}` : "waits at a barrier", facts };
}

/** Who brought a moment about: an instruction or a landing. */
function causeOf(step) {
  if (step < 0 || step >= END) return null;
  if (data.executed[step] < 0) {
    const landed = data.flights.filter((one) => one.landed === step + 1), commit = landed.find((one) => one.work === "commit");
    if (commit) return `the commit of line ${place(commit.step).line}, behind what it waited for`;
    return landed.length ? `a copy of ${bytes(landed[0].nbytes)} that landed` : "copies that landed";
  }
  return `${opcodeOf(place(step).text)} of ${warpNames(warpsOf(step))}, line ${place(step).line}`;
}

function phaseFacts(mbarrier, moment) {
  const state = [...mbarrier.states].reverse().find((one) => one.at <= moment);
  if (!state) return [];
  return [["phase", `${state.phase} (parity ${state.phase % 2})`],
    ["pending", `${state.pending} of ${plural(mbarrier.expected, "arrival")}`],
    ["tx", state.tx ? `${number(state.tx)} bytes to come` : "no bytes to come"]];
}

function fillWords({ fill, tile, first, drains }) {
  const facts = [["shared", range(tile.span)], ["moves", bytes(fill.nbytes)],
    ["by", `${plural(fill.flights.length, "copy").replace("copys", "copies")} of ${warpNames(first.warps)}`],
    ["began", number(fill.since)]];
  facts.push(["landed", fill.landed === null ? "not while this was watched" : number(fill.landed)]);
  if (fill.read.length) {
    const [since, until] = [fill.read[0], fill.read[fill.read.length - 1]].map(number);
    facts.push(["read", since === until ? `at ${since}` : `${plural(fill.read.length, "time")}, ${since} to ${until}`]);
  } else if (!drains) facts.push(["read", "never"]);
  const far = new Set(fill.flights.map((one) => data.flights[one].far).filter(Boolean));
  if (far.size) facts.push([drains ? "to" : "from", [...far].join(", ")]);
  const about = flightFacts(first).filter(([name]) => ["group", "tells"].includes(name));
  return { title: `${tile.name}, ${drains ? "copy out" : "fill"} ${fill.number}`, facts: [...facts, ...about] };
}

function productWords({ flight }) {
  const tiles = data.tiles.filter((tile) => tile.fills.some((fill) => fill.read.includes(flight.step)));
  const facts = [["by", warpNames(flight.warps)], ["began", number(flight.step)], ...flightFacts(flight)];
  if (tiles.length) facts.push(["tiles", tiles.map((tile) => tile.name).join(", ")]);
  return { title: "product of a warpgroup", facts };
}

/** What tensor cores do with Tensor Memory, for one CTA or both of a pair. */
function tensorWords({ flight }) {
  const pair = new Set(flight.cells_written.map((span) => span.cta)).size > 1 ? " of a pair" : "";
  const facts = [["by", warpNames(flight.warps)], ["began", number(flight.step)], ...flightFacts(flight)];
  if (data.unverified.includes(place(flight.step).line)) facts.push(["bits", "unverified: nobody has measured them"]);
  return { title: `${flight.work}${pair}`, facts };
}

function columnsWords({ fill, columns }) {
  const flights = fill.flights.map((one) => data.flights[one]), work = [...new Set(flights.map((one) => one.work))];
  const facts = [["cells", cellsOf(columns.span)],
    ["by", work.map((one) => `${flights.filter((flight) => flight.work === one).length} x ${one}`).join(", ")],
    ["began", number(fill.since)], ["landed", fill.landed === null ? "not while this was watched" : number(fill.landed)]];
  if (fill.nbytes) facts.push(["moves", bytes(fill.nbytes)]);
  const shape = flights.find((one) => one.shape);
  if (shape) facts.push(["multiplies", shape.shape]);
  const [since, until] = [fill.read[0], fill.read[fill.read.length - 1]];
  facts.push(["read", fill.read.length ? `${plural(fill.read.length, "time")}, ${number(since)} to ${number(until)}` : "never"]);
  return { title: `${columnsOf(columns.span)}, fill ${fill.number}`, facts };
}

function stateWords({ mbarrier, state, from, to }) {
  const facts = [...phaseFacts(mbarrier, from), ["address", hex(mbarrier.address) + ofRank(mbarrier.cta)], ["from", number(from)], ["until", number(to)]];
  const by = causeOf(from - 1);
  if (by) facts.push(["made so by", by]);
  return { title: `${mbarrier.name}, phase ${state.phase}`, facts };
}

function barrierWords({ barrier }) {
  const warps = [...new Set(barrier.arrivals.flatMap(warpsOf))].sort((a, b) => a - b);
  const last = barrier.arrivals[barrier.arrivals.length - 1];
  return { title: barrier.cta === null ? "barrier of the cluster" : `barrier ${barrier.name}`,
    facts: [["came", warpNames(warps)], ["first", number(barrier.arrivals[0])],
      ["last", `${number(last)}, ${warpNames(warpsOf(last))}`],
      ["complete", barrier.complete === null ? "not while this was watched" : number(barrier.complete)]] };
}
