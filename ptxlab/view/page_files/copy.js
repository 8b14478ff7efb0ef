/** Put a text on the clipboard, where a page may not by what is marked. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** Copy, and say so on the button for a moment. */
function copyFrom(button, text) {
  const label = button.textContent;
  copy(text);
  button.textContent = "copied";
  setTimeout(() => { button.textContent = label; }, 1200);
}
