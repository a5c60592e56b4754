#!/usr/bin/env node
// Serves an app's folder as a worker: node worker.mjs FOLDER [--host HOST] [--port PORT] [--packages]
import { parseArgs } from "node:util";
import { loadApp } from "./app.mjs";
import { serve } from "./millrace.mjs";

const USAGE = "node worker.mjs FOLDER [--host 127.0.0.1] [--port 8081] [--packages]";
const strings = { host: { type: "string", default: "127.0.0.1" }, port: { type: "string", default: "8081" } };

async function main() {
  const { values, positionals } = parseArgs({ options: { ...strings, packages: { type: "boolean" } }, allowPositionals: true });
  const port = Number(values.port);
  if (positionals.length !== 1 || !Number.isInteger(port) || port < 0 || port > 65_535) throw new Error(USAGE);
  const services = await loadApp(positionals[0], { hasPackages: values.packages });
  const server = serve(services, { host: values.host, port });
  server.on("error", failed);
  server.on("listening", () => {
    const { address, family, port: taken } = server.address();
    process.stdout.write(`worker at http://${family === "IPv6" ? `[${address}]` : address}:${taken}\n`);
  });
}

function failed(error) {
  const code = error.code && !error.message.startsWith(error.code) ? `${error.code}: ` : "";
  process.stderr.write(`${code}${error.message}\n`);
  process.exit(1);
}

main().catch(failed);
