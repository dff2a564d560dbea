// How the text of the editor looks: the colours of the page, light and dark.
import { EditorView, HighlightStyle, syntaxHighlighting, tags } from "./vendor/codemirror.js";

const mix = (tone, share = 78) => `color-mix(in srgb, var(--${tone}) ${share}%, var(--text))`;

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--page)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)", borderLeftWidth: "2px" },
  ".cm-gutters": { backgroundColor: "var(--page)", color: "var(--muted)", border: "none", paddingLeft: "4px" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--now) 7%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--now) 26%, transparent)" },
  ".cm-selectionMatch": { backgroundColor: "color-mix(in srgb, var(--try) 22%, transparent)" },
  ".cm-matchingBracket": { backgroundColor: "color-mix(in srgb, var(--now) 25%, transparent)", outline: "none" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--card)", border: "1px solid var(--border)", color: "var(--muted)" },
  ".cm-tooltip": { backgroundColor: "var(--page)", border: "1px solid var(--border)", borderRadius: "8px", boxShadow: "0 8px 24px rgb(0 0 0 / 14%)", color: "var(--text)", font: "13px/1.45 var(--font)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em", padding: "3px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 8px", borderRadius: "5px" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--now-wash)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-completionInfo": { padding: "6px 10px", maxWidth: "26em" },
  ".cm-help": { padding: "6px 10px", maxWidth: "30em" },
  ".cm-help code": { fontFamily: "var(--mono)", fontWeight: "600" },
  ".cm-help p": { margin: "3px 0 0", color: "var(--muted)" },
  ".cm-diagnostic": { padding: "5px 10px", whiteSpace: "pre-wrap", borderLeftWidth: "3px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--try)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad) 1px", textUnderlineOffset: "3px", textDecorationSkipInk: "none" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--try) 1px", textUnderlineOffset: "3px", textDecorationSkipInk: "none" },
  ".cm-gutter-lint": { width: "14px" },
  ".cm-lint-marker": { width: "8px", height: "8px", margin: "6px 0 0 3px", borderRadius: "50%" },
  ".cm-lint-marker-error": { content: "normal", backgroundColor: "var(--bad)" },
  ".cm-lint-marker-warning": { content: "normal", backgroundColor: "var(--try)" },
  ".cm-lintPoint:after": { borderBottomColor: "var(--bad)" },
  ".cm-panels": { backgroundColor: "var(--card)", color: "var(--text)", borderColor: "var(--faint)" },
  ".cm-panels input, .cm-panels button": { font: "inherit", color: "inherit", background: "var(--page)", border: "1px solid var(--border)", borderRadius: "5px", backgroundImage: "none" },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: mix("now"), fontWeight: "500" },
  { tag: [tags.string, tags.special(tags.string)], color: mix("good", 70) },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword, tags.atom], color: mix("ask", 75) },
  { tag: [tags.comment, tags.lineComment], color: mix("muted"), fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace, tags.meta], color: mix("muted") },
  { tag: [tags.labelName, tags.typeName], color: mix("try") },
]);

/** The extensions for CodeMirror. */
export const appearance = [theme, syntaxHighlighting(colours)];
