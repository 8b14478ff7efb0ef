// Pyodide with ptxlab, which answers what the page asks.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const ANSWER = `
import json
from ptxlab.verbs.lab.answer import answer

def reply(request, tell):
    return json.dumps(answer(json.loads(request), tell))

reply
`;

const place = (name) => new URL(`pyodide/${name}`, self.location).href;

async function begin() {
  postMessage({ loading: "Python is on its way" });
  const wheels = await (await fetch("wheels.json")).json();
  const python = await loadPyodide({ indexURL: place("") });
  postMessage({ loading: "Python is here, numpy and ptxlab are on their way" });
  await python.loadPackage(wheels.map(place));
  const reply = python.runPython(ANSWER);
  postMessage({ loading: "runs in this browser" });
  return reply;
}

const answering = begin();
answering.catch((error) => postMessage({ failed: `Python did not start: ${error.message}` }));

onmessage = async ({ data: request }) => {
  const reply = await answering;
  try {
    const said = reply(JSON.stringify(request), (progress) => postMessage({ progress }));
    postMessage({ answer: JSON.parse(said) });
  } catch (error) { // as when its memory is full: what is left of Python is not to be trusted
    postMessage({ failed: `Python has stopped: ${error.message}` });
  }
};
