// The login example on Express and Valkey or Redis: the same HTTP contract, the same check
// (SHA-1 over password and salt), set up the way its own docs recommend for production.
// PORT and REDIS_PORT say where it listens and where its store is.
"use strict";

const { createHash, randomBytes } = require("node:crypto");
const express = require("express");
const { createClient } = require("redis");

const sha1 = (text) => createHash("sha1").update(text).digest("hex");

async function main() {
  const store = createClient({ url: `redis://127.0.0.1:${process.env.REDIS_PORT || 6379}` });
  store.on("error", (error) => {
    console.error(error);
    process.exit(1);
  });
  await store.connect();

  const app = express();
  // Off, because the other side has neither.
  app.disable("x-powered-by");
  app.disable("etag");
  app.get("/healthz", (_request, response) => response.send("ok"));

  app.post("/user/register", express.json(), async (request, response) => {
    const { username, password } = request.body;
    const salt = randomBytes(8).toString("hex");
    const key = `user:${username}`;
    if (!(await store.hSetNX(key, "salt", salt))) return response.status(409).send("taken");
    await store.hSet(key, "hash", sha1(password + salt));
    response.status(201).end();
  });

  app.get("/user/login", async (request, response) => {
    const header = request.headers.authorization || "";
    if (!header.startsWith("Basic ")) return response.status(401).end();
    const [name, ...rest] = Buffer.from(header.slice(6), "base64").toString().split(":");
    const [salt, hash] = await store.hmGet(`user:${name}`, ["salt", "hash"]);
    if (salt === null || sha1(rest.join(":") + salt) !== hash) return response.status(401).end();
    response.type("text/plain").send("ok");
  });

  const server = app.listen(Number(process.env.PORT || 8081), "127.0.0.1");
  server.keepAliveTimeout = 120_000;
}

main();
