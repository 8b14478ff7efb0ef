"use strict";
// What the user has made: kept in the address, in a saved page, and given to whoever is sent the link.

const SHELL = `<!doctype html>\n${document.documentElement.outerHTML}`;
const $ = (id) => document.getElementById(id);
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const plural = (count, word) => `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;
const json = (id) => JSON.parse($(id).textContent);
const about = json("about");

/** Put together an element: its class or other attributes, and what is in it. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/**
 * name, text   the program; of one that comes with ptxlab, unchanged, the link has its name alone (example)
 * launch       what the user says of the launch in place of the program's header, by the name of the option; args by argument
 * tab, line    what is looked at
 * gpus         whose time is predicted
 * cycles       the GPU whose cycles are the second axis of the timeline
 * other        what it is compared with: name, text, gpu; and the gpu of the program itself
 */
const fresh = () => ({ name: "", text: "", example: null, launch: { args: {} }, tab: "step", line: null, gpus: about.chosen, cycles: null, other: null, stop: null });
let state = fresh();

/** Whether the source is no PTX itself, but becomes some: CUDA C, or what a program in Python compiles. */
const isCompiled = () => !state.name.endsWith(".ptx");
const isPython = () => state.name.endsWith(".py");
/** Of lines of files, each called by the one before, the first that is of the source. */
const ownLine = (chain) => (chain.find((one) => one && baseName(one.path || one.file) === state.name) || {}).line || null;
const baseName = (path) => path.split("/").pop();

// ---- as text ----

async function through(stream, bytes) {
  const piped = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

function kept() {
  const { text, ...rest } = state;
  return state.example ? rest : { ...rest, text };
}

async function packed() {
  const bytes = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(kept())));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

async function unpacked(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = await through(new DecompressionStream("deflate-raw"), Uint8Array.from(binary, (c) => c.charCodeAt(0)));
  return JSON.parse(new TextDecoder().decode(bytes));
}

// ---- in the address ----

let addressed = "", waiting = 0;

/** Put the state into the address, a moment later: not once for each key. */
function keep() {
  clearTimeout(waiting);
  waiting = setTimeout(keepNow, 400);
}

async function keepNow() {
  clearTimeout(waiting);
  addressed = `#${await packed()}`;
  history.replaceState(null, "", addressed);
}

/** Return the state that the address has, null where there is none or it is no state. */
async function fromAddress() {
  if (location.hash.length < 2 || location.hash === addressed) return null;
  try {
    return await unpacked(location.hash.slice(1));
  } catch {
    say("the address holds no work of the lab");
    return null;
  }
}

// ---- as a file ----

function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Return the page as it came, with the state in it and what was answered. */
function savedPage() {
  const filled = (page, id, value) => page.replace(new RegExp(`(<script type="application/json" id="${id}">)[^]*?(<\\/script>)`),
    (_, before, after) => `${before}${JSON.stringify(value).replaceAll("</", "<\\/")}${after}`);
  return filled(filled(SHELL, "opens", { ...kept(), text: state.text }), "answers", found());
}

function stateOf(page) {
  const inside = new DOMParser().parseFromString(page, "text/html").getElementById("opens");
  if (!inside) throw new Error("no work of the lab is in this page");
  return JSON.parse(inside.textContent);
}

let sayTimer = 0;
function say(text) {
  clearTimeout(sayTimer);
  $("say").textContent = text;
  sayTimer = setTimeout(() => { $("say").textContent = ""; }, 6000);
}
