// The protocol's own client walks every output of a server. All answers are checked against API.yaml, and their values
// against the tables of `hodo report`.
//
//     node client.mjs URL TABLES.json MODULES
//
// TABLES.json: the reports by name, as `hodo report --format json` writes them, each with its `lanes` of `hodo help --json`.
// MODULES: the folder of node_modules.

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { createRequire } from "node:module";

const [url, tablesFile, modules] = process.argv.slice(2);
const require = createRequire(path.join(modules, "x.js"));
const { HttpTspClient } = require("tsp-typescript-client/lib/protocol/http-tsp-client");
const { RestClient } = require("tsp-typescript-client/lib/protocol/rest-client");
const { QueryHelper } = require("tsp-typescript-client/lib/models/query/query-helper");
const { Query } = require("tsp-typescript-client/lib/models/query/query");
const Ajv = require("ajv");
const JSONBig = require("json-bigint")({ useNativeBigInt: true });

// ── The schema

const api = require("yaml").parse(fs.readFileSync(new URL("API.yaml", import.meta.url), "utf8"));

// API.yaml says `type: object` beside a choice of strings and numbers, which nothing satisfies.
function possible(schema) {
  if (Array.isArray(schema)) return schema.map(possible);
  if (schema === null || typeof schema !== "object") return schema;
  const copy = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, possible(value)]));
  if (copy.oneOf) {
    delete copy.type;
    // A whole number is an integer and a number: one of them is enough.
    copy.anyOf = copy.oneOf;
    delete copy.oneOf;
  }
  return copy;
}

const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema(possible(api), "api");
const routes = Object.keys(api.paths).map((template) => {
  const pattern = template.replace(/\{[^}]*\}/g, "[^/]+");
  return [template, new RegExp(`^${pattern}$`)];
});
let checked = 0;

function check(method, address, status, text) {
  const at = new URL(address).pathname.replace("/tsp/api", "");
  const fits = ([template, pattern]) => pattern.test(at) && api.paths[template][method];
  const fitting = routes.filter(fits).map(([template]) => template);
  // `/outputs/markerSets` is no output.
  const template = fitting.find((one) => one.endsWith("markerSets")) ?? fitting[0];
  assert(template, `${method} ${at} is no address of the protocol`);
  const response = api.paths[template][method]?.responses[status];
  assert(response, `${method} ${template} does not answer ${status}`);
  const pointer = [template, method, "responses", String(status), "content", "application/json", "schema"]
    .map((part) => encodeURIComponent(part.replace(/~/g, "~0").replace(/\//g, "~1")));
  const validate = ajv.getSchema(`api#/paths/${pointer.join("/")}`);
  assert(validate(JSON.parse(text)), `${method} ${at}: ${JSON.stringify(validate.errors?.slice(0, 3))}: ${text.slice(0, 300)}`);
  checked += 1;
}

const plain = RestClient.httpRequest.bind(RestClient);
RestClient.httpRequest = async (request) => {
  const response = await plain(request);
  check(request.method, request.url, response.status, response.text);
  return response;
};

// ── The tables

const word = (cell) => (cell === null ? "?" : String(cell));
// The path of the lane that these columns of a row identify.
const lanePath = ({ lane, path }, row, columns) =>
  path.map((part) => part.replace(/\{(\w+)\}/g, (_, name) => word(row[columns[lane.indexOf(name)]])));

const tables = {};
const reports = JSONBig.parse(fs.readFileSync(tablesFile, "utf8"));
for (const [name, table] of Object.entries(reports)) {
  tables[name] = table.rows.map((cells) => {
    const row = Object.fromEntries(table.columns.map((column, place) => [column.name, cells[place]]));
    const { lanes } = table;
    const other = lanes.is_link ? lanePath(lanes, row, lanes.value) : undefined;
    const [lane, value] = [lanePath(lanes, row, lanes.lane).join("/"), other?.join("/") ?? row[lanes.value[0]]];
    const start = BigInt(row.begin_ns ?? row.at_ns);
    return { row, lane, value: word(value), other: other?.at(-1), start, end: start + BigInt(row.duration_ns ?? 0) };
  });
}

const sorted = (list) => list.map((one) => JSON.stringify(one, (_, value) => (typeof value === "bigint" ? `${value}` : value))).sort();
const same = (found, expected, what) => assert.deepEqual(sorted(found), sorted(expected), what);

// ── The walk

const client = new HttpTspClient(url);
const model = (answer) => {
  const whole = answer.getModel();
  assert.equal(whole.status, "COMPLETED", whole.statusMessage);
  return whole.model;
};

assert.equal((await client.checkHealth()).getModel().status, "UP");
assert.equal((await client.fetchIdentifier()).getModel().tspVersion, "0.6.0");
const traces = (await client.fetchTraces()).getModel();
const [trace] = traces;
const opened = (await client.openTrace(new Query({ name: "trace", uri: trace.path }))).getModel();
assert.equal(opened.UUID, trace.UUID);
assert.equal((await client.fetchTrace(trace.UUID)).getModel().path, trace.path);
assert.equal((await client.deleteTrace(trace.UUID)).getStatusCode(), 409);
assert.equal((await client.openTrace(new Query({ uri: "/etc/passwd" }))).getStatusCode(), 404);
const created = await client.createExperiment(new Query({ name: "x", traces: traces.map((one) => one.UUID) }));
const { UUID: id, start, end } = created.getModel();
assert.equal((await client.fetchExperiments()).getModel()[0].UUID, id);
assert.equal((await client.fetchExperiment(id)).getModel().UUID, id);
assert.deepEqual(model(await client.fetchMarkerSets(id)), []);
const outputs = (await client.experimentOutputs(id)).getModel();
const kinds = new Set(outputs.map((output) => output.type));
assert.deepEqual([...kinds].sort(), ["DATA_TREE", "TABLE", "TIME_GRAPH", "TREE_TIME_XY"]);

// Three zooms: all, an eighth and a 128th of it.
const width = end - start;
const zooms = [8n, 128n].map((part) => [start + width / 2n, start + width / 2n + width / part]);
zooms.unshift([start, end]);

const paths = (entries) => {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const of = (entry) => {
    const above = byId.get(entry.parentId);
    return above ? `${of(above)}/${entry.labels[0]}` : entry.labels[0];
  };
  return new Map(entries.map((entry) => [entry.id, of(entry)]));
};

async function timeGraph(output, name) {
  const { entries } = model(await client.fetchTimeGraphTree(id, output.id, QueryHelper.timeRangeQuery(start, end)));
  const path = paths(entries);
  const items = entries.map((entry) => entry.id);
  for (const [from, to] of zooms) {
    const within = tables[name].filter((one) => one.start <= to && (one.end > from || one.start >= from));
    const query = QueryHelper.selectionTimeRangeQuery(from, to, 16384, items);
    const rows = model(await client.fetchTimeGraphStates(id, output.id, query)).rows;
    const states = rows.flatMap((row) => row.states.map((state) => [path.get(row.entryId), state]));
    const inView = ([, state]) => state.start <= to && (state.end > from || state.start >= from);
    const found = states.filter(inView).map(([lane, state]) => [lane, state.start, state.end, state.label]);
    same(found, within.map((one) => [one.lane, one.start, one.end, one.value]), `${name} ${from}-${to}`);
    await coarse(output, name, [from, to], items, path);
    await arrows(output, [from, to], path);
  }
  await tooltip(output, name, entries, path);
  const styles = model(await client.fetchStyles(id, output.id, new Query({}))).styles;
  assert(styles.colour0 && styles.loss);
}

// Where states are cells of time, the label of each is the value that fills most of it.
async function coarse(output, name, [from, to], items, path) {
  const query = QueryHelper.selectionTimeRangeQuery(from, to, 4, items);
  for (const row of model(await client.fetchTimeGraphStates(id, output.id, query)).rows) {
    const own = tables[name].filter((one) => one.lane === path.get(row.entryId));
    const exact = new Set(own.map((one) => `${one.start} ${one.end} ${one.value}`));
    for (const state of row.states.filter((one) => !exact.has(`${one.start} ${one.end} ${one.label}`))) {
      const weights = new Map();
      for (const one of own) {
        const inside = (one.end < state.end ? one.end : state.end) - (one.start > state.start ? one.start : state.start);
        if (inside > 0n) weights.set(one.value, (weights.get(one.value) ?? 0n) + inside);
      }
      const most = [...weights.values()].reduce((one, other) => (one > other ? one : other), 0n);
      assert.equal(weights.get(state.label), most, `${name} ${state.start} ${state.label}`);
    }
  }
}

async function arrows(output, [from, to], path) {
  const query = QueryHelper.timeRangeQuery(from, to, 1000);
  const found = model(await client.fetchTimeGraphArrows(id, output.id, query));
  const lanes = new Set(path.values());
  const links = Object.keys(tables).flatMap((name) => (reports[name].lanes.is_link ? tables[name] : []));
  const expected = links.filter((one) => one.start >= from && one.start <= to && lanes.has(one.lane) && lanes.has(one.value));
  same(
    found.map((arrow) => [path.get(arrow.sourceId), path.get(arrow.targetId), arrow.start, arrow.end]),
    expected.map((one) => [one.lane, one.value, one.start, one.end]),
    `arrows of ${output.id}`,
  );
  if (output.id === "timeline.states" && from === start) assert(found.length > 5, `${found.length} arrows`);
}

async function tooltip(output, name, entries, path) {
  const one = tables[name].find((one) => one.end > one.start);
  const entryId = entries.find((entry) => path.get(entry.id) === one.lane).id;
  const element = { elementType: "STATE", time: one.start, duration: one.end - one.start, entryId };
  const query = QueryHelper.selectionTimeQuery([one.start], [entryId], { requested_element: element });
  const tip = model(await client.fetchTimeGraphTooltip(id, output.id, query));
  assert.equal(tip.begin_ns, String(one.start));
  assert.equal(tip.duration_ns, String(one.end - one.start));
  for (const [column, cell] of Object.entries(tip)) assert.equal(cell, String(one.row[column] ?? ""), column);
}

async function chart(output, name) {
  const { entries } = model(await client.fetchXYTree(id, output.id, QueryHelper.timeRangeQuery(start, end)));
  const path = paths(entries);
  const items = entries.filter((entry) => entry.hasData).map((entry) => entry.id);
  for (const [from, to] of zooms) {
    const { series } = model(await client.fetchXY(id, output.id, QueryHelper.selectionTimeRangeQuery(from, to, 50, items)));
    assert.equal(series.length, items.length);
    for (const one of series) {
      const changes = tables[name].filter((change) => change.lane === path.get(one.seriesId));
      const at = (time) => Number(changes.filter((change) => change.start <= time).at(-1)?.value ?? 0);
      assert.equal(one.xValues.length, 50);
      assert.deepEqual([...one.yValues].map(Number), [...one.xValues].map(at), one.seriesName);
    }
  }
}

async function table(output, name) {
  const columns = model(await client.fetchTableColumns(id, output.id, new Query({})));
  const rows = [...tables[name]].sort((one, other) => (one.start < other.start ? -1 : one.start > other.start ? 1 : 0));
  const lines = async (query) => model(await client.fetchTableLines(id, output.id, new Query(query)));
  const all = [];
  while (true) {
    const page = await lines({ requested_table_index: all.length, requested_table_count: 37 });
    assert.equal(page.size, rows.length);
    if (page.lines.length === 0) break;
    page.lines.forEach((line, place) => assert.equal(line.index, all.length + place));
    all.push(...page.lines);
  }
  const cells = (line) => columns.map((column, place) => [column.name === "begin_ns" ? "start" : column.name, line.cells[place].content]);
  const last = reports[name].lanes.value.at(-1);
  const expected = ({ row, start, end, other }) =>
    columns.map(({ name: column }) => {
      if (column === "begin_ns") return ["start", String(start)];
      if (column === "duration_ns") return [column, String(end - start)];
      // The other end of a link is named by its row.
      return [column, other && column === last ? other : String(row[column] ?? "")];
    });
  same(all.map(cells), rows.map(expected), name);
  for (const [from] of zooms) {
    const page = await lines({ requested_times: [from], requested_table_count: 3 });
    assert.equal(page.lowIndex, rows.filter((one) => one.start < from).length);
  }
  const one = await lines({ requested_table_index: 1, requested_table_count: 1, requested_table_column_ids: [1] });
  assert.equal(one.lines[0].cells.length, 1);
}

async function statistics(output, name) {
  const { entries } = model(await client.fetchDataTree(id, output.id, new Query({})));
  const path = paths(entries);
  const sums = new Map();
  for (const one of tables[name]) {
    const [rows, time] = sums.get(one.lane) ?? [0, 0n];
    sums.set(one.lane, [rows + 1, time + one.end - one.start]);
  }
  const found = entries.filter((entry) => entry.labels[1] !== "");
  same(
    found.map((entry) => [path.get(entry.id), entry.labels[1], entry.labels[2]]),
    [...sums].map(([lane, [rows, time]]) => [lane, String(rows), String(time)]),
    `statistics of ${name}`,
  );
}

for (const output of outputs) {
  const name = output.id.split(".")[1];
  const walk = { TIME_GRAPH: timeGraph, TREE_TIME_XY: chart, TABLE: table, DATA_TREE: statistics }[output.type];
  if (name in tables) await walk(output, name);
  const categories = model(await client.fetchAnnotationsCategories(id, output.id));
  assert(Array.isArray(categories.annotationCategories));
  model(await client.fetchAnnotations(id, output.id, QueryHelper.timeRangeQuery(start, end)));
}
for (const name of Object.keys(tables)) assert(outputs.some((output) => output.id === `table.${name}`), name);

// ── What is refused

const range = QueryHelper.timeRangeQuery(start, end);
assert.equal((await client.fetchTimeGraphTree(id, "timeline.nothing", range)).getStatusCode(), 404);
assert.equal((await client.fetchTimeGraphTree(id, "table.states", range)).getStatusCode(), 405);
assert.equal((await client.fetchTimeGraphStates(id, "timeline.states", new Query({}))).getStatusCode(), 400);
assert.equal((await client.experimentOutputs("00000000-0000-0000-0000-000000000000")).getStatusCode(), 404);

const status = (headers) =>
  new Promise((resolve, reject) => {
    http.get(`${url}/health`, { headers }, (response) => resolve(response.resume().statusCode)).on("error", reject);
  });
assert.equal(await status({ host: "evil.example" }), 403);
assert.equal(await status({ origin: "http://evil.example" }), 403);
assert.equal(await status({ origin: "http://localhost:3000" }), 200);

console.log(`${outputs.length} outputs, ${checked} answers checked`);
