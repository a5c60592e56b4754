// How Node.js finds and reads the files of an app: as the server does. Runs in the thread of module hooks.
import { createRequire } from "node:module";
import * as nodeModule from "node:module";
import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, resolve as resolvePath, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const CODE = /\.(?:ts|mts|js|mjs)$/, AUTHORING = new URL("./authoring.mjs", import.meta.url).href;
let root, hasPackages, amaro;

export function initialize(settings) {
  root = settings.folder;
  hasPackages = settings.hasPackages;
}

const refusal = (code, message) => Object.assign(new Error(`${code}: ${message}`), { code });
const isFile = (path) => existsSync(path) && statSync(path).isFile();
const isInside = (path) => path.startsWith(root + sep);
const ownPath = (url) => (url?.startsWith("file:") && isInside(fileURLToPath(url)) ? fileURLToPath(url) : undefined);

export function resolve(specifier, context, next) {
  const from = ownPath(context.parentURL);
  if (from === undefined || from.includes(`${sep}node_modules${sep}`)) return next(specifier, context);
  if (specifier === "millrace") return { url: AUTHORING, format: "module", shortCircuit: true };
  if (!/^\.\.?\//.test(specifier)) {
    if (hasPackages) return next(specifier, context);
    throw refusal("app-refused", `${from} imports ${JSON.stringify(specifier)}, which the store does not have; --packages allows it in a worker`);
  }
  const wanted = resolvePath(dirname(from), specifier);
  const found = [wanted, ...["ts", "mts", "js", "mjs", "json"].map((ending) => `${wanted}.${ending}`)].find(isFile);
  if (found === undefined) throw refusal("app-refused", `${from} imports ${JSON.stringify(specifier)}, and there is no such file`);
  const real = realpathSync(found);
  if (!isInside(real)) throw refusal("app-refused", `${from} imports ${JSON.stringify(specifier)}, which is outside the app's folder`);
  return { url: pathToFileURL(real).href, format: "module", shortCircuit: true };
}

export async function load(url, context, next) {
  const path = ownPath(url);
  if (path === undefined || path.includes(`${sep}node_modules${sep}`)) return next(url, context);
  const text = readFileSync(path, "utf8");
  if (path.endsWith(".json")) return { format: "module", source: `export default ${JSON.stringify(JSON.parse(text))};`, shortCircuit: true };
  if (!CODE.test(path)) return next(url, context);
  const source = /\.m?ts$/.test(path) ? await withoutTypes(text, url) : text;
  return { format: "module", source, shortCircuit: true };
}

// Blanks in the place of types keep each line and column. What has a meaning at run time, as an enum has, is rewritten.
async function withoutTypes(text, url) {
  const strip = await stripper();
  try {
    return strip(text, "strip", url);
  } catch (error) {
    if (error?.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX" && error?.code !== "UnsupportedSyntax") throw error;
    return strip(text, "transform", url);
  }
}

async function stripper() {
  const own = nodeModule.stripTypeScriptTypes;
  if (own) return (text, mode, url) => own(text, mode === "strip" ? { mode, sourceUrl: url } : { mode, sourceMap: true, sourceUrl: url });
  amaro ??= await findAmaro();
  return (text, mode) => amaro.transformSync(text, { mode: mode === "strip" ? "strip-only" : mode }).code;
}

// Beside this file, in the folder that the worker was started in, or in the app.
async function findAmaro() {
  for (const from of [fileURLToPath(import.meta.url), resolvePath("package.json"), resolvePath(root, "package.json")]) {
    try {
      return createRequire(from)("amaro");
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  throw refusal("types-not-stripped", `Node.js ${process.versions.node} does not strip types. Use 22.13 or later, or: npm install amaro`);
}
