// PTX and SASS beside the source, coloured by where they come from; the control bits of each instruction in words.

let code = null;

/** Take apart what ptxlab sass says of a program: lines of PTX and instructions, each with the line of the source it comes from. */
function codeOf({ programs: [program] }) {
  const lineOfPtx = (line) => (isCompiled() ? ownLine(program.sources[line] || []) : line);
  const functions = [...program.kernels.map((kernel) => ({ name: kernel.kernel, kernel, instructions: kernel.instructions })),
    ...program.functions.map(({ name, instructions }) => ({ name, instructions }))];
  const rows = functions.flatMap(({ name, instructions }) => instructions.map((one, at) => ({
    ...one, function: name, first: at === 0, origin: lineOfPtx(one.line), waited: waitedFor(instructions, at) })));
  const wanted = [...new Set(rows.map(({ origin }) => origin).filter(Boolean))].sort((a, b) => a - b);
  const colours = new Map(wanted.map((line, at) => [line, (4 * at + Math.floor(at / 8)) % 32]));
  return { program, functions, rows, colours, ptx: program.ptx.split("\n").map((text, at) => ({ text, line: at + 1, origin: lineOfPtx(at + 1) })) };
}

/** Of an instruction that sets a scoreboard, the first after it that waits for that. */
function waitedFor(instructions, at) {
  const { writes, reads } = instructions[at].control;
  return [writes, reads].map((board) => (board === null ? null
    : instructions.slice(at + 1).find(({ control }) => control.waits.includes(board)) || null));
}

const hexAddress = (address) => `0x${address.toString(16).padStart(4, "0")}`;

/** The control bits in columns: scoreboards waited for, the one held until sources are read, until the result is there, and the stall. */
const bitsOf = ({ waits, reads, writes, stall }) =>
  [[0, 1, 2, 3, 4, 5].map((board) => (waits.includes(board) ? board : "·")).join(""), `r${reads ?? "·"}`, `w${writes ?? "·"}`, String(stall).padStart(2)].join(" ");

/** The control bits of an instruction, in words. */
function bitsInWords({ control: { stall, writes, reads, waits, reuse }, waited: [result, sources] }) {
  const until = (one) => (one ? `: ${hexAddress(one.address)} ${one.text.split(" ")[0].replace(/^@!?U?P\d+/, one.text.split(" ")[1])} waits for it` : ": nothing after it waits for it");
  return [
    ["stall", stall ? `${plural(stall, "cycle")} until this warp may issue its next instruction` : "none: it may issue with the next instruction"],
    ...(waits.length ? [["waits", `until ${waits.length > 1 ? "scoreboards" : "scoreboard"} ${waits.join(", ")} ${waits.length > 1 ? "are" : "is"} free: what was begun before and is needed here`]] : []),
    ...(writes === null ? [] : [["writes", `scoreboard ${writes} is held until the result is there${until(result)}`]]),
    ...(reads === null ? [] : [["reads", `scoreboard ${reads} is held until the sources were read${until(sources)}`]]),
    ...(reuse.length ? [["reuse", `source ${reuse.map((slot) => slot + 1).join(", ")} stays in the operand cache for the next instruction`]] : []),
  ];
}

function listing(id, title, rows) {
  const list = element("ol", { class: "code", tabindex: "0", "aria-label": title }, ...rows);
  list.addEventListener("click", (event) => { const row = event.target.closest("li"); if (row) chooseRow(row); });
  list.addEventListener("pointerover", (event) => { const row = event.target.closest("li"); if (row) tellBits(row); });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...list.children], now = all.findIndex((row) => row.classList.contains("at"));
    const next = all[Math.min(all.length - 1, Math.max(0, now + by))];
    all.forEach((row) => row.classList.toggle("at", row === next));
    next.scrollIntoView({ block: "nearest" });
    chooseRow(next);
  });
  return element("section", { class: "listing", id: `listing-${id}` }, element("h3", {}, title), list);
}

const classOf = (origin, extra = "") => `${origin && code.colours.has(origin) ? `origin l${code.colours.get(origin)}` : ""} ${extra}`.trim();

function drawCode(box, [{ result }]) {
  code = codeOf(result);
  const ptx = isCompiled() ? listing("ptx", "PTX", code.ptx.map(({ text, line, origin }) =>
    element("li", { class: classOf(origin), "data-origin": origin, "data-ptx": line }, element("i", {}, String(line)), text.replaceAll("\t", "    ")))) : null;
  const sass = listing("sass", `SASS for ${code.program.arch}`, code.rows.map((row, at) =>
    element("li", { class: classOf(row.origin, row.first ? "first" : ""), "data-origin": row.origin, "data-ptx": row.line, "data-at": at },
      element("i", {}, hexAddress(row.address).slice(2)), element("b", { title: "scoreboards waited for, held until read, held until written; stall" }, bitsOf(row.control)), row.text)));
  box.replaceChildren(
    element("div", { class: "facts" }, ...code.functions.filter(({ kernel }) => kernel).map(({ kernel }) => element("span", {},
      element("b", {}, kernel.kernel), ` ${plural(kernel.registers, "register")}, ${plural(kernel.instructions.length, "instruction")}`,
      kernel.spill_stores ? `, ${kernel.spill_stores} bytes spilled` : "", kernel.occupancy[0] ? `, ${kernel.occupancy[0].warps} of ${kernel.occupancy[0].most_warps} warps in an SM` : ""))),
    element("div", { class: isCompiled() ? "listings two" : "listings" }, ptx, sass),
    element("div", { id: "bits", role: "status" }, element("p", { class: "quiet" }, "Between address and instruction stand its control bits: the scoreboards it waits for, those it holds until its sources are read (r) and its result is written (w), and the cycles until the next may issue. Point at one, or choose it with the arrow keys.")));
  box.querySelectorAll(".code").forEach(showFirst);
}

/** Of a listing that nobody has looked into, bring what was made of the source into sight. */
function showFirst(list) {
  const first = [...list.children].find(({ dataset }) => dataset.origin);
  if (first) list.scrollTop = first.offsetTop - 40;
}

function tellBits(row) {
  if (row.dataset.at === undefined) return;
  const one = code.rows[row.dataset.at];
  $("bits").replaceChildren(element("code", {}, one.text), element("dl", {}, ...bitsInWords(one).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])));
}

function chooseRow(row) {
  tellBits(row);
  const { origin, ptx } = row.dataset;
  look({ line: origin ? Number(origin) : null, ptx: ptx ? Number(ptx) : null, from: row.parentElement });
}

/** Mark what has the same origin in every listing, and bring the first of it into sight where nobody pointed. */
function followCode({ line, ptx, from }) {
  if (!code || !VIEWS.code.box.contains(document.querySelector(".listing"))) return;
  for (const list of VIEWS.code.box.querySelectorAll(".code")) {
    const kin = [...list.children].filter((row) => {
      const here = line ? row.dataset.origin === String(line) : row.dataset.ptx === String(ptx);
      row.classList.toggle("here", here);
      return here;
    });
    if (kin.length && list !== from) list.scrollTop = kin[0].offsetTop - list.clientHeight / 3;
  }
}

view("code", "Machine code", "PTX and SASS, coloured by the line they come from, with control bits", {
  asks: () => [asAsked("sass")],
  draw: drawCode,
  beside: () => { if (code) { origins = code.colours; drawMarks(); } },
  follow: followCode,
});
