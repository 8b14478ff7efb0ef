// The facts of the page: JSON, and columns of 32-bit words, inflated by the browser.

let data = null;
const column = {};

async function inflated(id) {
  const packed = Uint8Array.from(atob($(id).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack() {
  data = JSON.parse(new TextDecoder().decode(await inflated("data")));
  const bytes = await inflated("words");
  let at = 0;
  for (const [name, count] of Object.entries(data.sizes)) {
    const words = column[name] = new Uint32Array(count);
    for (let byte = 0; byte < 4; byte++, at += count) {
      for (let i = 0; i < count; i++) words[i] |= bytes[at + i] << (8 * byte);
    }
  }
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));
const number = (value) => value.toLocaleString("en-US");
const plural = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
const hex = (value) => `0x${value.toString(16)}`;
