// The source: an editor that says what is wrong as one types, what a word means, and what may come next.

const { EditorState, EditorView, Decoration, StateEffect, StateField, Compartment } = CodeMirror;
const lineOf = (view, position) => view.state.doc.lineAt(position);
const KINDS = { opcode: "function", modifier: "property", register: "variable", special: "constant", directive: "keyword", type: "type", name: "text" };

// ---- lines that are marked: by their origin, and the one that is looked at ----

const setMarks = StateEffect.define();
const marks = StateField.define({
  create: () => Decoration.none,
  update(value, change) {
    for (const effect of change.effects) if (effect.is(setMarks)) return effect.value;
    return value.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});
let origins = new Map();

/** Colour the lines that machine code comes from, and mark the one that is looked at. */
function drawMarks() {
  const { doc } = editor.state, wanted = new Map([...origins].map(([line, colour]) => [line, `origin l${colour}`]));
  if (state.line) wanted.set(state.line, `${wanted.get(state.line) || ""} here`);
  const set = [...wanted].filter(([line]) => line >= 1 && line <= doc.lines).sort(([a], [b]) => a - b)
    .map(([line, name]) => Decoration.line({ class: name }).range(doc.line(line).from));
  editor.dispatch({ effects: setMarks.of(Decoration.set(set)) });
}

// ---- what was counted, beside the lines ----

class Count extends CodeMirror.GutterMarker {
  constructor(text, heat, title) { super(); Object.assign(this, { text, heat, title }); }
  eq(other) { return other.text === this.text && other.heat === this.heat; }
  toDOM() { return element("span", { class: "count", style: `--heat:${this.heat}`, title: this.title }, this.text); }
}
const setCounts = StateEffect.define();
const counts = StateField.define({
  create: () => new Map(),
  update(value, change) {
    for (const effect of change.effects) if (effect.is(setCounts)) return effect.value;
    return change.docChanged ? new Map() : value;
  },
});
const countGutter = CodeMirror.gutter({
  class: "counts",
  lineMarker(view, block) {
    const told = view.state.field(counts).get(lineOf(view, block.from).number);
    return told ? new Count(told.text, told.heat, told.title) : null;
  },
  lineMarkerChange: (change) => change.startState.field(counts) !== change.state.field(counts),
});

/** Show numbers beside lines: by line a text, how hot it is from 0 to 1, and what it means. */
function showCounts(byLine) { editor.dispatch({ effects: setCounts.of(byLine) }); }

// ---- what is asked as one types ----

const asAsked = (want) => ({ want, name: state.name, text: state.text, options: options() });

async function complete(context) {
  if (!state.name.endsWith(".ptx")) return null;
  const line = context.state.doc.lineAt(context.pos), column = context.pos - line.from + 1;
  if (!context.explicit && !/[\w.%]$/.test(line.text.slice(0, column - 1))) return null;
  const said = await asked({ want: "complete", name: state.name, text: context.state.doc.toString(), line: line.number, column });
  if (!said || !said.options.length) return null;
  return {
    from: line.from + said.from - 1,
    options: said.options.map(({ label, kind, detail }) => ({ label, detail, type: KINDS[kind] })),
    validFor: /^[\w%]*$/,
  };
}

/** Ask what stands at a place of the text, and what its register holds at the moment that the step page shows. */
async function meaning(position) {
  if (!state.name.endsWith(".ptx")) return null;
  const line = editor.state.doc.lineAt(position), column = position - line.from + 1;
  const said = await asked({ want: "hover", name: state.name, text: state.text, line: line.number, column });
  if (!said) return null;
  const now = await held(said.title);
  return { ...said, rows: now ? [...said.rows, ["now", now]] : said.rows, start: line.from + said.from - 1, end: line.from + said.to - 1 };
}

/** A picture follows the scheme of its page only as an image does. */
const pictured = (svg) => element("img", { src: `data:image/svg+xml,${encodeURIComponent(svg)}`, alt: "which lane and register holds which element", style: `color-scheme:${isDark() ? "dark" : "light"}` });

function told({ title, rows, picture }) {
  return element("div", { class: "told" }, element("code", {}, title),
    element("dl", {}, ...rows.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    picture ? pictured(picture) : null);
}

const hovering = CodeMirror.hoverTooltip(async (view, position, side) => {
  const said = await meaning(side < 0 ? Math.max(0, position - 1) : position);
  return said && { pos: said.start, end: said.end, above: false, create: () => ({ dom: told(said) }) };
}, { hoverTime: 250 });

let wordTimer = 0;
/** Say below the editor what stands at the cursor. */
function tellWord() {
  clearTimeout(wordTimer);
  wordTimer = setTimeout(async () => {
    const said = await meaning(editor.state.selection.main.head).catch(() => null);
    $("word").replaceChildren(...(said ? [element("code", {}, said.title), ` ${said.rows.slice(0, 4).map(([name, text]) => `${name} ${text}`).join(" · ")}`] : []));
  }, 300);
}

// ---- what is wrong ----

let faults = [], findings = [];

/** Underline what is wrong: with the text, and what a check found. */
function drawFaults() {
  const { doc } = editor.state, all = [...faults, ...findings];
  const diagnostics = all.filter(({ line }) => line >= 1 && line <= doc.lines).map(({ line, column, severity, message, hint }) => {
    const here = doc.line(line), start = Math.min(here.from + Math.max((column || 1) - 1, here.text.search(/\S|$/)), here.to);
    const [word] = doc.sliceString(start, here.to).match(/^[\w$%.:]+/) || [doc.sliceString(start, here.to).trimEnd()];
    return { from: start, to: Math.max(start, Math.min(start + word.length, here.to)), severity, message: hint ? `${message}\nhint: ${hint}` : message };
  });
  editor.dispatch(CodeMirror.setDiagnostics(editor.state, diagnostics.sort((a, b) => a.from - b.from)));
  const errors = faults.filter(({ severity }) => severity === "error");
  const [first] = errors.length ? errors : faults;
  $("faults").className = errors.length ? "bad" : "quiet";
  $("faults").replaceChildren(first ? element("button", { type: "button", class: "plain", onclick: () => first.line && goTo(first.line, first.column) },
    `${first.line ? `line ${first.line}: ` : ""}${first.message.split("\n")[0]}${errors.length > 1 ? ` and ${errors.length - 1} more` : ""}`) : "");
}

// ---- the editor ----

const languageNow = new Compartment(), loading = CodeMirror.Annotation.define();
const editor = new EditorView({
  parent: $("editor"),
  state: EditorState.create({
    extensions: [
      countGutter, CodeMirror.lineNumbers(), CodeMirror.lintGutter(), CodeMirror.highlightSpecialChars(), CodeMirror.history(),
      CodeMirror.drawSelection(), CodeMirror.bracketMatching(), CodeMirror.highlightActiveLine(), CodeMirror.highlightActiveLineGutter(),
      CodeMirror.highlightSelectionMatches(), CodeMirror.syntaxHighlighting(HIGHLIGHT), languageNow.of(languageOf(".ptx")),
      CodeMirror.autocompletion({ override: [complete], activateOnTyping: true }), hovering, marks, counts,
      CodeMirror.keymap.of([...CodeMirror.completionKeymap, ...CodeMirror.historyKeymap, ...CodeMirror.searchKeymap, ...CodeMirror.lintKeymap, ...CodeMirror.defaultKeymap]),
      EditorState.tabSize.of(4),
      EditorView.contentAttributes.of({ "aria-label": "source", tabindex: "0" }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && !update.transactions.some((change) => change.annotation(loading))) typed();
        if (update.selectionSet && !update.docChanged) tellWord();
      }),
      EditorView.domEventHandlers({ click: (event, view) => {
        const position = view.posAtCoords({ x: event.clientX, y: event.clientY });
        if (position !== null) look({ line: lineOf(view, position).number, from: "source" });
      } }),
    ],
  }),
});

function typed() {
  state.text = editor.state.doc.toString();
  state.example = null;
  $("example").value = "";
  findings = [];
  origins = new Map();
  changed();
}

/** Show another text; nobody typed it. */
function setText(text) {
  editor.dispatch({
    changes: { from: 0, to: editor.state.doc.length, insert: text }, annotations: loading.of(true), selection: { anchor: 0 },
    effects: [languageNow.reconfigure(languageOf(state.name)), setCounts.of(new Map()), setMarks.of(Decoration.none)],
  });
  editor.scrollDOM.scrollTop = 0;
}

/** Bring a line into sight. */
function reveal(line, y = "center") {
  if (line < 1 || line > editor.state.doc.lines) return;
  editor.dispatch({ effects: EditorView.scrollIntoView(editor.state.doc.line(line).from, { y }) });
}
function goTo(line, column = 1) {
  const here = editor.state.doc.line(line);
  editor.dispatch({ selection: { anchor: Math.min(here.from + Math.max(column, 1) - 1, here.to) } });
  editor.focus();
  look({ line, from: "keys" });
}
