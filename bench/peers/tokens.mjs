// Counts tokens with npm's gpt-tokenizer and times itself, as native/harness_bench's tokens does.
// usage: node tokens.mjs FOLDER_OF_PACKAGES ENCODING

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, encoding] = process.argv.slice(2);
const before = process.memoryUsage().rss;
const start = process.hrtime.bigint();
const module = `${folder}/node_modules/gpt-tokenizer/esm/encoding/${encoding}.js`;
const { countTokens } = await import(pathToFileURL(module));
// What spells a special token is ordinary text here.
const ordinary = { disallowedSpecial: new Set() };
countTokens("ready", ordinary);
const milliseconds = (process.hrtime.bigint() - start) / 1_000_000n;
console.log(`ready ${milliseconds} ${Math.trunc((process.memoryUsage().rss - before) / 1024)}`);

for await (const path of createInterface({ input: process.stdin })) {
  const text = readFileSync(path, "utf8");
  const start = process.hrtime.bigint();
  const tokens = countTokens(text, ordinary);
  console.log(`${process.hrtime.bigint() - start} ${tokens}`);
}
