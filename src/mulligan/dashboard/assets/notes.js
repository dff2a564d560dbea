// What happened, in a corner of the page, for a few seconds. An error stays until it is closed.

const SHOWN_MS = 5_000;

/** Say something. `tone`: good, bad or "". */
export function say(text, { tone = "", hint = "" } = {}) {
  const note = document.createElement("div");
  note.className = `toast ${tone}`;
  note.append(Object.assign(document.createElement("p"), { textContent: text }));
  if (hint) note.append(Object.assign(document.createElement("p"), { textContent: hint, className: "note" }));
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×", className: "quiet" });
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => note.remove());
  note.append(close);
  document.getElementById("notes").append(note);
  if (tone !== "bad") setTimeout(() => note.remove(), SHOWN_MS);
}

/** Say an error of the interface. */
export function sayError(error) {
  say(error.message, { tone: "bad", hint: error.hint ?? "" });
}
