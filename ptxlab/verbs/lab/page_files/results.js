// What the verbs say of a launch in words and numbers: its result, what is wrong, what was counted, how long it would take.

const number = (value) => (Number.isInteger(value) ? value.toLocaleString("en-US") : String(+value.toPrecision(3)));
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const seconds = (time) => (time >= 1 ? `${+time.toPrecision(3)} s` : time >= 1e-3 ? `${+(time * 1e3).toPrecision(3)} ms` : `${+(time * 1e6).toPrecision(3)} µs`);

/** A table: heads and rows of cells, of which each row may lead to a line of the source. */
function table(heads, rows) {
  const cell = (tag, one, at) => element(tag, { class: at && tag === "td" && typeof one !== "string" ? "" : null, scope: tag === "th" ? "col" : null }, one instanceof Node ? one : String(one ?? ""));
  return element("div", { class: "scrolls", tabindex: "0" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((one, at) => cell("th", one, at)))),
    element("tbody", {}, ...rows.map(({ line, cells, mark = "" }) => {
      const row = element("tr", { class: mark, "data-line": line }, ...cells.map((one, at) => cell("td", one, at)));
      if (line) row.addEventListener("click", () => look({ line, from: "table" }));
      return row;
    }))));
}
const lineButton = (line, text = `line ${line}`) => element("button", { type: "button", class: "plain", onclick: () => goTo(line) }, text);
const textOf = (line) => (line >= 1 && line <= editor.state.doc.lines ? editor.state.doc.line(line).text.trim() : "");
/** The line of the source that something is about, which has a line of the PTX and perhaps of the files that comes from. */
const sourceLine = (one) => (isCompiled() ? ownLine([one.source, ...(one.calls || [])]) : one.line);
function markRow(box, line) { for (const row of box.querySelectorAll("tr[data-line]")) row.classList.toggle("here", row.dataset.line === String(line)); }

// ---- run ----

view("run", "Result", "what the kernel leaves in its arrays, and whether that is what was expected", {
  asks: () => [asAsked("run")],
  draw(box, [{ result, status }]) {
    const expected = Boolean(state.launch.expect);
    box.replaceChildren(
      expected ? element("p", { class: `verdict ${status ? "bad" : "good"}` }, status ? "Not as expected" : "As expected") : element("p", { class: "quiet" }, "Say under Launch what an array should hold, such as d=a.astype(f32)@b.astype(f32), and it is compared."),
      element("pre", {}, result));
  },
});

// ---- check ----

view("check", "Findings", "races, missing waits, barriers, bounds, uninitialised reads, deadlocks", {
  asks: () => [asAsked("check")],
  draw(box, [{ result }]) {
    const { verdict, findings: all, checks, unchecked, not_looked_at: beyond } = result;
    const words = { clean: "Nothing is wrong", findings: `${plural(all.length, "finding")}`, incomplete: "Not all of it could be checked" };
    box.replaceChildren(
      element("p", { class: `verdict ${verdict === "clean" ? "good" : "bad"}` }, words[verdict]),
      ...all.map((one) => {
        const other = one.other_line && sourceLine({ source: one.other_source, line: one.other_line });
        return element("article", { class: `finding ${one.severity}` },
          element("h3", {}, `${one.severity}: ${one.kind}`, element("small", {}, one.count > 1 ? ` ${plural(one.count, one.unit.replace(/s$/, ""))}` : "")),
          element("p", {}, one.message), ...[sourceLine(one), other].filter(Boolean).map((line) => element("p", { class: "source" }, lineButton(line), " ", element("code", {}, textOf(line)))),
          one.hint ? element("p", { class: "quiet" }, `hint: ${one.hint}`) : null);
      }),
      element("p", { class: "quiet" }, `Checked, of this launch and on the paths that it takes: ${checks.join(", ")}.`),
      ...unchecked.map((text) => element("p", { class: "quiet" }, `Not checked: ${text}`)),
      beyond && beyond.length ? element("details", {}, element("summary", {}, "Not looked at"), element("ul", {}, ...beyond.map((text) => element("li", {}, text)))) : null);
  },
  beside([{ result }]) {
    if (!result) return;
    findings = result.findings.filter(sourceLine).map((one) => ({ line: sourceLine(one), severity: one.severity, message: `${one.kind}: ${one.message}`, hint: one.hint }));
    drawFaults();
  },
});

// ---- profile ----

const COLUMNS = [["executed", "executed"], ["lanes", "lanes"], ["sectors", "sectors", "sectors_ideal"], ["wavefronts", "shared_wavefronts", "shared_ideal"], ["FLOPs", "flops"]];

/** What was counted, by line of CUDA C with its headers, or of the PTX. */
const countedLines = ({ lines, sources }) => (isCompiled() ? sources : lines).filter(({ executed }) => executed);
const isOwn = ({ path }) => !path || baseName(path) === state.name;

view("profile", "Counts", "what each line does: executions, sectors, wavefronts, FLOPs, counted exactly", {
  asks: () => [asAsked("profile")],
  draw(box, [{ result }]) {
    const lines = countedLines(result).sort((a, b) => b.executed - a.executed);
    const used = COLUMNS.filter(([, name]) => name === "executed" || lines.some((line) => line[name]));
    const cells = (line) => used.map(([, name, ideal]) => {
      const value = name === "lanes" ? line.lanes : line[name], more = ideal && value > line[ideal];
      return element("span", { class: more ? "bad" : "", title: ideal ? `at least ${number(line[ideal])}` : "" }, value ? number(value) : "");
    });
    box.replaceChildren(
      element("p", {}, element("b", {}, number(result.instructions)), ` instructions of warps on ${result.device} (${result.arch}). `,
        element("span", { class: "quiet" }, "Red is more than the same bytes need. Hottest lines first; the counts stand beside the source as well.")),
      table(["line", ...used.map(([head]) => head), ""], lines.map((line) => ({ line: isOwn(line) ? line.line : null, cells: [isOwn(line) ? line.line : `${baseName(line.path)}:${line.line}`, ...cells(line), element("code", {}, line.text)] }))));
  },
  beside([{ result }]) {
    if (!result) return;
    const lines = countedLines(result).filter(isOwn), most = Math.max(1, ...lines.map(({ executed }) => executed));
    showCounts(new Map(lines.map((line) => [line.line, { text: number(line.executed), heat: line.executed / most, title: `executed ${number(line.executed)} times by warps` }])));
  },
  follow: ({ line }) => markRow(VIEWS.profile.box, line),
});

// ---- predict ----

/** Shares of the time by line of the source, of one prediction. */
function sharesOf({ lines }) {
  const shares = new Map();
  for (const one of lines) {
    const line = sourceLine(one);
    if (!line) continue;
    const now = shares.get(line) || { share: 0, stalls: {} };
    now.share += one.share;
    for (const [reason, part] of Object.entries(one.stalls)) now.stalls[reason] = (now.stalls[reason] || 0) + part;
    shares.set(line, now);
  }
  return shares;
}
const worst = (stalls) => (Object.entries(stalls).sort(([, a], [, b]) => b - a)[0] || [""])[0];

function stallBar(stalls) {
  const parts = Object.entries(stalls).sort(([, a], [, b]) => b - a).filter(([, share]) => share >= 0.005);
  return element("div", { class: "stalls" }, element("div", { class: "bars", "aria-hidden": "true" }, ...parts.map(([name, share], at) => element("span", { class: `l${(4 * at + 1) % 32}`, style: `flex:${share}`, title: `${name} ${percent(share)}` }))),
    element("p", {}, ...parts.slice(0, 4).map(([name, share], at) => element("span", {}, element("i", { class: `l${(4 * at + 1) % 32}` }), `${name} ${percent(share)}`))));
}

function gpuChoice() {
  return element("details", { class: "gpus" }, element("summary", {}, "Choose GPUs"), element("div", {}, ...about.gpus.map((name) => element("label", {},
    element("input", { type: "checkbox", checked: state.gpus.includes(name), onchange: ({ target }) => {
      state.gpus = about.gpus.filter((one) => (one === name ? target.checked : state.gpus.includes(one)));
      keep();
      run();
    } }), ` ${name}`))));
}

view("predict", "Time", "predicted time, and what warps wait for, on GPUs that are not here", {
  asks: () => state.gpus.map((gpu) => ({ ...asAsked("predict"), options: [...options(), "--gpu", gpu] })),
  draw(box, all) {
    const open = Boolean(box.querySelector(".gpus[open]")), choose = gpuChoice();
    choose.open = open;
    const cards = all.map(({ result, error }, at) => element("article", { class: "gpu" }, element("h3", {}, result ? result.gpu : state.gpus[at]),
      ...(error ? [element("p", { class: "quiet" }, error.message)] : [
        element("p", { class: "time" }, element("b", {}, seconds(result.seconds)), element("small", {}, ` likely ${seconds(result.low)} to ${seconds(result.high)}`)),
        element("p", {}, `${number(result.cycles)} cycles at ${number(result.clock_mhz)} MHz; ${result.bound}: ${result.bound_by} is used ${percent(result.used[result.bound_by])} of the time`),
        element("p", {}, `${plural(result.occupancy.ctas, "CTA")} on an SM, ${result.occupancy.warps} of ${result.occupancy.most_warps} warps`),
        stallBar(result.stalls)])));
    const known = all.filter(({ result }) => result), shares = known.map(({ result }) => sharesOf(result));
    const lines = [...new Set(shares.flatMap((one) => [...one.keys()]))].map((line) => ({ line, most: Math.max(...shares.map((one) => (one.get(line) || { share: 0 }).share)) }))
      .filter(({ most }) => most >= 0.005).sort((a, b) => b.most - a.most);
    box.replaceChildren(choose, element("div", { class: "cards" }, ...cards),
      lines.length ? table(["line", ...known.map(({ result }) => result.gpu), ""], lines.map(({ line }) => ({ line, cells: [line, ...shares.map((one) => {
        const here = one.get(line);
        return here ? element("span", { style: `--heat:${here.share}`, class: "heat" }, percent(here.share), element("small", {}, ` ${worst(here.stalls)}`)) : "";
      }), element("code", {}, textOf(line))] }))) : "",
      element("p", { class: "quiet" }, known.length ? `A prediction of a model, made from machine code for each GPU. Not in it: ${known[0].result.not_modelled.join(", ")}.` : ""));
  },
  beside(all) {
    const first = all.find(({ result }) => result);
    if (!first) return;
    showCounts(new Map([...sharesOf(first.result)].map(([line, { share, stalls }]) => [line, { text: share >= 0.005 ? percent(share) : "", heat: share, title: `${percent(share)} of the time on ${first.result.gpu}, mostly ${worst(stalls)}` }])));
  },
  follow: ({ line }) => markRow(VIEWS.predict.box, line),
});
