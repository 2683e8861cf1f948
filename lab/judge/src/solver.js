// A client of `hodo mcp` with the protocol's own library. It records a program, and then follows only what the answers say: the
// second call is the one that the server's instructions begin with, and each further call stands in an answer, as
// `Evidence: TOOL JSON` or `Next: TOOL JSON`. It knows nothing about the program.
//
//   node solver.js MODULES HODO FOLDER BYTES RECORDING COMMAND…
//
// Prints the finding that it believes, the evidence, and each call with its answer, as JSON.
const { createRequire } = require("node:module");

const [modules, hodo, folder, bytes, recording, ...command] = process.argv.slice(2);
const load = createRequire(`${modules}/`);
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");

const MOST_CALLS = 6;
// The longest time of a call, in milliseconds.
const LONGEST = 600_000;

async function main() {
  const client = new Client({ name: "solver", version: "1" });
  const words = ["mcp", "--allow", folder, "--allow-record", "--answer-bytes", bytes];
  await client.connect(new StdioClientTransport({ command: hodo, args: words, stderr: "inherit" }));
  const { tools } = await client.listTools();
  const calls = [];
  // The answer's text; empty if the call fails, is one too many, or is of an unknown tool.
  const ask = async (call) => {
    if (!call || calls.length === MOST_CALLS || !tools.some((tool) => tool.name === call.name)) return "";
    const { content, isError } = await client.callTool(call, undefined, { timeout: LONGEST });
    const text = content.map((part) => part.text).join("\n");
    calls.push({ ...call, text, failed: isError === true });
    return isError ? "" : text;
  };

  const begin = /Begin with (\w+)/.exec(client.getInstructions() ?? "")?.[1];
  const recorded = await ask({ name: "record", arguments: { command, output: recording } });
  let answer = await ask(named(recorded, "Next").find((call) => call.name === begin));
  let text = answer;
  // The findings are sorted: the first one explains most. What is cut is continued.
  while (!/^2\. \[/m.test(text) && calls.length < MOST_CALLS - 1) {
    const more = named(answer, "Next").find((call) => call.name === "continue");
    if (!more) break;
    answer = await ask(more);
    text += `\n${answer}`;
  }
  const [, rule, sentence] = /^1\. \[([\w-]+)\] (.*)/m.exec(text) ?? [];
  const evidence = await ask(named(text, "Evidence")[0]);
  console.log(JSON.stringify({ conclusion: sentence, rule, evidence, calls }));
  await client.close();
}

// The calls that an answer names, in its order.
function named(text, mark) {
  const lines = text.matchAll(new RegExp(`^ *${mark}: (\\w+) (\\{.*\\})$`, "gm"));
  return [...lines].map(([, name, json]) => ({ name, arguments: JSON.parse(json) }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
