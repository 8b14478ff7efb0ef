"use strict";
/** Of a page that was saved: nobody is there to ask, and what it holds is looked at. */
const backend = {
  name: "saved: ptxlab lab opens it to go on",
  async ask() { throw new Error("This was not found before the page was saved. Open it with ptxlab lab to go on."); },
};
