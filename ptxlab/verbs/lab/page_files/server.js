"use strict";
/** Asks the server that the page came from; a line of its reply is progress, the last one is the answer. */
const backend = {
  name: "runs on this machine",
  async ask(request, onProgress, signal) {
    if (location.protocol === "file:") throw new Error("This was not found before the page was saved. Open it with ptxlab lab to go on.");
    const reply = await fetch("ask", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(request), signal,
    });
    if (!reply.ok) throw new Error(`${reply.status}: ${await reply.text()}`);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", answer = null;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const said of lines.map((line) => JSON.parse(line))) {
        if ("progress" in said) onProgress(said.progress);
        else answer = said.answer;
      }
    }
    if (!answer) throw new Error("the server is gone");
    return answer;
  },
};
