// Bits as numbers of a type, and numbers as text.

const scratch = new DataView(new ArrayBuffer(8));

/** Small floats: bits of exponent and mantissa, and whether the largest exponent is for infinity and NaN. */
const FLOATS = { f16: [5, 10, true], bf16: [8, 7, true], e5m2: [5, 2, true], e4m3: [4, 3, false] };
const BITS = { f64: 64, u64: 64, s64: 64, f32: 32, tf32: 32, u32: 32, s32: 32, f16: 16, bf16: 16, u16: 16, s16: 16,
  e4m3: 8, e5m2: 8, u8: 8, s8: 8, pred: 1 };

function small(bits, [exponents, mantissas, ieee]) {
  const most = (1 << exponents) - 1, bias = most >> 1;
  const exponent = (bits >> mantissas) & most, mantissa = bits & ((1 << mantissas) - 1);
  const sign = bits >> (exponents + mantissas) & 1 ? -1 : 1;
  if (exponent === most && ieee) return mantissa ? NaN : sign * Infinity;
  if (exponent === most && mantissa === (1 << mantissas) - 1) return NaN;
  const part = mantissa / (1 << mantissas);
  return sign * (exponent ? (1 + part) * 2 ** (exponent - bias) : part * 2 ** (1 - bias));
}

/** The number of type ``base`` in the low bits of a word, or in it and the ``high`` one. */
function numberOf(base, word, high = 0) {
  scratch.setUint32(0, high);
  scratch.setUint32(4, word);
  switch (base) {
    case "f64": return scratch.getFloat64(0);
    case "u64": return scratch.getBigUint64(0);
    case "s64": return scratch.getBigInt64(0);
    case "f32": case "tf32": return scratch.getFloat32(4);
    case "s32": return scratch.getInt32(4);
    case "s16": return scratch.getInt16(6);
    case "s8": return scratch.getInt8(7);
    case "f16": case "bf16": case "e4m3": case "e5m2": return small(word, FLOATS[base]);
    default: return word;
  }
}

const isFloat = (base) => /f\d|^e\d/.test(base);
const baseOf = (kind) => kind.replace(/x\d+$/, "");

/** A number in few characters. */
function brief(base, value) {
  if (!isFloat(base)) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2).replace("e+", "e") : String(+value.toPrecision(4));
}

/** A number in six characters at most where it is neither large nor tiny. */
function briefer(base, value) {
  const size = Math.abs(value);
  if (!isFloat(base) || !Number.isFinite(value) || value === 0) return brief(base, value);
  if (size < 1e-3 || size >= 1e4) return value.toExponential(0).replace("e+", "e");
  return size < 1 ? String(+value.toFixed(3)) : String(+value.toPrecision(3));
}

/** A number in five characters at most. */
function briefest(base, value) {
  const size = Math.abs(value);
  if (!isFloat(base) || !Number.isFinite(value) || value === 0) return brief(base, value);
  if (size < 0.01 || size >= 9999.5) return value.toExponential(0).replace("e+", "e");
  return String(+value.toFixed(size < 1 ? 2 : size < 10 ? 1 : 0));
}

/** The same without the zero before the point: four characters. */
const least = (base, value) => briefest(base, value).replace("0.", ".");

/** A number with all digits that its type needs. */
function whole(base, value) {
  if (!isFloat(base) || base === "f64" || !Number.isFinite(value) || value === 0) return brief(base, value) && String(value);
  const found = range(9).map((digits) => +value.toPrecision(digits + 1)).find((one) => Math.fround(one) === value);
  return String(found === undefined ? value : found);
}

const bare = (word, digits) => word.toString(16).padStart(digits, "0");

/** The bits of a register in hex, given its words, low ones first: of more than a word without leading zeros. */
function inHex(words, bits) {
  if (bits < 32) return bare(words[0], Math.ceil(bits / 4));
  const [high, ...rest] = [...words].reverse();
  return bits > 32 && !high && rest.length === 1 ? bare(rest[0], 1) : bare(high, bits > 32 ? 1 : 8) + rest.map((word) => bare(word, 8)).join("");
}

/** The elements of a register of so many bits as texts, low bits first; one in hex where the type does not fit. */
function elements(kind, words, bits, text = brief) {
  const base = baseOf(kind), width = BITS[base];
  if (bits === 1) return [String(words[0])];
  if (!width || width > bits) return [inHex(words, bits)];
  if (width === 64) return range(bits / 64).map((i) => text(base, numberOf(base, words[2 * i], words[2 * i + 1])));
  return range(bits / width).map((i) => {
    const low = i * width, part = words[low >> 5] >>> (low & 31);
    return text(base, numberOf(base, width === 32 ? part : part & ((1 << width) - 1)));
  });
}
