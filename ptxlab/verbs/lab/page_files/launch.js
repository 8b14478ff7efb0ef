// How the program is launched: as its header says, but for what the user says.

let known = { kernels: [], runs: [], arch: "", expect: "" };

const FIELDS = [
  ["grid", "grid", "CTAs: x, x,y or x,y,z"], ["block", "block", "threads of a CTA"], ["cluster", "cluster", "CTAs of a cluster"],
  ["shared", "shared memory", "dynamic, in bytes"], ["expect", "expect", "what an array should hold, such as d=a@b"],
  ["tolerance", "tolerance", "relative, or relative,absolute"], ["more", "more options", "-D TILE=64 --set NAME=VALUE --schedule early"],
];

/** What the header says of the kernel that is chosen. */
const runTold = () => known.runs.find((run) => !state.launch.kernel || run.kernel === state.launch.kernel) || {};
const kernelNow = () => known.kernels.find(({ name }) => name === (state.launch.kernel || runTold().kernel)) || known.kernels[0];

/** Split a line into words as a shell does, as far as anyone needs it here. */
const wordsIn = (text) => [...text.matchAll(/(?:[^\s"']|"[^"]*"|'[^']*')+/g)].map(([word]) => word.replace(/["']/g, ""));

/** The options of the command line. */
function options() {
  const { kernel, args, more, ...rest } = state.launch, words = [];
  if (kernel) words.push("--kernel", kernel);
  for (const [name, value] of Object.entries(rest)) if (value) words.push(`--${name}`, value);
  for (const [name, value] of Object.entries(args)) if (value) words.push("--arg", `${name}=${value}`);
  return [...words, ...wordsIn(more || "")];
}

const quoted = (word) => (/^[\w./:=,+-]+$/.test(word) ? word : `"${word}"`);
function drawCommand() {
  const words = options().map(quoted);
  $("command").textContent = ["ptxlab", ...(isPython() ? ["exec", ...words, "--", "python", state.name] : ["run", state.name, ...words])].join(" ");
}

/** What the user puts into a field; what the header says anyway is not kept. */
function setField(where, name, value, usual) {
  if (value === "" || value === (usual || "")) delete where[name];
  else where[name] = value;
  drawCommand();
  changed();
}

function field(label, value, hint, set) {
  return element("label", {}, element("span", {}, label), element("input", { value, placeholder: hint, title: hint, spellcheck: "false", onchange: ({ target }) => set(target.value.trim()) }));
}

function choice(label, value, choices, set) {
  return element("label", {}, element("span", {}, label), element("select", { onchange: ({ target }) => set(target.value) },
    ...choices.map(([name, text]) => element("option", { value: name, selected: name === value }, text))));
}

/** Draw the panel anew, unless somebody is typing there. */
function drawLaunch() {
  drawCommand();
  if ($("fields").contains(document.activeElement)) return;
  const run = runTold(), usual = { ...run, shared: run.shared === null || run.shared === undefined ? "" : String(run.shared) };
  const args = new Map((run.arg || []).map((text) => [text.slice(0, text.indexOf("=")).trim(), text.slice(text.indexOf("=") + 1)]));
  const kernel = kernelNow(), parameters = kernel ? kernel.parameters : [];
  const names = [...new Set([...args.keys(), ...(args.size ? [] : parameters.map(({ name }) => name)), ...Object.keys(state.launch.args)])];
  const aboutOf = (name) => { const one = parameters.find((parameter) => parameter.name === name); return one ? `.${one.type} ${one.about}` : "an argument"; };
  $("fields").replaceChildren(
    element("fieldset", {}, element("legend", {}, "launch"),
      isPython() ? null : choice("kernel", kernel ? kernel.name : "", known.kernels.map(({ name }) => [name, name]), (name) => { state.launch.args = {}; setField(state.launch, "kernel", name, (known.runs[0] || known.kernels[0] || {}).kernel); drawLaunch(); }),
      choice("target", state.launch.arch || "", [["", `as the file says (${known.arch})`], ...about.targets.map((name) => [name, name])], (name) => setField(state.launch, "arch", name)),
      ...FIELDS.filter(([name]) => name === "more" || !isPython()).map(([name, label, hint]) => field(label, state.launch[name] || usual[name] || "", hint, (value) => setField(state.launch, name, value, usual[name])))),
    isPython() ? element("p", { class: "quiet" }, "The program says itself what it launches; --launch 'attn*' chooses which launch is looked into.")
      : element("fieldset", {}, element("legend", {}, "arguments"),
      ...names.map((name) => field(name, state.launch.args[name] || args.get(name) || "", aboutOf(name), (value) => setField(state.launch.args, name, value, args.get(name)))),
      element("p", { class: "quiet" }, "128 · 0.5 · randn(64x64,bf16,seed=1) · zeros(128,f32) · ones, arange, eye · tma(A,box=64x64,swizzle=128B)")),
    known.expect ? element("p", { class: "quiet" }, `The header expects: ${known.expect}`) : "");
}
