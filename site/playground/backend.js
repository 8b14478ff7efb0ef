"use strict";
/**
 * Asks Python in a worker of this browser, one request after the other: what is asked about the text goes first. To end a
 * launch ends its worker, and the next request has a new one.
 */
const backend = (() => {
  const LAUNCHES = new Set(["run", "step", "trace", "check", "profile", "predict", "sass", "compare"]);
  const queue = []; // of {request, onProgress, resolve, reject}
  let worker = null, now = null;

  const tell = (text) => { document.getElementById("backend").textContent = text; };

  function start() {
    worker = new Worker("worker.js", { type: "module" });
    worker.onerror = (event) => fail(`Python could not be fetched: ${event.message || "is this page from a server?"}`);
    worker.onmessage = ({ data }) => {
      if (data.loading) tell(data.loading);
      else if (data.failed) fail(data.failed);
      else if (data.progress) now?.onProgress(data.progress);
      else { const { resolve } = now; now = null; resolve(data.answer); next(); }
    };
  }

  function end() {
    worker?.terminate();
    worker = null;
    now = null;
  }

  function fail(why) {
    const lost = [now, ...queue.splice(0)];
    end();
    tell(why);
    for (const one of lost) one?.reject(new Error(why));
  }

  function next() {
    if (now || !queue.length) return;
    if (!worker) start();
    const quick = queue.findIndex(({ request }) => !LAUNCHES.has(request.want));
    [now] = queue.splice(Math.max(0, quick), 1);
    worker.postMessage(now.request);
  }

  return {
    name: "Python is on its way",
    ask: (request, onProgress, signal) => new Promise((resolve, reject) => {
      const mine = { request, onProgress, resolve, reject };
      signal?.addEventListener("abort", () => {
        const at = queue.indexOf(mine);
        if (at >= 0) queue.splice(at, 1);
        else if (now !== mine) return;
        else end();
        reject(new DOMException("cancelled", "AbortError"));
        next();
      });
      queue.push(mine);
      next();
    }),
  };
})();
