// What the editor of the dashboard uses of CodeMirror 6. build.sh makes one file of it.
export { basicSetup } from "codemirror";
export { EditorView, Decoration, hoverTooltip, keymap, tooltips } from "@codemirror/view";
export { Compartment, EditorState, StateEffect, StateField, Transaction } from "@codemirror/state";
export { HighlightStyle, syntaxHighlighting, indentUnit } from "@codemirror/language";
export { yaml } from "@codemirror/lang-yaml";
export { indentWithTab } from "@codemirror/commands";
export { autocompletion, startCompletion } from "@codemirror/autocomplete";
export { lintGutter, setDiagnostics, nextDiagnostic, forEachDiagnostic } from "@codemirror/lint";
export { tags } from "@lezer/highlight";
