// The app bench/apps/friends on Node's own HTTP server, with a Map in memory. PORT says where it listens.
"use strict";

const { createServer } = require("node:http");

const friendsOf = new Map();

function load(lists) {
  for (const [person, friends] of Object.entries(lists)) friendsOf.set(Number(person), friends);
  return null;
}

function walk(start) {
  let count = 0;
  for (const friend of friendsOf.get(start) ?? []) count += (friendsOf.get(friend) ?? []).length;
  return count;
}

const handlers = { "/call/friends/all/load": load, "/call/friends/all/walk": walk };

const server = createServer((request, response) => {
  const handler = handlers[request.url];
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    if (handler === undefined) return response.writeHead(request.url === "/healthz" ? 200 : 404).end();
    const reply = JSON.stringify(handler(JSON.parse(Buffer.concat(chunks).toString())));
    response.writeHead(200, { "content-type": "application/json", "content-length": reply.length }).end(reply);
  });
});
server.keepAliveTimeout = 120_000;
server.listen(Number(process.env.PORT || 8081), "127.0.0.1");
