// What stands out in PTX, CUDA C and Python. Each is a list of patterns, of which the first that fits names the token.

const PTX = [
  [/^\/\/.*/, "comment"],
  [/^"[^"]*"?/, "string"],
  [/^(\.version|\.target|\.address_size|\.file|\.loc|\.pragma|\.section|\.alias)\b[^;{]*/, "meta"],
  [/^\.(visible|extern|weak|common|entry|func|reg|param|shared|global|local|const|tex|align|ptr|reqntid|maxntid|minnctapersm|maxnreg|noreturn|branchtargets|callprototype|calltargets)\b/, "keyword"],
  [/^\.(?:[suf](?:8|16|32|64)|b(?:1|8|16|32|64|128)|bf16(?:x2)?|f16x2|tf32|e4m3(?:x\d)?|e5m2(?:x\d)?|e2m1(?:x\d)?|pred|v[248])\b/, "typeName"],
  [/^@!?[\w$%]+/, "labelName"],
  [/^%[\w$]+(?:\.[xyzw])?/, "variableName.special"],
  [/^0[fFdD][0-9a-fA-F]+|^0[xX][0-9a-fA-F]+|^\d+(?:\.\d+)?(?:[eE][+-]?\d+)?U?/, "number"],
  [/^[A-Za-z_$][\w$]*(?=:(?!:))/, "labelName"],
];
const words = (text) => new Set(text.split(" "));
const C_WORDS = words("alignas auto bool break case char class const constexpr continue default do double else enum extern false float for if inline int long namespace noexcept nullptr operator private public restrict return short signed sizeof static static_assert struct switch template this true typedef typename union unsigned using void volatile while");
const C_MORE = words("__global__ __device__ __host__ __shared__ __constant__ __launch_bounds__ __forceinline__ __cluster_dims__ __restrict__ asm threadIdx blockIdx blockDim gridDim __syncthreads warpSize");
const PYTHON_WORDS = words("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield True False None");
const worded = (lists) => [/^[A-Za-z_]\w*/, (word) => { for (const [set, kind] of lists) if (set.has(word)) return kind; return "variableName"; }];
const C = [
  [/^\/\/.*/, "comment"], [/^#\s*\w+/, "meta"], [/^"(?:[^"\\]|\\.)*"?|^'(?:[^'\\]|\\.)*'/, "string"],
  [/^0[xX][0-9a-fA-F']+[uUlL]*|^\d[\d']*(?:\.\d*)?(?:[eE][+-]?\d+)?[fFuUlL]*/, "number"],
  worded([[C_WORDS, "keyword"], [C_MORE, "typeName"]]),
];
const PYTHON = [
  [/^#.*/, "comment"], [/^"(?:[^"\\]|\\.)*"?|^'(?:[^'\\]|\\.)*'?/, "string"], [/^@[\w.]+/, "meta"],
  [/^\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?/, "number"], worded([[PYTHON_WORDS, "keyword"]]),
];

/** Make a language of patterns; of PTX the first word of a statement is its opcode, of which the parts behind the first stand back. */
function language(patterns, { opcodes = false, line = "//" } = {}) {
  return CodeMirror.StreamLanguage.define({
    startState: () => ({ block: false, begins: true, opcode: false }),
    languageData: { commentTokens: { line } },
    token(stream, now) {
      if (now.block || (line === "//" && stream.match("/*"))) {
        now.block = !stream.match(/^.*?\*\//);
        if (now.block) stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) { now.opcode = false; return null; }
      if (opcodes && now.opcode && stream.match(/^\.[\w$]+(?:::\w+)*/)) return "attributeName";
      now.opcode = false;
      for (const [pattern, kind] of patterns) {
        const match = stream.match(pattern);
        if (!match) continue;
        if (kind !== "comment") now.begins = opcodes && kind === "labelName";
        return typeof kind === "string" ? kind : kind(match[0]);
      }
      const word = opcodes && stream.match(/^[A-Za-z_$][\w$]*/);
      if (word) {
        const opcode = now.begins && !/^\s*[,}]/.test(stream.string.slice(stream.pos));
        now.begins = false;
        now.opcode = opcode;
        return opcode ? "function" : "variableName";
      }
      now.begins = ";{}:".includes(stream.next());
      return null;
    },
    tokenTable: { function: CodeMirror.tags.function(CodeMirror.tags.variableName) },
  });
}
const LANGUAGES = { ".ptx": language(PTX, { opcodes: true }), ".cu": language(C), ".py": language(PYTHON, { line: "#" }) };
const languageOf = (name) => LANGUAGES[name.slice(name.lastIndexOf("."))] || LANGUAGES[".ptx"];
const { tags } = CodeMirror;
const HIGHLIGHT = CodeMirror.HighlightStyle.define([
  [tags.comment, "comment"], [tags.string, "string"], [tags.number, "number"], [tags.keyword, "keyword"], [tags.meta, "meta"],
  [tags.typeName, "type"], [tags.labelName, "label"], [tags.special(tags.variableName), "register"],
  [tags.function(tags.variableName), "opcode"], [tags.attributeName, "modifier"],
].map(([tag, name]) => ({ tag, class: `tok-${name}` })));
