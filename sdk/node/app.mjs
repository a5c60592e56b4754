// An app's folder, read as the server reads it, as services that `serve` of millrace.mjs takes.
import { readdirSync, realpathSync, statSync } from "node:fs";
import { register } from "node:module";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { isService } from "./authoring.mjs";
import { adapted, installGlobals, problem } from "./surface.mjs";

const SERVICE = /^(?!_)(.+)\.(?:ts|mts|js|mjs)$/, EXPORTS = ["routes", "schedules"];
let loaded;

/** The services of a folder by name. A process serves one folder, because module hooks and globals are the process's. */
export async function loadApp(folder, { hasPackages = false } = {}) {
  if (loaded !== undefined) throw problem("app-refused", `this process serves ${loaded} already`);
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw problem("app-refused", `${folder} is not a folder`);
  loaded = realpathSync(folder);
  register("./hooks.mjs", import.meta.url, { data: { folder: loaded, hasPackages } });
  installGlobals();
  const app = {}, services = {};
  for (const file of readdirSync(loaded).sort()) {
    const name = file.endsWith(".d.ts") ? undefined : SERVICE.exec(file)?.[1];
    if (name === undefined) continue;
    if (app[name]) throw problem("app-refused", `two files are the service ${name}`);
    const module = await import(pathToFileURL(join(loaded, file)).href);
    app[name] = { default: module.default, routes: flatRoutes(module.routes ?? {}, file), schedules: module.schedules };
    checkExports(module, file);
  }
  if (!Object.keys(app).length) throw problem("app-refused", `${basename(loaded)} has no service: a file NAME.ts at its top is one`);
  for (const [name, one] of Object.entries(app)) services[name] = served(app, one);
  return services;
}

function served(app, { default: self = {}, routes, schedules }) {
  const handlers = {};
  for (const [name, handler] of Object.entries(self)) {
    if (name.startsWith("_") || typeof handler !== "function") continue;
    const kind = handler.millraceKind ?? "transaction";
    handlers[name] = Object.assign(adapted(app, self, kind, handler), { millraceKind: kind });
  }
  const adaptedRoutes = Object.entries(routes).map(([name, route]) => [name, adapted(app, routes, "route", route)]);
  return { default: handlers, routes: Object.fromEntries(adaptedRoutes), schedules };
}

function checkExports(module, file) {
  const refuse = (what) => { throw problem("app-refused", `${file}: ${what}`); };
  if (module.default !== undefined && !isService(module.default)) refuse("the default export must be service({ … })");
  if (module.default === undefined && module.routes === undefined) {
    refuse('a service exports "default service({ … })", "routes", or both; a file to import only starts with _ or lies in a folder');
  }
  for (const name of Object.keys(module)) {
    const meant = EXPORTS.find((known) => name !== known && [known, known.slice(0, -1)].includes(name.toLowerCase()));
    if (meant && module[meant] === undefined) refuse(`it exports "${name}", which means nothing: did you mean "${meant}"?`);
  }
}

// { "/users/:id": { GET: show, "POST /notes": add } } is "GET /users/:id" and "POST /users/:id/notes".
function flatRoutes(routes, file, prefix = "") {
  const found = {};
  for (const [name, value] of Object.entries(routes)) {
    const [, method, path = ""] = /^(?:([A-Z]+)(?: (?=\/)|$))?(\/\S*)?$/.exec(name) ?? [];
    const whole = (prefix === "/" ? "" : prefix) + path, isNested = typeof value === "object" && value !== null;
    if ((method === undefined && path === "") || isNested === (method !== undefined) || (!isNested && typeof value !== "function")) {
      throw problem("app-refused", `${file}: route "${name}": write it as "GET /path": a function, or "/path": { GET: … }`);
    }
    const inner = isNested ? flatRoutes(value, file, whole) : { [`${method} ${whole === "" ? "/" : whole}`]: value };
    for (const [route, handler] of Object.entries(inner)) {
      if (found[route]) throw problem("app-refused", `${file}: the route "${route}" is there twice`);
      found[route] = handler;
    }
  }
  return found;
}
