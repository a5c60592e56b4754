// Built-in functions that anybody's input can keep busy. QuickJS cannot be interrupted in any of them, so these work in
// pieces, between which the turn can be ended, or refuse what would take too long. Part of `glue.js`.

// `length` is how many parameters the method that is replaced has.
function replaceMethod(owner, name, length, method) {
  defineProperty(method, "length", { value: length });
  defineProperty(method, "name", { value: name });
  defineProperty(owner, name, { value: freeze(method), writable: true, configurable: true });
}

// ---- Long words in long texts ------------------------------------------------------------------
// QuickJS looks for a word at each place of a text, character by character, and cannot be interrupted meanwhile: a
// word of 50,000 in a text of 100,000, which anybody may send, takes seconds. So where that may be much, it looks in one
// piece after the other, and between two of them the turn can be ended.

// Characters compared in one piece at most: some milliseconds.
const PIECE_STEPS = 4_000_000;
const nativeText = Object.fromEntries(
  ["includes", "indexOf", "lastIndexOf", "normalize", "replace", "replaceAll", "slice", "split"].map((name) => [name, String.prototype[name]]),
);
// What is not a text becomes one, unless it says itself how it is looked for: a RegExp does.
const asWord = (word, symbol) => (typeof word === "object" && word !== null && word[symbol] === undefined ? `${word}` : word);
const placeIn = (position, length) => Math.min(Math.max(Math.trunc(position) || 0, 0), length);

function findLong(text, word, from) {
  const step = Math.max(1, Math.floor(PIECE_STEPS / word.length));
  for (let at = from; at + word.length <= text.length; at += step) {
    const found = nativeText.indexOf.call(nativeText.slice.call(text, at, at + step - 1 + word.length), word);
    if (found !== -1) return at + found;
  }
  return -1;
}

function findLongBackwards(text, word, from) {
  const step = Math.max(1, Math.floor(PIECE_STEPS / word.length));
  for (let last = Math.min(from, text.length - word.length); last >= 0; last -= step) {
    const at = Math.max(0, last - step + 1);
    const found = nativeText.lastIndexOf.call(nativeText.slice.call(text, at, last + word.length), word);
    if (found !== -1) return at + found;
  }
  return -1;
}

// ECMA-262, GetSubstitution, for a word without groups.
function substitute(text, word, at, replacement) {
  if (typeof replacement === "function") return `${replacement(word, at, text)}`;
  const meant = { "$": "$", "&": word, "`": nativeText.slice.call(text, 0, at), "'": nativeText.slice.call(text, at + word.length) };
  return nativeText.replace.call(replacement, /\$([$&`'])/g, (_, sign) => meant[sign]);
}

function replaceLong(text, word, replacement, isAll) {
  const given = typeof replacement === "function" ? replacement : `${replacement}`;
  let [result, end] = ["", 0];
  for (let at = findLong(text, word, 0); at !== -1; at = isAll ? findLong(text, word, end) : -1) {
    result += nativeText.slice.call(text, end, at) + substitute(text, word, at, given);
    end = at + word.length;
  }
  return result + nativeText.slice.call(text, end);
}

function splitLong(text, word, limit) {
  const most = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
  const parts = [];
  let end = 0;
  for (let at = findLong(text, word, 0); at !== -1 && parts.length < most; at = findLong(text, word, end)) {
    parts.push(nativeText.slice.call(text, end, at));
    end = at + word.length;
  }
  if (parts.length < most) parts.push(nativeText.slice.call(text, end));
  return parts;
}

// Puts a function of the same name and number of parameters before the native one; `long` is for what may take long.
function guard(name, symbol, long) {
  const native = nativeText[name];
  const careful = {
    [name](one, two) {
      "use strict";
      const word = asWord(one, symbol);
      if (typeof word !== "string" || typeof this !== "string") return native.call(this, word, two);
      return word === one ? long(this, word, two) : guarded.call(this, word, two);
    },
  }[name];
  const guarded = natives.guardText(native, careful, PIECE_STEPS);
  replaceMethod(String.prototype, name, native.length, guarded);
}

guard("includes", Symbol.match, (text, word, position) => findLong(text, word, placeIn(position, text.length)) !== -1);
guard("indexOf", Symbol(), (text, word, position) => findLong(text, word, placeIn(position, text.length)));
guard("lastIndexOf", Symbol(), (text, word, position) =>
  findLongBackwards(text, word, Number.isNaN(+position) ? Infinity : placeIn(position, text.length)),
);
guard("replace", Symbol.replace, (text, word, replacement) => replaceLong(text, word, replacement, false));
guard("replaceAll", Symbol.replace, (text, word, replacement) => replaceLong(text, word, replacement, true));
guard("split", Symbol.split, splitLong);

// ---- Normal forms ------------------------------------------------------------------------------
// QuickJS sorts the marks behind a letter with the square of their number.

const NORMAL_PIECE = 2_048;
const MOST_MARKS = 4_096;
// Letters that no mark before them, and nothing that they become, can be joined to: there a text can be cut.
const CUTS = /[\u0020-\u007E\u00C0-\u024F\u0391-\u03C9\u0410-\u044F\u05D0-\u05EA\u0621-\u064A\u3041-\u3096\u30A1-\u30FA\u4E00-\u9FFF\uAC00-\uD7A3]/g;

function normalizeLong(text, form) {
  let result = "";
  for (let start = 0, end; start < text.length; start = end) {
    CUTS.lastIndex = start + NORMAL_PIECE;
    end = CUTS.exec(text)?.index ?? text.length;
    if (end - start > MOST_MARKS) throw new RangeError(`a text with more than ${MOST_MARKS} marks in a row has no normal form here`);
    result += nativeText.normalize.call(nativeText.slice.call(text, start, end), form);
  }
  return result;
}

replaceMethod(String.prototype, "normalize", 0, {
  normalize(form) {
    "use strict";
    const text = typeof this === "object" && this !== null ? `${this}` : this;
    if (typeof text !== "string" || text.length <= NORMAL_PIECE) return nativeText.normalize.call(text, form);
    const name = form === undefined ? "NFC" : `${form}`;
    nativeText.normalize.call("", name);
    return normalizeLong(text, name);
  },
}.normalize);

// ---- Patterns ----------------------------------------------------------------------------------
// Compiling takes the square of the pattern's length, for some. What stands in the source is the app's own affair.

const PATTERN_CHARACTERS = 8_192;
const asPattern = (pattern, symbol) => {
  const text = asWord(pattern, symbol);
  if (typeof text === "string" && text.length > PATTERN_CHARACTERS) {
    throw new SyntaxError(`a pattern that is made at run time has at most ${PATTERN_CHARACTERS} characters`);
  }
  return text;
};
const NativeRegExp = RegExp;
const CheckedRegExp = new Proxy(NativeRegExp, {
  construct: (target, [pattern, flags], made) =>
    Reflect.construct(target, [asPattern(pattern, Symbol.match), flags], made === CheckedRegExp ? target : made),
  apply: (target, _, [pattern, flags]) => target(asPattern(pattern, Symbol.match), flags),
});
defineProperty(globalThis, "RegExp", { value: CheckedRegExp, writable: true, configurable: true });
defineProperty(NativeRegExp.prototype, "constructor", { value: CheckedRegExp, writable: true, configurable: true });
delete NativeRegExp.prototype.compile;
for (const name of ["match", "matchAll", "search"]) {
  const native = String.prototype[name];
  replaceMethod(String.prototype, name, 1, {
    [name](pattern) {
      "use strict";
      return native.call(this, asPattern(pattern, Symbol[name]));
    },
  }[name]);
}

// ---- JSON --------------------------------------------------------------------------------------
// The host's own parser and printer look at the time as they go; see `json_parse.rs`, `json_print.rs`.

const SHORT_JSON = 4_096;
const nativeJson = { parse: JSON.parse, stringify: JSON.stringify };

// ECMA-262, InternalizeJSONProperty.
function revive(holder, name, reviver) {
  const value = holder[name];
  if (typeof value === "object" && value !== null) {
    for (const key of Object.keys(value)) {
      const revived = revive(value, key, reviver);
      if (revived === undefined) delete value[key];
      else defineProperty(value, key, { value: revived, writable: true, enumerable: true, configurable: true });
    }
  }
  return reviver.call(holder, name, value);
}

replaceMethod(JSON, "parse", 2, {
  parse(text, reviver) {
    const source = `${text}`;
    if (source.length <= SHORT_JSON) return nativeJson.parse(source, reviver);
    const value = natives.parseJson(source);
    return typeof reviver === "function" ? revive({ "": value }, "", reviver) : value;
  },
}.parse);

replaceMethod(JSON, "stringify", 3, {
  stringify(value, replacer, space) {
    if (typeof value !== "object" || replacer !== undefined || space !== undefined) return nativeJson.stringify(value, replacer, space);
    return natives.stringifyJson(value);
  },
}.stringify);

// A promise is no value, wherever in one it stands; for the app's own use of JSON it is the {} that it is everywhere.
replaceMethod(Promise.prototype, "toJSON", 0, function toJSON() {
  if (natives.isPrinting()) throw new TypeError("a promise is no value: await it");
  return this;
});
