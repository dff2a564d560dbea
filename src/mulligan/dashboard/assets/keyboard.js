// The keyboard: `/` to search, `g` and a letter to go somewhere, `j` and `k` through rows, Enter to open, `?` for help.

const rowsOf = () => [...document.querySelectorAll("table[data-rows] tbody tr, [data-rows]:not(table) > *")].filter((one) => one.offsetParent);
const extra = [];

/** Add a key for this page: `addKey("a", "approve", handler)`. It is shown by `?`. */
export function addKey(key, text, handler) {
  extra.push({ key, text, handler });
}

/** The row that j and k have reached. */
export function currentRow() {
  return document.querySelector("[data-current]");
}

export function startKeyboard(search) {
  let afterG = -Infinity; // when g was pressed
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], .cm-editor");
    if (typing) {
      if (event.key === "Escape" && typing === search) search.blur();
      return;
    }
    if (performance.now() - afterG < 1200) {
      afterG = -Infinity;
      const link = document.querySelector(`.sidebar [data-key="${CSS.escape(event.key)}"]`);
      if (link) return void (event.preventDefault(), link.click());
    }
    const row = currentRow();
    const own = extra.find(({ key }) => key === event.key);
    if (event.key === "/") (event.preventDefault(), search.focus(), search.select());
    else if (event.key === "g") afterG = performance.now();
    else if (event.key === "?") (event.preventDefault(), showHelp());
    else if (event.key === "j" || event.key === "k") (event.preventDefault(), move(event.key === "j" ? 1 : -1));
    else if (event.key === "Enter" && row && !event.target.closest("a, button, summary")) row.querySelector("a")?.click();
    else if (event.key === "x" && row) row.querySelector("input[type=checkbox]")?.click();
    else if (own) (event.preventDefault(), own.handler(row));
  });
  document.getElementById("keys").addEventListener("click", showHelp);
}

function move(by) {
  const rows = rowsOf();
  if (!rows.length) return;
  const row = currentRow();
  const next = rows[Math.min(rows.length - 1, Math.max(0, row ? rows.indexOf(row) + by : 0))];
  row?.removeAttribute("data-current");
  next.setAttribute("data-current", "");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a") ?? next.querySelector("button, input") ?? next).focus({ preventScroll: true });
}

function showHelp() {
  const places = [...document.querySelectorAll(".sidebar [data-key]")].map((one) => [`g ${one.dataset.key}`, one.querySelector("span")?.textContent]);
  const lines = [["/", "search runs"], ["j  k", "next, previous row"], ["Enter", "open the row"], ["x", "select the row"], ...extra.map(({ key, text }) => [key, text]), ...places, ["?", "this help"]];
  const dialog = document.createElement("dialog");
  dialog.className = "help";
  dialog.setAttribute("aria-label", "Keyboard shortcuts");
  dialog.append(Object.assign(document.createElement("h2"), { textContent: "Keyboard" }));
  const list = document.createElement("dl");
  for (const [key, text] of lines) {
    const name = document.createElement("dt");
    for (const one of key.split(/\s+/)) name.append(Object.assign(document.createElement("kbd"), { textContent: one }));
    list.append(name, Object.assign(document.createElement("dd"), { textContent: text }));
  }
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  close.addEventListener("click", () => dialog.close());
  dialog.append(list, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
