// Perfetto's trace processor, as its page runs it: requests of a file in, replies to standard output.
//
// usage: node trace_processor.js FOLDER-OF-THE-PAGE REQUESTS
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, requests] = process.argv.slice(2);
const { stderr } = process;
// What the page's worker has and Node has not, and the reverse.
delete globalThis.process;
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = { href: "http://page/engine_bundle.js" };
globalThis.XMLHttpRequest = class {
  open(_, url) {
    this.file = path.join(folder, path.basename(url));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
};
console.log = console.warn = (text) => stderr.write(`${text}\n`);
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
const replies = [];
const port = { postMessage: (reply) => replies.push(Buffer.from(reply)) };
globalThis.onmessage({ data: port });
setTimeout(() => {
  port.onmessage({ data: new Uint8Array(fs.readFileSync(requests)) });
  fs.writeSync(1, Buffer.concat(replies));
});
