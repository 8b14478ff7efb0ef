// The pages of ptxlab step and ptxlab trace, each in a frame: what is looked at there is looked at everywhere.

const frames = {};

/** Show a page in a frame, with the scheme of this one. */
function framed(id, box, page) {
  URL.revokeObjectURL((frames[id] || {}).url);
  const url = URL.createObjectURL(new Blob([page], { type: "text/html" }));
  const frame = element("iframe", { title: VIEWS[id].tab.title, src: url });
  frames[id] = { frame, url, ready: false };
  box.replaceChildren(frame);
}

const post = (id, message) => frames[id] && frames[id].frame.isConnected && frames[id].frame.contentWindow.postMessage({ ptxlab: message }, "*");

/** A line of the source as a frame knows it: of the PTX, or of the file that the PTX comes from. */
const whereOf = (line) => (isCompiled() ? { line, file: state.name } : { line: line && statementStart(line), file: null });

/** The line on which the statement of a line of PTX begins. */
function statementStart(line) {
  const { doc } = editor.state, code = (number) => doc.line(number).text.replace(/\/\/.*/, "").trim();
  let start = Math.min(line, doc.lines);
  while (start > 1 && code(start) && /[^;{}:]$/.test(code(start - 1))) start--;
  return start;
}

let asking = 0;
const replies = new Map();

/** Return what a register holds at the moment that the step page shows, null where it shows none. */
function held(register) {
  if (!frames.step || !frames.step.frame.isConnected || state.tab !== "step") return null;
  return new Promise((resolve) => {
    const number = asking++;
    replies.set(number, resolve);
    post("step", { register, number });
    setTimeout(() => { replies.delete(number); resolve(null); }, 200);
  });
}

addEventListener("message", ({ data, source }) => {
  const [id] = Object.entries(frames).find(([, { frame }]) => frame.contentWindow === source) || [];
  if (!id || !data || !data.ptxlab) return;
  const { at, number, held: value, key, ready } = data.ptxlab;
  if (ready) {
    frames[id].ready = true;
    post(id, { scheme: isDark() ? "dark" : "light", ...whereOf(state.line) });
  }
  if (number !== undefined && replies.has(number)) { replies.get(number)(value); replies.delete(number); }
  if (key) run();
  if (!at || state.tab !== id || !frames[id].ready) return;
  const own = isCompiled() ? (at.sources.find(([file]) => baseName(file) === state.name) || [])[1] : at.line;
  if (own && own !== state.line) look({ line: own, from: id });
});

function frameView(id, label, title, { asks = () => [asAsked(id)], bar = () => null } = {}) {
  view(id, label, title, {
    asks,
    draw: (box, all) => {
      const { result } = all.findLast((one) => one.result);
      framed(id, box, result);
      box.prepend(...[bar(all)].filter(Boolean));
    },
    follow: ({ line, from }) => { if (from !== id) post(id, whereOf(line)); },
  });
}

/** What the second axis of the timeline is: the cycles of a GPU, chosen here, or why there are none. */
function cyclesBar([, predicted]) {
  const chosen = choice("second axis", state.cycles || "", [["", "none"], ...about.gpus.map((name) => [name, `predicted cycles on ${name}`])],
    (name) => { state.cycles = name; keep(); run(); });
  return element("div", { class: "bar axis" }, chosen, predicted && predicted.error ? element("span", { class: "quiet" }, `no cycles: ${predicted.error.message}`) : null);
}

frameView("step", "Step", "registers, matrices and shared memory, instruction by instruction");
frameView("trace", "Timeline", "what warps, copies, products and barriers do, in order, and in predicted cycles", {
  asks: () => [asAsked("trace"), ...(state.cycles ? [{ ...asAsked("trace"), options: [...options(), "--gpu", state.cycles] }] : [])],
  bar: cyclesBar,
});
