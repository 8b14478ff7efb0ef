/** Light or dark: as the system has it until the button #scheme, or the lab around a page, says otherwise. What a page
 * draws in colours of its own is drawn anew by the functions in `redraws`. */
const root = document.documentElement, darkSystem = matchMedia("(prefers-color-scheme: dark)"), redraws = [];
const isDark = () => (root.dataset.scheme || (darkSystem.matches ? "dark" : "light")) === "dark";
function dress(scheme) {
  if (scheme) root.dataset.scheme = scheme;
  document.getElementById("scheme").textContent = isDark() ? "light" : "dark";
  for (const redraw of redraws) redraw();
}
const turn = () => dress(isDark() ? "light" : "dark");
document.getElementById("scheme").addEventListener("click", turn);
for (const media of [darkSystem, matchMedia("print")]) media.addEventListener("change", () => dress());
dress();
