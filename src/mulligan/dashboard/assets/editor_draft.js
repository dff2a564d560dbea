// The draft of a workflow: opened, saved by revision, and never written over what somebody else has saved.
import { get, send, segment } from "./api.js";
import { say } from "./notes.js";
import { formatTime } from "./times.js";

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
  async open(version) {
    const published = await this.#find(`workflows/${segment(this.name)}${version ? `?version=${version}` : ""}`);
    const draft = await this.#find(`workflows/${segment(this.name)}/draft`);
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
    answer("Keep mine", "mine", "primary");
    answer("Take theirs", "theirs");
    answer("Back to my text", undefined, "quiet");
    dialog.append(
      make("h2", { id: "conflict-title", textContent: "Somebody else has changed this draft" }),
      make("p", { className: "sentence", textContent: `${theirs.updated_by} saved revision ${theirs.revision}, ${when}. Yours is not saved. Whatever you choose, nothing was overwritten yet.` }),
      make("div", { className: "both" }, column("Yours", left), column(`Theirs (${theirs.updated_by})`, right)),
      buttons,
    );
    dialog.addEventListener("close", () => (dialog.remove(), resolve(undefined)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

function column(title, lines) {
  const pre = make("pre", { className: "source" }, ...lines);
  pre.tabIndex = 0;
  return make("section", {}, make("h3", { textContent: title }), pre);
}

/** The lines of two texts as elements; those between the equal beginning and the equal end are marked. */
function markDifferences(one, other) {
  const [left, right] = [one.split("\n"), other.split("\n")];
  let first = 0;
  while (first < left.length && first < right.length && left[first] === right[first]) first++;
  let last = 0;
  while (last < left.length - first && last < right.length - first && left[left.length - 1 - last] === right[right.length - 1 - last]) last++;
  const show = (lines) => lines.map((line, at) => make("span", { className: at >= first && at < lines.length - last ? "differs" : "", textContent: `${line}\n` }));
  return [show(left), show(right)];
}
