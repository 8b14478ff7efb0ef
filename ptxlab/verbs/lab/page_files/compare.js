// A against B: the program as it is and another one, or as it was, or the same on another GPU; what differs is marked.

const gpuSelect = (label, value, set) => choice(label, value, about.gpus.map((name) => [name, name]), set);
const otherNow = () => state.other || { name: state.name, text: state.text, same: true, a: state.gpus[0] || "a100", gpu: state.gpus[1] || "h100" };

function setOther(change) {
  state.other = { ...otherNow(), ...change };
  keep();
  run();
}

function comparing() {
  const other = otherNow(), value = other.same ? "same" : other.example || "kept";
  return element("div", { class: "sides" },
    gpuSelect("A: the source, on", other.a, (a) => setOther({ a })),
    choice("B", value, [["same", "the same source"], ["keep", "the source as it is now, kept"], ...(value === "kept" ? [["kept", `${other.name} as it was kept`]] : []), ...about.examples.map(({ name }) => [name, name])], async (name) => {
      if (name === "same") setOther({ same: true, example: undefined });
      else if (name === "keep") setOther({ name: state.name, text: state.text, options: options(), same: false, example: undefined });
      else if (name !== "kept") {
        const { result } = await ask({ want: "example", name });
        setOther({ ...result, options: [], same: false, example: name });
      }
    }),
    gpuSelect("on", other.gpu, (gpu) => setOther({ gpu })));
}

const shown = (value, unit) => (value === null || value === undefined ? "" : unit === "s" ? seconds(value) : unit === "%" ? percent(value) : typeof value === "number" ? number(value) : value);
function change(a, b) {
  if (typeof a !== "number" || typeof b !== "number" || a === b) return "";
  return a ? `${b > a ? "+" : "−"}${percent(Math.abs(b - a) / a)}` : "new";
}

view("compare", "A | B", "two sources, or two GPUs, side by side", {
  asks() {
    const other = otherNow(), { name, text } = other.same ? state : other;
    return [{ ...asAsked("compare"), options: [...options(), "--gpu", other.a],
      other: { name, text, options: [...(other.same ? options() : other.options || []), "--gpu", other.gpu] } }];
  },
  draw(box, [{ result }]) {
    const { numbers, lines } = result, other = otherNow(), differ = lines.filter(({ mark }) => mark !== " ").length;
    box.replaceChildren(comparing(),
      table(["", `A: ${state.name}`, `B: ${other.same ? state.name : other.name}`, "change"], numbers.map(({ name, a, b, unit }) => ({
        mark: a === b ? "" : "differs", cells: [name, shown(a, unit), shown(b, unit), unit === "%" ? "" : change(a, b)] }))),
      element("h3", {}, differ ? `Machine code: ${plural(differ, "instruction")} of one side alone` : "The machine code is the same"),
      element("ol", { class: "code difference", tabindex: "0", "aria-label": "differences of machine code" }, ...around(lines).map((one) => (one
        ? element("li", { class: { "-": "gone", "+": "new", " ": "" }[one.mark] }, element("i", {}, one.mark), one.text) : element("li", { class: "quiet" }, "…")))));
  },
});

/** The lines that differ, and three around each; null stands for those left out. */
function around(lines, room = 3) {
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - room), at + room + 1).some(({ mark }) => mark !== " "));
  return lines.flatMap((line, at) => (near[at] ? [line] : at === 0 || near[at - 1] ? [null] : []));
}
