// The draft of a workflow: opened, saved by revision, and never written over what somebody else has saved.
import { get, send, segment } from "./api.js";
import { say } from "./notes.js";
import { formatTime } from "./times.js";

// The most pairs of lines that are compared with each other.
const MATCHED_MAX = 4_000_000;

const make = (name, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...inside.filter(Boolean));
  return made;
};

/** Knows the revision that the text on this page began with. `show(state, text)` says how it stands. */
export class DraftKeeper {
  constructor({ name, show }) {
    this.name = name;
    this.show = show;
    this.revision = 0; // 0: there is no draft yet
    this.version = 0; // the newest published version when the page was opened; 0: none
    this.saved = ""; // the text as the server has it
    this.isDirty = false;
    this.saving = null;
    this.isAsking = false;
  }

  /** The text to begin with: the draft, or a version. */
  async open(version, hasDraft) {
    const draft = hasDraft ? await this.#find(`workflows/${segment(this.name)}/draft`) : null;
    const published = await this.#find(`workflows/${segment(this.name)}${version ? `?version=${version}` : ""}`);
    this.version = published?.version ?? 0;
    this.revision = draft?.revision ?? 0;
    const began = version ? published : draft ?? published;
    this.saved = draft?.text ?? published.text;
    if (draft) this.show("saved", `draft by ${draft.updated_by}, ${formatTime(new Date(draft.updated_at))}`);
    else this.show("same", `version ${this.version}`);
    return { text: began.text, file: began.file, isOther: began.text !== this.saved };
  }

  async #find(path) {
    try {
      return await get(path);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  /** Note that the text has changed. */
  touch(text) {
    this.isDirty = text !== this.saved;
    if (this.isDirty) this.show("dirty", "not saved yet");
  }

  /** Nothing on this page is to be kept any more. */
  forget() {
    this.isDirty = false;
  }

  /** Save the text. False if somebody else was first, or the server does not answer. */
  async save(text, file, { replace }) {
    if (this.saving) await this.saving;
    this.saving = this.#save(text, file, replace);
    try {
      return await this.saving;
    } finally {
      this.saving = null;
    }
  }

  async #save(text, file, replace) {
    if (text === this.saved && this.revision) return true;
    this.show("saving", "saving…");
    try {
      this.#keep(await this.#put(text, file, this.revision), text);
      return true;
    } catch (error) {
      if (error.status === 412) return this.#conflict(text, file, replace);
      this.show("lost", error.status ? error.message : "not saved: the server does not answer");
      return false;
    }
  }

  #put(text, file, revision) {
    const headers = revision ? { "if-match": `"${revision}"` } : {};
    return send("PUT", `workflows/${segment(this.name)}/draft`, { text, file }, { headers });
  }

  #keep(draft, text) {
    this.revision = draft.revision;
    this.saved = text;
    this.isDirty = false;
    this.show("saved", `draft saved ${formatTime(new Date(), "clock")}`);
  }

  /** Look whether somebody else has changed the draft, when this page is looked at again. */
  async look(text, { replace }) {
    if (this.isAsking || this.saving) return;
    const draft = await this.#find(`workflows/${segment(this.name)}/draft`).catch(() => undefined);
    if (!draft || draft.revision === this.revision || this.isDirty) return;
    this.revision = draft.revision;
    this.saved = draft.text;
    replace(draft.text);
    say(`${draft.updated_by} has changed the draft; this is the new text`);
  }

  /** Somebody else was first: both texts, and the choice. */
  async #conflict(text, file, replace) {
    const theirs = await this.#find(`workflows/${segment(this.name)}/draft`);
    if (theirs?.text === text) {
      this.#keep(theirs, text);
      return true;
    }
    if (!theirs) {
      // It was published or discarded meanwhile: ours becomes a new draft, beside the version that there is now.
      this.revision = 0;
      this.#keep(await this.#put(text, file, 0), text);
      return true;
    }
    this.show("conflict", `${theirs.updated_by} has changed the draft; resolve`);
    if (this.isAsking) return false;
    this.isAsking = true;
    const choice = await askWhich(text, theirs);
    this.isAsking = false;
    if (choice === "theirs") {
      this.#keep(theirs, theirs.text);
      replace(theirs.text);
      return true;
    }
    if (choice !== "mine") return false;
    try {
      this.#keep(await this.#put(text, file, theirs.revision), text);
      return true;
    } catch (error) {
      return error.status === 412 ? this.#conflict(text, file, replace) : false;
    }
  }
}

/** A dialog with both texts: "mine", "theirs", or undefined to go on writing. */
function askWhich(mine, theirs) {
  return new Promise((resolve) => {
    const dialog = make("dialog", { className: "conflict" });
    dialog.setAttribute("aria-labelledby", "conflict-title");
    const buttons = make("div", { className: "buttons" });
    const answer = (text, value, className = "") => {
      const button = make("button", { type: "button", textContent: text, className });
      button.addEventListener("click", () => (resolve(value), dialog.close()));
      buttons.append(button);
    };
    const [left, right] = markDifferences(mine, theirs.text);
    const when = formatTime(new Date(theirs.updated_at));
    answer("Keep mine", "mine");
    answer("Take theirs", "theirs");
    answer("Back to my text", undefined, "quiet");
    dialog.append(
      make("h2", { id: "conflict-title", textContent: "Somebody else has changed this draft" }),
      make("p", { className: "sentence", textContent: `${theirs.updated_by} saved revision ${theirs.revision}, ${when}. Yours is not saved; nothing was overwritten.` }),
      make("div", { className: "both" }, column("Yours", left), column(`Theirs (${theirs.updated_by})`, right)),
      buttons,
    );
    dialog.addEventListener("close", () => (dialog.remove(), resolve(undefined)));
    document.body.append(dialog);
    dialog.showModal();
    for (const pre of dialog.querySelectorAll("pre")) {
      const first = pre.querySelector(".differs");
      if (first) pre.scrollTop = first.offsetTop - pre.offsetTop - pre.clientHeight / 3;
    }
    buttons.lastChild.focus();
  });
}

function column(title, lines) {
  const pre = make("pre", { className: "source" }, ...lines);
  pre.tabIndex = 0;
  return make("section", {}, make("h3", { textContent: title }), pre);
}

/** The lines of two texts as elements; those that only one of them has are marked. */
function markDifferences(one, other) {
  const [left, right] = [one.split("\n"), other.split("\n")];
  const same = commonLines(left, right);
  const show = (lines, kept) => lines.map((line, at) => make("span", { className: kept.has(at) ? "" : "differs", textContent: `${line}\n` }));
  return [show(left, new Set(same.map(([at]) => at))), show(right, new Set(same.map(([, at]) => at)))];
}

/** The lines that differ between two texts, with one line around them, at most `most` of them. */
export function changedLines(before, after, most = 200) {
  const [left, right] = [before.split("\n"), after.split("\n")];
  const rows = [];
  let [i, j] = [0, 0];
  for (const [one, other] of [...commonLines(left, right).sort((a, b) => a[0] - b[0]), [left.length, right.length]]) {
    while (i < one) rows.push({ kind: "removed", text: left[i++] });
    while (j < other) rows.push({ kind: "added", text: right[j++] });
    if (i < left.length) rows.push({ kind: "", text: left[i] });
    [i, j] = [one + 1, other + 1];
  }
  const near = rows.filter((row, at) => row.kind || rows[at - 1]?.kind || rows[at + 1]?.kind);
  const signs = { added: "+ ", removed: "- ", "": "  " };
  const shown = near.slice(0, most).map((row) => make("span", { className: row.kind, textContent: `${signs[row.kind]}${row.text}\n` }));
  if (near.length > most) shown.push(make("span", { textContent: `and ${near.length - most} more lines` }));
  return near.length ? make("pre", { className: "source changes" }, ...shown) : null;
}

/** Pairs of equal lines, in order: a longest common subsequence; of long texts only the equal beginning and end. */
function commonLines(left, right) {
  const found = [];
  let first = 0;
  while (first < left.length && first < right.length && left[first] === right[first]) found.push([first, first++]);
  let last = 0;
  while (last < left.length - first && last < right.length - first && left[left.length - 1 - last] === right[right.length - 1 - last]) {
    last++;
    found.push([left.length - last, right.length - last]);
  }
  const [rows, columns] = [left.length - first - last, right.length - first - last];
  if (rows * columns > MATCHED_MAX) return found;
  const lengths = Array.from({ length: rows + 1 }, () => new Uint32Array(columns + 1));
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) lengths[i][j] = left[first + i] === right[first + j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  }
  for (let i = 0, j = 0; i < rows && j < columns; ) {
    if (left[first + i] === right[first + j]) found.push([first + i++, first + j++]);
    else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return found;
}
