// A client of `hodo mcp` with the protocol's own library: plays the calls of standard input, an array of
// { name, arguments }, and prints the server's tools and the answers.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");

const [modules, program, ...words] = process.argv.slice(2);
const load = createRequire(`${modules}/`);
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");

async function main() {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StdioClientTransport({ command: program, args: words, stderr: "inherit" }));
  const { tools } = await client.listTools();
  const answers = [];
  for (const call of JSON.parse(readFileSync(0, "utf8"))) {
    const { content, isError } = await client.callTool(call);
    answers.push({ text: content[0].text, failed: isError });
  }
  console.log(JSON.stringify({ tools, answers }));
  await client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
