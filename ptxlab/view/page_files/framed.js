/**
 * A page inside the lab, which writes to it as soon as it is ready: it has no head of its own then, says which line it is at,
 * and goes to the line that is looked at elsewhere.
 * goTo(line, file) goes there, a line of the PTX where there is no file, and tell() says where it is; held(register) says what a register
 * holds; dress(scheme) takes the scheme.
 */
const isFramed = parent !== window;
function tellLab(message) { if (isFramed) parent.postMessage({ ptxlab: message }, "*"); }
function joinLab({ goTo, dress, tell = () => {}, held = () => null }) {
  if (!isFramed) return;
  addEventListener("message", ({ data, source }) => {
    if (source !== parent || !data || !data.ptxlab) return;
    const { scheme, line, file, register, number } = data.ptxlab;
    document.documentElement.classList.add("framed");
    if (scheme) dress(scheme);
    if (line) goTo(line, file);
    else if (scheme) tell();
    if (number !== undefined) tellLab({ number, held: held(register) });
  });
  addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") tellLab({ key: "run" });
  });
  tellLab({ ready: true });
}
