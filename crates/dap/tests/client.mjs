// The debug adapter protocol's own test client steps through a recording of slowpath.c, forwards and backwards.
//
//     node client.mjs PORT SOURCE CALLS MODULES
//
// SOURCE: the path of slowpath.c. CALLS: how often `rehash` was called. MODULES: the folder of node_modules.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";

const [port, source, calls, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "x.js"));
const { DebugClient } = require("@vscode/debugadapter-testsupport");

/** The number of the line that contains a text. */
function lineOf(text) {
  const lines = fs.readFileSync(source, "utf8").split("\n");
  const found = lines.findIndex((line) => line.includes(text));
  assert(found >= 0, text);
  return found + 1;
}

const client = new DebugClient("", "", "hodo");
await client.start(Number(port));

const { body: can } = await client.initializeRequest();
for (const needed of ["supportsStepBack", "supportsFunctionBreakpoints", "supportsInstructionBreakpoints", "supportsDisassembleRequest"]) {
  assert.equal(can[needed], true, needed);
}

/** Sends a request that moves, and waits until it has. */
async function moves(request) {
  const [event] = await Promise.all([client.waitForEvent("stopped"), request()]);
  return event.body;
}

const stack = async () => (await client.stackTraceRequest({ threadId: thread })).body.stackFrames;
const top = async () => (await stack())[0];
const names = (frames) => frames.map((frame) => frame.name);
const number = async () =>
  (await client.variablesRequest({ variablesReference: 1 })).body.variables.find((one) => one.name === "instruction").value;

await client.launchRequest({});
const functions = await client.setFunctionBreakpointsRequest({ breakpoints: [{ name: "rehash" }, { name: "no_such_function" }] });
assert.deepEqual(functions.body.breakpoints.map((one) => one.verified), [true, false]);
await client.setExceptionBreakpointsRequest({ filters: ["gap"] });
const entry = await moves(() => client.configurationDoneRequest());
assert.equal(entry.reason, "entry");
const thread = entry.threadId;
const { threads } = (await client.threadsRequest()).body;
assert(threads.some((one) => one.id === thread && one.name.startsWith("slowpath")), JSON.stringify(threads));

// ── Each call of a function, forwards and backwards

const forwards = [];
for (;;) {
  const stop = await moves(() => client.continueRequest({ threadId: thread }));
  if (stop.reason !== "function breakpoint") break;
  assert.deepEqual(stop.hitBreakpointIds, [functions.body.breakpoints[0].id]);
  const frames = await stack();
  assert.deepEqual(names(frames).slice(0, 4), ["rehash", "insert", "handle_request", "main"]);
  assert.equal(frames[0].line, lineOf("static void rehash(") + 1);
  assert.equal(frames[1].line, lineOf("rehash(table);"));
  assert.equal(path.basename(frames[0].source.path), "slowpath.c");
  forwards.push(await number());
}
assert.equal(forwards.length, Number(calls));
const backwards = [];
for (;;) {
  const stop = await moves(() => client.reverseContinueRequest({ threadId: thread }));
  if (stop.reason !== "function breakpoint") break;
  backwards.unshift(await number());
}
assert.deepEqual(backwards, forwards);

// ── A line; steps from it and back

await client.setFunctionBreakpointsRequest({ breakpoints: [] });
const line = lineOf("insert(table, word);");
const set = await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [{ line }, { line: 1_000_000 }] });
assert.deepEqual(set.body.breakpoints.map((one) => one.verified), [true, false]);
assert.equal(set.body.breakpoints[0].line, line);
const stop = await moves(() => client.continueRequest({ threadId: thread }));
assert.equal(stop.reason, "breakpoint");
const begin = await top();
assert.deepEqual([begin.name, begin.line], ["handle_request", line]);
await moves(() => client.nextRequest({ threadId: thread }));
const after = await top();
assert.deepEqual([after.name, after.line], ["handle_request", line + 1]);
await moves(() => client.stepBackRequest({ threadId: thread }));
assert.equal((await top()).instructionPointerReference, begin.instructionPointerReference);
await moves(() => client.stepInRequest({ threadId: thread }));
assert.equal((await top()).name, "insert");
assert.equal((await stack())[1].name, "handle_request");
await moves(() => client.stepOutRequest({ threadId: thread }));
assert.equal((await top()).name, "handle_request");

// ── Instructions

const trail = [];
for (let step = 0; step < 40; step++) {
  trail.push((await top()).instructionPointerReference);
  await moves(() => client.nextRequest({ threadId: thread, granularity: "instruction" }));
}
for (const expected of trail.reverse()) {
  await moves(() => client.stepBackRequest({ threadId: thread, granularity: "instruction" }));
  assert.equal((await top()).instructionPointerReference, expected);
}
const here = (await top()).instructionPointerReference;
const code = await client.customRequest("disassemble", { memoryReference: here, instructionOffset: -3, instructionCount: 8 });
assert.equal(code.body.instructions.length, 8);
assert.equal(code.body.instructions[3].address, here);
assert(code.body.instructions.every((one) => /^0x[0-9a-f]+$/.test(one.address) && one.instruction.length > 0));
await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [] });
const atCode = await client.customRequest("setInstructionBreakpoints", { breakpoints: [{ instructionReference: here }] });
assert.equal(atCode.body.breakpoints[0].verified, true);
const again = await moves(() => client.continueRequest({ threadId: thread }));
assert.equal(again.reason, "instruction breakpoint");
assert.equal((await top()).instructionPointerReference, here);

// ── Sources, jumps, and what a recording does not have

const text = await client.sourceRequest({ source: { path: (await top()).source.path }, sourceReference: 0 });
assert(text.body.content.includes("handle_request"));
await assert.rejects(client.sourceRequest({ source: { path: "/etc/passwd" }, sourceReference: 0 }));
const { targets } = (await client.customRequest("gotoTargets", { source: { path: source }, line: lineOf("free(table->slots);") })).body;
await moves(() => client.customRequest("goto", { threadId: thread, targetId: targets[0].id }));
assert.equal((await top()).name, "rehash");
const all = Number((await number()).split(" of ")[1]);
await moves(() => client.evaluateRequest({ expression: `at #${Math.floor(all / 2)}` }));
assert.equal(await number(), `#${Math.floor(all / 2)} of ${all}`);
assert(names(await stack()).includes("main"));
await assert.rejects(client.evaluateRequest({ expression: "table->size" }), /no values/);
await assert.rejects(client.customRequest("readMemory", { memoryReference: here, count: 8 }), /no memory/);
const { scopes } = (await client.scopesRequest({ frameId: (await top()).id })).body;
assert.equal(scopes.length, 1);
await client.disconnectRequest({});
client.stopAdapter();
