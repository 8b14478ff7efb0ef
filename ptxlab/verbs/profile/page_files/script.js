"use strict";

// Every line that was counted: its row, and its counters by name.
const lines = [...document.querySelectorAll("tr[data-counts]")].map((row) => ({
  row,
  counts: JSON.parse(row.dataset.counts),
}));
const choice = document.getElementById("counter");

// Shows the chosen counter in every listing; a line's heat is its share of the most in its listing.
function show() {
  const name = choice.value;
  document.getElementById("meaning").value = choice.selectedOptions[0].title;
  for (const table of document.querySelectorAll("table")) {
    const here = lines.filter(({ row }) => table.contains(row));
    const most = Math.max(1, ...here.map(({ counts }) => counts[name] ?? 0));
    table.querySelector("th:nth-child(2)").textContent = choice.selectedOptions[0].textContent;
    for (const { row, counts } of here) {
      const value = counts[name] ?? 0;
      row.style.setProperty("--heat", value / most);
      row.children[1].textContent = value ? value.toLocaleString("en-US") : "";
    }
  }
}

// Marks the lines that a clicked one became, or came from, and brings the first of them into sight.
function follow(event) {
  const row = event.target.closest("tr");
  const place = row?.dataset.here ?? row?.dataset.from;
  if (!place) return;
  for (const old of document.querySelectorAll("tr.chosen")) old.classList.remove("chosen");
  const kin = [...document.querySelectorAll("tr")].filter(
    (other) => other.dataset.here === place || other.dataset.from === place,
  );
  for (const other of kin) other.classList.add("chosen");
  const side = row.dataset.here ? "from" : "here";
  kin.find((other) => other.dataset[side] === place)?.scrollIntoView({ block: "center" });
}

choice.addEventListener("change", show);
document.querySelector("main").addEventListener("click", follow);
show();
