// A host in one file: handlers in JavaScript, for Node.js and without any package.
//
// It manages notes: a resource notes::Note has a `path`, a `text`, and may be `purged`. This is a complete host;
// docs/reference/host-protocol.md explains it. A new handler is a new entry in `handlers`.

import fs from "node:fs";
import net from "node:net";

// ---- The handlers: one object for each entity. `read` returns the current state, or null; the others change it. ----

const handlers = {
  "notes::Note": {
    read(resource) {
      if (!fs.existsSync(resource.path)) return null;
      return { text: fs.readFileSync(resource.path, "utf8") };
    },
    create: (resource) => fs.writeFileSync(resource.path, resource.text),
    update: (resource) => fs.writeFileSync(resource.path, resource.text),
    delete: (resource) => fs.unlinkSync(resource.path),
    facts: (resource) => [["length", String(resource.text.length), true]],
  },
};

// ---- The wire: one JSON object per line, over the inherited socket. ----

const wire = new net.Socket({ fd: Number(process.env.ORRERY_HOST_FD), readable: true, writable: true });
const send = (message) => wire.write(JSON.stringify(message) + "\n");

let rest = "";
wire.setEncoding("utf8");
wire.on("data", (chunk) => {
  const lines = (rest + chunk).split("\n");
  rest = lines.pop();
  for (const line of lines) receive(JSON.parse(line));
});
// At the end of the stream, the host exits.
wire.on("close", () => process.exit(0));

// ---- The conversation. ----

function receive(message) {
  switch (message.k) {
    case "init":
      return send({ k: "loaded", handlers: Object.keys(handlers), problems: [] });
    case "op":
      return operate(message);
    case "ping":
      return send({ k: "pong", n: message.n });
    case "shutdown":
      return wire.end(() => process.exit(0));
    case "cancel": // Operations here are over before a cancellation could be read.
    case "retire": // Nothing is kept open for an agent.
      return;
    default:
      console.error(`unknown message: ${message.k}`);
      process.exit(76);
  }
}

function operate({ c, op, resource }) {
  const lines = [];
  const log = (level, text, values = {}) =>
    lines.push([lines.length + 1, Date.now() / 1000, level, text, values]);
  const report = { k: "report", c, state: "deployed", change: "nochange", changes: {}, facts: [] };
  try {
    const handler = handlers[resource.id.slice(0, resource.id.indexOf("["))];
    if (op === "facts") report.facts = handler.facts(resource);
    else execute(handler, resource, op === "dryrun", report, log);
  } catch (error) {
    log("error", `${error.name}: ${error.message}`, { traceback: error.stack });
    report.state = "failed";
  }
  if (lines.length > 0) send({ k: "log", c, lines });
  send({ ...report, lines: lines.length });
}

// Reads, compares, and only then changes something.
function execute(handler, resource, dry, report, log) {
  const current = handler.read(resource);
  const purged = resource.purged === true;
  if (purged !== (current === null)) {
    report.changes.purged = { current: current === null, desired: purged };
  } else if (!purged) {
    for (const [name, value] of Object.entries(current)) {
      if (value !== resource[name]) report.changes[name] = { current: value, desired: resource[name] };
    }
  }
  if (dry) {
    report.state = "dry";
  } else if (Object.keys(report.changes).length > 0) {
    const [act, change] = purged ? ["delete", "purged"] : current === null ? ["create", "created"] : ["update", "updated"];
    log("debug", `Calling ${act}`);
    handler[act](resource);
    report.change = change;
  }
}

send({ k: "hello", protocol: 1, language: "javascript", version: process.version, pid: process.pid });
