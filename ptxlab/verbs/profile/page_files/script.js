"use strict";

const $ = (id) => document.getElementById(id);

// Every line that was counted: its row, and its counters by name.
const lines = [...document.querySelectorAll("tr[data-counts]")].map((row) => ({
  row,
  counts: JSON.parse(row.dataset.counts),
}));
const tables = [...document.querySelectorAll("table")];
const choice = $("counter");
const HOTTEST = 10;
// The lines of the source where there are some, else those of the PTX.
const own = lines.some(({ row }) => row.dataset.here) ? lines.filter(({ row }) => row.dataset.here) : lines;
let hottest = [];
let at = -1;

// Shows the chosen counter in every listing; a line's heat is its share of the most in its listing.
function show() {
  const name = choice.value;
  $("meaning").value = choice.selectedOptions[0].title;
  for (const table of tables) {
    const here = lines.filter(({ row }) => table.contains(row));
    const most = Math.max(1, ...here.map(({ counts }) => counts[name] ?? 0));
    table.querySelector("th:nth-child(2)").textContent = choice.selectedOptions[0].textContent;
    for (const { row, counts } of here) {
      const value = counts[name] ?? 0;
      row.style.setProperty("--heat", value / most);
      row.children[1].textContent = value ? value.toLocaleString("en-US") : "";
    }
  }
  const sum = own.reduce((total, { counts }) => total + (counts[name] ?? 0), 0);
  hottest = own.filter(({ counts }) => counts[name]).sort((a, b) => b.counts[name] - a.counts[name]).slice(0, HOTTEST);
  at = -1;
  $("hottest").querySelector("ol").replaceChildren(...hottest.map((line, place) => {
    const value = line.counts[name], share = value / sum, button = document.createElement("button");
    button.type = "button";
    button.style.setProperty("--share", `${(100 * value / hottest[0].counts[name]).toFixed(1)}%`);
    const words = [line.row.dataset.place, value.toLocaleString("en-US"), `${(100 * share).toFixed(0)} %`, textOf(line.row)];
    button.append(...words.map((word) => Object.assign(document.createElement("span"), { textContent: word })));
    button.addEventListener("click", () => { at = place; choose(line.row); });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
}

function textOf(row) {
  return row.lastElementChild.firstChild?.textContent.trim() ?? "";
}

// Opens what a row is folded in.
function reveal(row) {
  row.closest("details")?.setAttribute("open", "");
  const folded = row.closest("tbody[hidden]");
  if (folded) unfold(folded.previousElementSibling.querySelector("button"), true);
}

function unfold(button, open) {
  button.closest("tbody").nextElementSibling.hidden = !open;
  button.setAttribute("aria-expanded", open);
}

// Marks a line and those that it became, or came from.
function choose(row) {
  for (const old of document.querySelectorAll("tr.chosen")) old.classList.remove("chosen");
  for (const other of kin(row)) other.classList.add("chosen");
  reveal(row);
  row.scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", `#${encodeURIComponent(row.dataset.place)}`);
}

function kin(row) {
  const place = row.dataset.here ?? row.dataset.from;
  return place ? lines.map((line) => line.row).filter((other) => other.dataset.here === place || other.dataset.from === place) : [row];
}

// Brings into sight what a line became, or came from.
function follow(row) {
  choose(row);
  const side = row.dataset.here ? "from" : "here";
  const other = kin(row).find((each) => each !== row && each.dataset[side]);
  if (!other) return;
  reveal(other);
  other.scrollIntoView({ block: "center" });
}

function move(by) {
  if (!hottest.length) return;
  at = at < 0 ? (by > 0 ? 0 : hottest.length - 1) : (at + by + hottest.length) % hottest.length;
  choose(hottest[at].row);
}

function help() {
  $("keys").hidden = !$("keys").hidden;
  $("help").setAttribute("aria-expanded", !$("keys").hidden);
}
function openAll() {
  const folds = [...document.querySelectorAll("tr.gap button")], open = folds.some((button) => button.getAttribute("aria-expanded") === "false");
  for (const button of folds) unfold(button, open);
}

const KEYS = {
  n: () => move(1), p: () => move(-1), o: openAll, d: turn, "?": help,
  Enter: () => { const row = document.querySelector("tr.chosen"); if (row) follow(row); },
};
document.addEventListener("keydown", (event) => {
  const free = !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("select, button, summary");
  if (free && KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
});
choice.addEventListener("change", show);
$("help").addEventListener("click", help);
$("link").addEventListener("click", (event) => copyFrom(event.currentTarget, location.href));
document.querySelector("main").addEventListener("click", (event) => {
  const fold = event.target.closest("tr.gap button"), row = event.target.closest("tr[data-counts]");
  if (fold) unfold(fold, fold.getAttribute("aria-expanded") === "false");
  else if (row) follow(row);
});
show();
const linked = decodeURIComponent(location.hash.slice(1));
const there = linked && lines.find(({ row }) => row.dataset.place === linked);
if (there) { choose(there.row); there.row.scrollIntoView({ block: "center" }); }
