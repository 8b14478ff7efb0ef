// Eight stops for somebody who has never seen an mma: each opens a program, looks at a place, and says what is to be seen.

async function stopAt(number) {
  const stop = about.tour[number];
  if (!stop) { leaveTour(); return; }
  const { name, text } = (await ask({ want: "example", name: stop.example })).result;
  await become({ ...fresh(), name, text, example: stop.example, tab: stop.tab, launch: { args: {}, ...(stop.launch || {}) }, gpus: stop.gpus || fresh().gpus, stop: number });
  const at = stop.at ? text.split("\n").findIndex((line) => line.includes(stop.at) && !line.startsWith("//")) + 1 : 0;
  if (at) look({ line: at, from: "tour" });
  $("onward").focus();
}

function leaveTour() {
  state.stop = null;
  $("stop").hidden = true;
  keep();
  $("tour").focus();
}

function drawStop() {
  const stop = about.tour[state.stop];
  $("stop").hidden = !stop;
  if (!stop) return;
  const last = about.tour.length - 1;
  $("stop").replaceChildren(
    element("div", {}, element("h2", {}, element("small", {}, `${state.stop + 1} of ${last + 1}`), ` ${stop.title}`), ...stop.text.map((text) => element("p", {}, text))),
    element("div", { class: "moves" },
      element("button", { type: "button", disabled: state.stop === 0, onclick: () => stopAt(state.stop - 1) }, "Back"),
      element("button", { type: "button", id: "onward", class: "good", onclick: () => (state.stop === last ? leaveTour() : stopAt(state.stop + 1)) }, state.stop === last ? "Done" : "Next"),
      element("button", { type: "button", class: "plain", onclick: leaveTour }, "leave")));
}
$("tour").addEventListener("click", () => stopAt(0));
