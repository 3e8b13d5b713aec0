// Trims messages with npm's @langchain/core or promptrix and times itself, as assemble.py does.
// usage: node assemble.mjs FOLDER_OF_PACKAGES langchain|promptrix UNITS

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, peer, units] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { encode } = require("gpt-tokenizer/encoding/o200k_base");
const texts = JSON.parse(readFileSync(units, "utf8"));
const budget = 8_000;
// A message is joined to the next by an empty line.
const separator = "\n\n";
const ordinary = { disallowedSpecial: new Set() };

const remembered = new Map();
const counters = {
  bytes: (text) => Math.ceil(Buffer.byteLength(text + separator) / 4),
  exact: (text) => encode(text + separator, ordinary).length,
  warm: (text) => {
    if (!remembered.has(text)) remembered.set(text, counters.exact(text));
    return remembered.get(text);
  },
};

const peers = {
  langchain: () => {
    const { HumanMessage, trimMessages } = require("@langchain/core/messages");
    const messages = texts.map((text) => new HumanMessage(text));
    return (count) =>
      trimMessages(messages, {
        maxTokens: budget,
        strategy: "last",
        tokenCounter: (some) => some.reduce((sum, message) => sum + count(message.content), 0),
      });
  },
  promptrix: () => {
    const { ConversationHistory, VolatileMemory } = require("promptrix");
    const memory = new VolatileMemory({ history: texts.map((content) => ({ role: "user", content })) });
    const history = new ConversationHistory("history", budget);
    return async (count) => {
      // Only the length of what it encodes is looked at.
      const tokenizer = { encode: (text) => ({ length: count(text) }) };
      return (await history.renderAsMessages(memory, undefined, tokenizer, budget)).output;
    };
  },
};

const trim = peers[peer]();
console.log("ready 0 0");
for await (const line of createInterface({ input: process.stdin })) {
  const start = process.hrtime.bigint();
  const kept = await trim(counters[line]);
  console.log(`${process.hrtime.bigint() - start} ${kept.length}`);
}
