// What opens, the buttons of the head, keys, light and dark, widths, and the start.

let latest = null;

/** Open another program, or another state; the latest one counts. */
async function become(next) {
  latest = next;
  const text = next.text || (next.example ? (await ask({ want: "example", name: next.example })).result.text : "");
  if (latest !== next) return;
  state = { ...fresh(), ...next, text };
  faults = [];
  findings = [];
  origins = new Map();
  code = null;
  known = { kernels: [], runs: [], arch: "", expect: "" };
  for (const one of Object.values(VIEWS)) Object.assign(one, { shown: null, told: [] });
  slow = false;
  $("name").value = state.name;
  $("example").value = state.example || "";
  document.title = `${state.name} · ptxlab lab`;
  setText(text);
  drawLaunch();
  drawStop();
  choose(state.tab);
  drawMarks();
  reveal(state.line || text.split("\n").findIndex((line) => line.trim() && !line.startsWith("//")) + 1, state.line ? "center" : "start");
  await diagnose();
}

const TEMPLATES = {
  "new.ptx": ".version 8.0\n.target sm_80\n.address_size 64\n\n.visible .entry kernel(.param .u64 x)\n{\n    .reg .b32 %r<4>;\n    .reg .b64 %rd<4>;\n\n    ld.param.u64    %rd1, [x];\n    mov.u32         %r1, %tid.x;\n    mul.wide.u32    %rd2, %r1, 4;\n    add.u64         %rd3, %rd1, %rd2;\n    st.global.u32   [%rd3], %r1;\n    ret;\n}\n",
  "new.cu": "extern \"C\" __global__ void kernel(float *x, int n)\n{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        x[i] = 2 * x[i];\n}\n",
  "new.py": "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\ndef add(x, y, out, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = at < n\n    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)\n\n\nx, y = torch.randn(1000, device=\"cuda\"), torch.randn(1000, device=\"cuda\")\nout = torch.empty_like(x)\nadd[(4,)](x, y, out, 1000, BLOCK=256)\nprint(\"largest error\", float((out - (x + y)).abs().max()))\n",
};
const KINDS_OF = { "new.ptx": "new PTX", "new.cu": "new CUDA C", "new.py": "new Triton" };
const NEW_LAUNCH = { "new.ptx": { grid: "1", block: "32", args: { x: "zeros(32,u32)" } }, "new.cu": { grid: "2", block: "64", args: { x: "arange(100,f32)", n: "100" } } };

$("example").append(element("option", { value: "" }, "your own"), ...Object.keys(TEMPLATES).map((name) => element("option", { value: name }, KINDS_OF[name])),
  ...["ptx", "kernels"].map((folder) => element("optgroup", { label: folder }, ...about.examples.filter(({ name }) => name.startsWith(`${folder}/`)).map(({ name, title }) =>
    element("option", { value: name, title }, name.slice(folder.length + 1))))));
$("example").addEventListener("change", ({ target: { value } }) => {
  if (TEMPLATES[value]) become({ ...fresh(), name: value, text: TEMPLATES[value], launch: structuredClone(NEW_LAUNCH[value] || fresh().launch), tab: state.tab });
  else if (value) become({ ...fresh(), name: baseName(value), example: value, tab: state.tab, gpus: state.gpus });
});
$("name").addEventListener("change", ({ target }) => {
  state.name = target.value.trim() || state.name;
  state.example = null;
  editor.dispatch({ effects: languageNow.reconfigure(languageOf(state.name)) });
  changed();
});
$("link").addEventListener("click", async () => {
  await keepNow();
  copyFrom($("link"), location.href);
});
$("save").addEventListener("click", () => download(`${state.name.replace(/\.\w+$/, "")}-lab.html`, savedPage(), "text/html"));
$("open").addEventListener("click", () => $("file").click());
async function openFile(file) {
  const text = await file.text();
  try {
    await become(file.name.endsWith(".html") ? stateOf(text) : { ...fresh(), name: file.name, text });
  } catch (error) {
    say(error.message);
  }
}
$("file").addEventListener("change", ({ target }) => { if (target.files[0]) openFile(target.files[0]); target.value = ""; });
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  openFile(event.dataTransfer.files[0]);
});
$("go").addEventListener("click", () => {
  if (cancel()) return;
  const now = VIEWS[state.tab];
  trusted = state.text;
  for (const request of now.asks()) if ((answers.get(keyOf(request)) || {}).error) answers.delete(keyOf(request));
  now.shown = null;
  run();
});

// ---- keys ----

const KEYS = [
  ["Ctrl+Enter", "run what is looked at, or cancel it", () => $("go").click()],
  ["Alt+1…8", "the views"],
  ["F8", "the next thing that is wrong"],
  ["Ctrl+Space", "what may come next"],
  ["Esc, then Tab", "leave the source; Tab goes from part to part"],
  ["?", "these keys"],
];
$("keylist").append(...KEYS.flatMap(([keys, what]) => [element("dt", {}, element("kbd", {}, keys)), element("dd", {}, what)]));
$("help").addEventListener("click", () => $("keys").showModal());
addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input,select,textarea,.cm-content,dialog");
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); $("go").click(); }
  else if (event.altKey && /^[1-8]$/.test(event.key)) { event.preventDefault(); choose(Object.keys(VIEWS)[event.key - 1] || state.tab, true); }
  else if (event.key === "?" && !typing) { event.preventDefault(); $("keys").showModal(); }
  else if (event.key === "F8") { event.preventDefault(); const next = [...faults, ...findings].find(({ line }) => line > (state.line || 0)) || [...faults, ...findings].find(({ line }) => line); if (next) goTo(next.line, next.column); }
}, true);

// ---- widths ----

const splitter = $("split");
function setSplit(share) {
  const kept = Math.min(75, Math.max(20, share));
  document.documentElement.style.setProperty("--split", `${kept}%`);
  splitter.setAttribute("aria-valuenow", String(Math.round(kept)));
  return kept;
}
let splitNow = setSplit(44);
splitter.addEventListener("pointerdown", (event) => { splitter.setPointerCapture(event.pointerId); document.body.classList.add("dragging"); });
splitter.addEventListener("pointermove", (event) => { if (event.buttons) splitNow = setSplit(100 * event.clientX / innerWidth); });
splitter.addEventListener("pointerup", () => document.body.classList.remove("dragging"));
splitter.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -3, ArrowRight: 3 }[event.key];
  if (by) { event.preventDefault(); splitNow = setSplit(splitNow + by); }
});

// ---- light and dark ----

redraws.push(() => {
  for (const id of Object.keys(frames)) post(id, { scheme: isDark() ? "dark" : "light", ...whereOf(state.line) });
});

// ---- the start ----

addEventListener("hashchange", async () => {
  const asked = await fromAddress();
  if (asked) become(asked);
});
async function begin() {
  $("backend").textContent = backend.name;
  const opens = json("opens"), asked = await fromAddress();
  await become(asked || (opens.name ? opens : { name: baseName(about.first), example: about.first }));
}
begin().catch((error) => say(error.message));
