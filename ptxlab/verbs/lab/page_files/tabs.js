// The views of one launch: each asks what it needs when it is looked at, and draws what is answered.

const VIEWS = {};
const nothing = () => {};
/**
 * Add a view. asks() are its requests, draw(box, answers) shows what was answered, an error in its place where there was one;
 * beside(answers) shows what of it belongs beside the lines of the source; follow(place) goes where somebody looks: to a line
 * of the source, and what else is known of it.
 */
function view(id, label, title, { asks, draw, beside = nothing, follow = nothing }) {
  const tab = element("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `view-${id}`, title, onclick: () => choose(id) }, label);
  const box = element("div", { role: "tabpanel", id: `view-${id}`, class: "view", "aria-labelledby": `tab-${id}`, tabindex: "0", hidden: true });
  $("tabs").append(tab);
  $("panels").append(box);
  VIEWS[id] = { id, tab, box, asks, draw, beside, follow, shown: null, told: [] };
}

// ---- asking ----

/** What was answered, by the request as text: asked once, and saved with the page. */
const answers = new Map(Object.entries(json("answers")));
const MOST = 60;
const keyOf = (request) => JSON.stringify(request);

async function ask(request, onProgress = () => {}, signal = undefined) {
  const key = keyOf(request);
  if (answers.has(key)) return answers.get(key);
  const answer = await backend.ask(request, onProgress, signal);
  answers.set(key, answer);
  while (answers.size > MOST) answers.delete(answers.keys().next().value);
  return answer;
}

/** What was answered of the program as it is, to be saved with it. */
function found() {
  const requests = [asAsked("diagnose"), ...Object.values(VIEWS).flatMap((one) => one.asks())];
  return Object.fromEntries(requests.map(keyOf).filter((key) => answers.has(key)).map((key) => [key, answers.get(key)]));
}

/** Ask about the text; null where nobody answers, as in a page that was saved. */
async function asked(request) {
  try {
    const { result = null } = await backend.ask(request, () => {});
    return result;
  } catch {
    return null;
  }
}

// ---- running ----

let running = null, slow = false;
/** The program in Python that the user has run: one that came with a link or a file does not run by itself. */
let trusted = null;
const mayRun = (requests) => !isPython() || trusted === state.text || requests.every((request) => answers.has(keyOf(request)));

function busy(text) {
  $("progress").textContent = text;
  $("go").textContent = running ? "Cancel" : "Run";
  $("go").classList.toggle("cancels", Boolean(running));
}

function cancel() {
  if (!running) return false;
  running.abort();
  running = null;
  busy("cancelled");
  return true;
}

/** Ask what the view that is looked at needs, and show it; what was asked before and is not wanted any more ends. */
async function run() {
  cancel();
  const now = VIEWS[state.tab], requests = now.asks(), key = JSON.stringify(requests);
  if (now.shown === key) {
    now.box.classList.remove("stale");
    now.beside(now.told);
    busy("");
    return;
  }
  if (!mayRun(requests)) {
    Object.assign(now, { shown: null, told: [] });
    now.box.replaceChildren(element("p", {}, "A program in Python runs on this machine, with all that you may do there. Read it, then press Run."));
    busy("");
    return;
  }
  const mine = running = new AbortController(), began = performance.now();
  const elapsed = () => `${((performance.now() - began) / 1000).toFixed(0)} s`;
  busy("…");
  const ticking = setInterval(() => { if (running === mine && performance.now() - began > 1500) busy(progress ? `${progress} · ${elapsed()}` : elapsed()); }, 250);
  let progress = "";
  const told = await Promise.all(requests.map((request) => ask(request, (text) => { progress = text; }, mine.signal).catch((error) => ({ error: { message: error.message, kind: "absent" }, said: "" }))));
  clearInterval(ticking);
  if (running !== mine) return;
  running = null;
  const seconds = (performance.now() - began) / 1000;
  slow = seconds > 3;
  busy(seconds > 0.05 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : "");
  show(now, told, key);
}

function show(now, told, key) {
  Object.assign(now, { shown: key, told });
  now.box.classList.remove("stale");
  const bad = told.find(({ error }) => error);
  if (bad && !told.some(({ error }) => !error)) now.box.replaceChildren(refusal(bad.error));
  else {
    now.draw(now.box, told);
    now.beside(told);
  }
  const said = told.map((one) => one.said).filter(Boolean).join("");
  if (said.trim()) now.box.append(element("pre", { class: "said" }, said.trim()));
  if (state.line) now.follow({ line: state.line, from: "again" });
}

/** What is wrong in place of an answer, with the way to its line. */
function refusal({ message, hint, line, file, kind }) {
  const here = line && (!file || baseName(file).startsWith(state.name));
  return element("div", { class: "refusal", role: "alert" },
    element("p", {}, here ? element("button", { type: "button", class: "plain", onclick: () => goTo(Math.min(line, editor.state.doc.lines)) }, `line ${line}`) : null, here ? " " : null, message),
    hint ? element("p", { class: "quiet" }, `hint: ${hint}`) : null,
    kind === "usage" ? element("p", {}, element("button", { type: "button", onclick: () => { $("launch").open = true; $("fields").querySelector("input").focus(); } }, "Say how it is launched")) : null);
}

// ---- choosing ----

function choose(id, focus = false) {
  if (!VIEWS[id]) return;
  state.tab = id;
  for (const one of Object.values(VIEWS)) {
    const chosen = one.id === id;
    one.tab.setAttribute("aria-selected", String(chosen));
    one.tab.tabIndex = chosen ? 0 : -1;
    one.box.hidden = !chosen;
  }
  if (focus) VIEWS[id].tab.focus();
  $("tabs").scrollLeft = VIEWS[id].tab.offsetLeft - $("tabs").offsetLeft - 60; // scrollIntoView would have Tab go on from here
  showCounts(new Map());
  origins = new Map();
  drawMarks();
  keep();
  run();
}
$("tabs").addEventListener("keydown", (event) => {
  const ids = Object.keys(VIEWS), at = ids.indexOf(state.tab), last = ids.length - 1;
  const next = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  choose(ids[next], true);
});

// ---- what is looked at ----

/** Look at a place: a line of the source, and all that it became; from says who looked, which needs not be told. */
function look(place) {
  if (place.line && place.line !== state.line) {
    state.line = place.line;
    keep();
  }
  drawMarks();
  if (place.line && place.from !== "source" && place.from !== "keys") reveal(place.line);
  VIEWS[state.tab].follow(place);
}

// ---- when something changes ----

let changeTimer = 0, runTimer = 0;

/** Something changed: say what is wrong with it, and run it again if that is soon done. */
function changed() {
  keep();
  for (const one of Object.values(VIEWS)) one.box.classList.add("stale");
  clearTimeout(changeTimer);
  clearTimeout(runTimer);
  changeTimer = setTimeout(async () => {
    await diagnose();
    const broken = faults.some(({ severity }) => severity === "error");
    if (!broken && !slow) runTimer = setTimeout(run, 250);
  }, 350);
}

async function diagnose() {
  const text = state.text, { result: said } = await ask(asAsked("diagnose")).catch(() => ({}));
  if (!said || text !== state.text) return;
  known = { ...said, kernels: said.kernels.length ? said.kernels : known.kernels };
  faults = said.faults;
  drawFaults();
  drawLaunch();
}
