// What `import … from "millrace"` gives an app's files: the values that millrace.d.ts declares, and no others.
import { service as frozen } from "./millrace.mjs";

export { Abort, query, workflow } from "./millrace.mjs";

const services = new WeakSet();
/** Whether `service` has made this. */
export const isService = (value) => typeof value === "object" && value !== null && services.has(value);
export function service(handlers) {
  const made = frozen(handlers);
  services.add(made);
  return made;
}
