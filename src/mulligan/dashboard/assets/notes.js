// What happened, in a corner of the page, for a few seconds. An error stays until it is closed.

const SHOWN_MS = 5_000;
// There has to be time to follow a link.
const LINK_MS = 12_000;

/** Say something. `tone`: good, bad or "". `link`: {href, text}, where to see what comes of it. */
export function say(text, { tone = "", hint = "", link = null } = {}) {
  const note = document.createElement("div");
  note.className = `toast ${tone}`;
  note.append(Object.assign(document.createElement("p"), { textContent: text }));
  if (hint) note.append(Object.assign(document.createElement("p"), { textContent: hint, className: "note" }));
  if (link) note.append(Object.assign(document.createElement("a"), { href: link.href, textContent: link.text }));
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×", className: "quiet" });
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => note.remove());
  note.append(close);
  document.getElementById("notes").append(note);
  if (tone !== "bad") setTimeout(() => note.remove(), link ? LINK_MS : SHOWN_MS);
}

/** Say an error of the interface. */
export function sayError(error) {
  say(error.message, { tone: "bad", hint: error.hint ?? "" });
}
