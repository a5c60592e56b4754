#!/usr/bin/env node
// Serves an app's folder as a worker: node worker.mjs FOLDER [--host HOST] [--port PORT] [--cert FILE --key FILE] [--packages]
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { loadApp } from "./app.mjs";
import { serveStreams } from "./stream.mjs";

const USAGE = "node worker.mjs FOLDER [--host 127.0.0.1] [--port 8081] [--cert FILE --key FILE] [--packages]";
const strings = { host: { type: "string", default: "127.0.0.1" }, port: { type: "string", default: "8081" }, cert: { type: "string" }, key: { type: "string" } };

async function main() {
  const { values, positionals } = parseArgs({ options: { ...strings, packages: { type: "boolean" } }, allowPositionals: true });
  const port = Number(values.port), hasTls = values.cert !== undefined;
  if (positionals.length !== 1 || !Number.isInteger(port) || port < 0 || port > 65_535 || hasTls !== (values.key !== undefined)) throw new Error(USAGE);
  const tls = hasTls ? { cert: readFileSync(values.cert), key: readFileSync(values.key) } : undefined;
  const services = await loadApp(positionals[0], { hasPackages: values.packages });
  const server = serveStreams(services, { host: values.host, port, tls });
  server.on("error", failed);
  server.on("listening", () => {
    const { address, family, port: taken } = server.address();
    process.stdout.write(`worker at ${hasTls ? "https" : "http"}://${family === "IPv6" ? `[${address}]` : address}:${taken}\n`);
  });
  // Calls that run end first. A second signal ends the process at once, as it does without this.
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => server.drain().then(() => process.exit(0)));
}

function failed(error) {
  const code = error.code && !error.message.startsWith(error.code) ? `${error.code}: ` : "";
  process.stderr.write(`${code}${error.message}\n`);
  process.exit(1);
}

main().catch(failed);
