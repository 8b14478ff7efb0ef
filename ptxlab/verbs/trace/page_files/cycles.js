// The second axis: when the warps of the first CTA would issue the instructions of the machine code on a GPU, in cycles of it.

const predicted = data.predicted, ISSUE_HEIGHT = 18;
const issues = predicted ? predicted.issues.warp.map((warp, at) => ({ warp, at, code: predicted.code[predicted.issues.number[at]],
  cycle: predicted.issues.cycle[at], waited: predicted.issues.waited[at], reason: predicted.reasons[predicted.issues.reason[at]] })) : [];
const issuesOf = Array.from({ length: predicted ? Math.max(...predicted.issues.warp, 0) + 1 : 0 }, (_, warp) => issues.filter((one) => one.warp === warp));
const LAST = issues.reduce((last, { cycle }) => Math.max(last, cycle), 0) + 1;
const cycles = { from: 0, to: LAST, hovered: null, pinned: null };
const kindOfLine = new Map(data.instructions.map(({ line }, at) => [line, classOfPlace[at]]));
const classOfIssue = ({ code }) => CLASSES[kindOfLine.get(code.line) ?? CLASSES.length - 1];
const perCycle = () => $("issues").clientWidth / (cycles.to - cycles.from);
const atCycle = (cycle) => (cycle - cycles.from) * perCycle();

function lookAtCycles(from, to) {
  const span = Math.min(LAST, Math.max(16, to - from));
  cycles.from = Math.min(Math.max(0, from), LAST - span);
  cycles.to = cycles.from + span;
  drawCycles();
}

function zoomCycles(factor, middle = (cycles.from + cycles.to) / 2) {
  const span = factor ? Math.min(LAST, Math.max(16, (cycles.to - cycles.from) * factor)) : LAST;
  const part = (middle - cycles.from) / (cycles.to - cycles.from);
  lookAtCycles(middle - part * span, middle + (1 - part) * span);
}

function drawCycles() {
  if (!predicted || !$("issues").clientWidth) return;
  const pen = penOf($("issues"), issuesOf.length * (ISSUE_HEIGHT + GAP)), step = stepAtPin();
  issuesOf.forEach((row, warp) => {
    const top = warp * (ISSUE_HEIGHT + GAP);
    for (const one of row) {
      if (one.cycle + 1 < cycles.from || one.cycle - one.waited > cycles.to) continue;
      const left = atCycle(one.cycle), wide = Math.max(1, perCycle() - (perCycle() > 4 ? 1 : 0));
      if (one.waited * perCycle() > 2) {
        pen.fillStyle = hatch[/scoreboard|throttle/.test(one.reason) ? "copy" : "sync"];
        pen.fillRect(atCycle(one.cycle - one.waited), top + 4, one.waited * perCycle(), ISSUE_HEIGHT - 8);
      }
      pen.fillStyle = colour[classOfIssue(one)];
      pen.fillRect(left, top, wide, ISSUE_HEIGHT);
      if (step && step.warps.includes(warp) && step.line === one.code.line) marked(pen, one, top, colour.ink, 1.2);
    }
  });
  const one = cycles.hovered || cycles.pinned;
  if (one) marked(pen, one, one.warp * (ISSUE_HEIGHT + GAP), colour.accent, 2.5);
  drawScale($("cycleruler"), cycles, perCycle(), atCycle);
}

function marked(pen, one, top, ink, width) {
  pen.strokeStyle = ink;
  pen.lineWidth = width;
  pen.strokeRect(atCycle(one.cycle) - 1, top + .5, Math.max(3, perCycle()) + 1, ISSUE_HEIGHT - 1);
}

/** The line and the warps of the step that is kept in the lanes above. */
function stepAtPin() {
  const item = state.pinned, step = item ? stepOf(item) : -1;
  return step >= 0 && data.executed[step] >= 0 ? { line: place(step).line, warps: warpsOf(step) } : null;
}

function issueWords({ warp, cycle, waited, reason, code }) {
  return [["cycle", number(cycle)], ["warp", String(warp)], ["waited", waited ? `${plural(waited, "cycle")}, most for: ${reason}` : "not at all"],
    ["address", hex(code.address)], ["PTX", code.line ? `line ${code.line}` : "of no line"]];
}

function chooseIssue(what, one) {
  if (cycles[what] === one) return;
  cycles[what] = one;
  drawCycles();
  const now = cycles.hovered || cycles.pinned;
  $("issue").innerHTML = now ? `<code>${escape(now.code.text)}</code> ${issueWords(now).map(([name, text]) => `<b>${name}</b> ${escape(text)}`).join(" · ")}` : "";
  if (what !== "pinned" || !one) return;
  $("say").textContent = `${one.code.text}; ${issueWords(one).map((fact) => fact.join(" ")).join(", ")}`;
  const step = data.executed.findIndex((at, moment) => at >= 0 && data.instructions[at].line === one.code.line && warpsOf(moment).includes(one.warp));
  const lane = step >= 0 && lanes.find((each) => each.kind === "warp" && each.warp === one.warp);
  if (lane) keep(stepItem(lane, step));
}

function issueUnder(event) {
  const box = $("issues").getBoundingClientRect(), row = issuesOf[Math.floor((event.clientY - box.top) / (ISSUE_HEIGHT + GAP))] || [];
  const cycle = cycles.from + (event.clientX - box.left) / perCycle();
  return row.findLast((one) => one.cycle - one.waited <= cycle && cycle < one.cycle + 1 + 2 / perCycle()) || null;
}

/** Go to the issue before or after in a warp, or beside it in another. */
function goIssue(key) {
  const now = cycles.pinned || issuesOf.flat()[0], row = issuesOf[now.warp];
  if (!cycles.pinned) return now;
  if (key === "ArrowLeft" || key === "ArrowRight") return row[row.indexOf(now) + (key === "ArrowRight" ? 1 : -1)];
  return (issuesOf[now.warp + (key === "ArrowDown" ? 1 : -1)] || []).find(({ cycle }) => cycle >= now.cycle);
}

if (predicted && issues.length) {
  $("cycles").hidden = false;
  $("gpu").textContent = `cycles on ${predicted.gpu}, predicted`;
  $("predicted").textContent = `The machine code for ${predicted.arch}, as the warps of the first CTA would issue it with ${plural(predicted.together, "CTA")} on an SM`
    + ` at ${number(predicted.clock_mhz)} MHz; hatched is what a warp waits for before.`
    + (predicted.left_out ? ` ${number(predicted.left_out)} instructions are left out: turns of loops that go on alike.` : "");
  $("issuenames").innerHTML = issuesOf.map((_, warp) => `<span style="top:${warp * (ISSUE_HEIGHT + GAP) + 4}px">warp ${warp}</span>`).join("");
  const canvas = $("issues");
  let from = null;
  canvas.addEventListener("pointerdown", (event) => { from = { at: event.clientX, cycle: cycles.from, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!from) { chooseIssue("hovered", issueUnder(event)); return; }
    from.moved ||= Math.abs(event.clientX - from.at) > 3;
    if (from.moved) lookAtCycles(from.cycle - (event.clientX - from.at) / perCycle(), from.cycle - (event.clientX - from.at) / perCycle() + cycles.to - cycles.from);
  });
  canvas.addEventListener("pointerup", (event) => { if (from && !from.moved) chooseIssue("pinned", issueUnder(event)); from = null; });
  canvas.addEventListener("pointerleave", () => chooseIssue("hovered", null));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomCycles(Math.exp(event.deltaY * .0015), cycles.from + (event.clientX - canvas.getBoundingClientRect().left) / perCycle());
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const act = { "+": () => zoomCycles(.5), "=": () => zoomCycles(.5), "-": () => zoomCycles(2), "−": () => zoomCycles(2), 0: () => zoomCycles(0), Escape: () => chooseIssue("pinned", null) }[event.key];
    if (!act && !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (act) { act(); return; }
    const one = goIssue(event.key);
    if (!one) return;
    chooseIssue("pinned", one);
    const span = cycles.to - cycles.from;
    if (one.cycle < cycles.from || one.cycle > cycles.to) lookAtCycles(one.cycle - span / 2, one.cycle + span / 2);
  });
  new ResizeObserver(drawCycles).observe(canvas);
}
