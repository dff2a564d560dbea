// Make one tree of elements like another, and leave alone what is equal: focus, selection, scroll positions and open
// details survive. Elements with an id are found again by it. An element with `data-keep` belongs to a script.

export function morph(old, fresh) {
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    // Whether something is open, and what a user typed, is for the user to say.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "open" && old.localName === "details") continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function morphChildren(old, fresh) {
  const byId = new Map();
  for (const child of old.children) if (child.id) byId.set(child.id, child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    let match = null;
    if (next.nodeType === Node.ELEMENT_NODE && next.id) match = byId.get(next.id) ?? null;
    else {
      for (let one = at; one; one = one.nextSibling) {
        if (isAlike(one, next)) { match = one; break; }
        if (one.nodeType === Node.ELEMENT_NODE && one.id) break;
      }
    }
    if (match === null || match.localName !== next.localName) {
      old.insertBefore(next, at);
      continue;
    }
    if (match !== at) old.insertBefore(match, at);
    else at = at.nextSibling;
    if (match.nodeType !== Node.ELEMENT_NODE) {
      if (match.data !== next.data) match.data = next.data;
    } else if (!match.hasAttribute("data-keep") && !match.isEqualNode(next)) {
      morph(match, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    if (!(gone.nodeType === Node.ELEMENT_NODE && gone.hasAttribute("data-keep"))) gone.remove();
  }
}

function isAlike(one, other) {
  if (one.nodeType !== other.nodeType) return false;
  return one.nodeType !== Node.ELEMENT_NODE || (one.localName === other.localName && !one.id && !other.id);
}
