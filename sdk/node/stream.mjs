// Streams of the worker protocol: each attempt has one of HTTP/2, on which its handler runs once. On the same port are
// the requests of millrace.mjs, over HTTP/1.1 and HTTP/2: workflows go by them, and whoever speaks no HTTP/2.
import { createServer } from "node:http";
import * as http2 from "node:http2";
import * as net from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { Attempt, ProtocolError, Reader, frame, handlerOf, problem, readFrame, readInput, readStart, respond } from "./millrace.mjs";
import { refusal, verifierOf } from "./signature.mjs";

const CANCEL = 3, PING = 4, HEARTBEAT = frame(0x33, Buffer.alloc(0)), HEADER_BYTES = 12;
const CONTENT_TYPE = "application/vnd.millrace.worker";
const PAYLOAD_LIMIT = 8 * 1024 * 1024, ATTEMPT_LIMIT = 65 * 1024 * 1024;
// The server wants headers within 300 ms, and from then on a frame every 300 ms. A beat comes at each second look.
const LOOK_MS = 100;
// The server opens up to 100 streams on a connection. What is read is handed on at once, so windows may be wide.
const SETTINGS = { maxConcurrentStreams: 1000, initialWindowSize: 1024 * 1024, enablePush: false };
const CONNECTION_WINDOW = 16 * 1024 * 1024, SESSION_MEMORY_MIB = 4096;
// How long a connection may take to say which version of HTTP it speaks; and a peer, once all is done, to close its side.
const FIRST_BYTES_MS = 10_000, CLOSED_MS = 500;
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n");

/** Whole frames of a stream, out of bytes that come in any parts. */
class Frames {
  constructor() { Object.assign(this, { parts: [], bytes: 0, wanted: HEADER_BYTES, total: 0 }); }
  /** Whether a part of a frame waits for the rest. */
  get isPartial() { return this.bytes > 0; }
  /** The frames that are whole by now, each with its bytes. */
  feed(part) {
    this.parts.push(part);
    this.bytes += part.length;
    if ((this.total += part.length) > ATTEMPT_LIMIT) throw new ProtocolError("the frames of an attempt are too large");
    if (this.bytes < this.wanted) return [];
    const data = this.parts.length === 1 ? part : Buffer.concat(this.parts), frames = [];
    let at = 0;
    for (; (this.wanted = wantedOf(data, at)) <= data.length - at; at += this.wanted) {
      const whole = data.subarray(at, at + this.wanted);
      frames.push({ ...readFrame(new Reader(whole)), whole });
    }
    this.parts = at < data.length ? [data.subarray(at)] : [];
    this.bytes = data.length - at;
    return frames;
  }
}

function wantedOf(data, at) {
  if (data.length - at < HEADER_BYTES) return HEADER_BYTES;
  const length = data.readUInt32BE(at);
  if (length > PAYLOAD_LIMIT) throw new ProtocolError("a frame is too large");
  return HEADER_BYTES + length;
}

/** An attempt on its stream. `heard` are all attempts of this worker that are heard meanwhile: they have the turn, or a part of
 *  what begins it. */
class StreamAttempt extends Attempt {
  constructor(start, stream, heard) {
    super(start);
    Object.assign(this, { stream, heard, looks: 0, inputs: [], hasTurn: false, isSettling: false, isOver: false, isPartial: false });
  }
  // Nothing is sent again here, so nothing is counted or summed.
  emit(type, payload, flags = 0) { this.frames.push(frame(type, payload, flags)); }
  issue(type, ...parts) {
    const operation = super.issue(type, ...parts);
    void this.settle();
    return operation;
  }
  begin(handler) {
    this.takeTurn();
    void this.run(handler).then(() => this.settle());
    void this.settle();
  }
  takeTurn() {
    this.hasTurn = true;
    this.hear();
  }
  hear() {
    if (!this.heard.has(this)) this.looks = 0;
    if (this.hasTurn || this.isPartial) this.heard.add(this);
    else this.heard.delete(this);
  }
  /** What the server has sent together. RESULTs of which a part is still on its way begin no turn yet. */
  feed(frames, isPartial) {
    this.isPartial = isPartial;
    for (const one of frames) {
      if (one.type === PING) this.beat();
      else if (one.type === CANCEL) return this.stream.close(http2.constants.NGHTTP2_CANCEL);
      else this.take(readInput(one));
    }
    this.hear();
    void this.settle();
  }
  take(given) {
    if (given.fields) return this.learn(given);
    this.takeTurn();
    this.deliver(given.operation, given.result);
  }
  /** Ends the turn once the handler has come to rest: it has ended, or waits for results. A handler that waits for something
   *  else has the turn still. What it asks for after its turn goes with the next one: the server does not read before. */
  async settle() {
    if (this.isSettling || !this.hasTurn) return;
    this.isSettling = true;
    await this.rested();
    this.isSettling = false;
    if (this.isPartial || !this.hasTurn) return;
    const hasEnded = this.ended && !this.waiting.size;
    if (!hasEnded && !this.waiting.size) return;
    try {
      if (hasEnded) this.ended();
      else this.suspend();
    } catch {
      // What cannot be put into frames voids the attempt, and no other one.
      this.drop();
      return this.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    }
    this.hasTurn = false;
    this.hear();
    this.isOver = hasEnded;
    this.send(Buffer.concat(this.frames));
    this.frames = [];
  }
  // Where bytes still wait to be read, the server hears of this worker by them.
  beat() { if (this.stream.writableLength === 0) this.send(HEARTBEAT); }
  look() { if (++this.looks % 2 === 0) this.beat(); }
  send(data) {
    if (this.stream.closed || this.stream.destroyed) return;
    if (!this.stream.headersSent) this.stream.respond({ ":status": 200, "content-type": CONTENT_TYPE });
    this.stream.write(data);
  }
  /** Nobody waits for it any more: nothing of it is sent, and what it awaits never comes. */
  drop() {
    this.hasTurn = this.isPartial = false;
    this.hear();
    this.isOver = true;
    this.waiting.clear();
  }
}

function refuse(stream, [status, type, body]) {
  if (stream.headersSent || stream.closed || stream.destroyed) return stream.end();
  stream.respond({ ":status": status, "content-type": type });
  stream.end(body);
}

/** Answers a stream whose request is not read on: what is still sent is dropped, and takes no memory. */
function refuseUnread(stream, answer) {
  stream.removeAllListeners("data").removeAllListeners("end").resume();
  refuse(stream, answer);
  stream.close(http2.constants.NGHTTP2_NO_ERROR);
}

function serveStream({ services, fits, heard }, stream, request) {
  const frames = new Frames();
  let attempt;
  const begin = (first) => {
    const refused = refusal(fits, request, first.whole);
    if (refused) return refuseUnread(stream, problem(401, "worker-refused", refused));
    const start = readStart(first), handler = handlerOf(services, start, request);
    (attempt = new StreamAttempt(start, stream, heard)).begin(handler);
  };
  // Its end without a turn says that the attempt is void.
  const fail = (error) => {
    attempt?.drop();
    refuseUnread(stream, problem(400, "worker-protocol", error.message));
  };
  stream.on("data", (part) => {
    try {
      const whole = frames.feed(part);
      if (!attempt && whole.length && !stream.writableEnded) begin(whole.shift());
      if (!attempt?.isOver) attempt?.feed(whole, frames.isPartial);
    } catch (error) {
      fail(error);
    }
  });
  // In order this comes after the attempt's end. If it comes before, the server has given the attempt up.
  stream.on("end", () => (attempt ? (attempt.drop(), stream.end()) : fail(new ProtocolError("the stream ended before START was whole"))));
  stream.on("close", () => attempt?.drop());
  // A reset, or a lost connection: the end of the stream tells of it.
  stream.on("error", () => {});
}

/** Serves services as `serve` of millrace.mjs does, and on streams too. With `tls`, an object with `cert` and `key`, all of it is
 *  over TLS. Gives the server. Its `drain()` takes nothing new, and settles once all that runs has ended. */
export function serveStreams(services, { port = 8081, host = "127.0.0.1", secret, publicKey, tls } = {}) {
  const worker = { services, fits: verifierOf({ secret, publicKey }), heard: new Set() }, connections = new Connections();
  const http1 = createServer((request, response) => {
    connections.began(request.socket, response);
    respond(services, worker.fits, "request-reply", request, response);
  });
  const over2 = http2.createServer({ settings: SETTINGS, maxSessionMemory: SESSION_MEMORY_MIB });
  over2.on("stream", (stream, headers, _, rawHeaders) => {
    // Its end may have come with its beginning.
    if (stream.destroyed || !stream.session) return;
    const isStream = headers["millrace-worker-mode"] === "stream", { ":method": method, ":path": url } = headers;
    if (isStream && method === "POST" && url.split("?")[0].endsWith("/invoke")) {
      return serveStream(worker, stream, { method, url, headers, socket: stream.session.socket });
    }
    const request = new http2.Http2ServerRequest(stream, headers, {}, rawHeaders);
    respond(services, worker.fits, isStream ? "stream" : "request-reply", request, new http2.Http2ServerResponse(stream));
  });
  over2.on("session", (session) => {
    session.setLocalWindowSize(CONNECTION_WINDOW);
    connections.addSession(session);
  });
  const hand = (socket, isHttp2) => {
    socket.setNoDelay(true);
    if (!isHttp2) connections.add(socket);
    (isHttp2 ? over2 : http1).emit("connection", socket);
  };
  const server = tls
    ? createTlsServer({ ALPNProtocols: ["h2", "http/1.1"], ...tls }, (socket) => hand(socket, socket.alpnProtocol === "h2"))
    : net.createServer((socket) => tellApart(socket, hand));
  server.on("connection", (socket) => connections.addAny(socket));
  const looking = setInterval(() => worker.heard.forEach((attempt) => attempt.look()), LOOK_MS).unref();
  server.on("close", () => clearInterval(looking));
  server.drain = () => new Promise((resolve) => {
    server.close(resolve);
    connections.drain();
  });
  return server.listen(port, host);
}

/** What is connected: sockets of HTTP/1.1, each with the requests it carries, and sessions of HTTP/2; below both, `all`. */
class Connections {
  constructor() { Object.assign(this, { sockets: new Map(), sessions: new Set(), all: new Set(), isDraining: false }); }
  addAny(socket) {
    this.all.add(socket);
    socket.on("close", () => this.all.delete(socket));
  }
  add(socket) {
    this.sockets.set(socket, 0);
    socket.on("close", () => this.sockets.delete(socket));
  }
  addSession(session) {
    this.sessions.add(session);
    session.on("close", () => this.sessions.delete(session));
    // A connection that breaks ends its streams, and each tells its attempt.
    session.on("error", () => {});
    if (this.isDraining) session.close();
  }
  began(socket, response) {
    const count = (change) => this.sockets.has(socket) && this.sockets.set(socket, this.sockets.get(socket) + change);
    count(1);
    response.on("close", () => {
      count(-1);
      if (this.isDraining) socket.end();
    });
  }
  drain() {
    this.isDraining = true;
    // GOAWAY: what a session carries goes on, and nothing is made of what comes later.
    for (const session of this.sessions) session.close();
    for (const [socket, requests] of this.sockets) if (requests === 0) socket.destroy();
    // A peer that does not close its side holds nothing up.
    let idleLooks = 0;
    const look = () => {
      const isDone = [...this.sessions].every((session) => session.destroyed) && [...this.sockets.values()].every((requests) => requests === 0);
      if (isDone) idleLooks += 1;
      if (idleLooks * LOOK_MS < CLOSED_MS) return;
      clearInterval(looking);
      for (const socket of this.all) socket.destroy();
    };
    const looking = setInterval(look, LOOK_MS).unref();
  }
}

/** Hands a connection on once its first bytes say which version of HTTP it speaks. */
function tellApart(socket, hand) {
  let seen = Buffer.alloc(0);
  const fail = () => socket.destroy();
  const look = (data) => {
    seen = Buffer.concat([seen, data]);
    const isHttp2 = seen.subarray(0, PREFACE.length).equals(PREFACE.subarray(0, seen.length));
    if (isHttp2 && seen.length < PREFACE.length) return;
    socket.setTimeout(0).off("timeout", fail).off("data", look).off("error", fail).pause().unshift(seen);
    hand(socket, isHttp2);
    if (!isHttp2) socket.resume();
  };
  socket.setTimeout(FIRST_BYTES_MS).on("timeout", fail).on("data", look).on("error", fail);
}
