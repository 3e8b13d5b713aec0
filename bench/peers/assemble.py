"""Trims messages with langchain-core's trim_messages and times itself.

usage: assemble.py VOCABULARIES UNITS

UNITS is a JSON list of texts. For each of `bytes`, `exact` and `warm` that it reads it prints
nanoseconds and how many messages were kept of 8,000 tokens.
"""

import json
import sys
import time

from langchain_core.messages import BaseMessage, HumanMessage, trim_messages
from vocabularies import encoding

# A message is joined to the next by an empty line.
SEPARATOR = "\n\n"


def main(vocabularies, units):
    tiktoken = encoding(vocabularies, "o200k_base")
    remembered = {}

    def in_bytes(message: BaseMessage) -> int:
        return (len((message.content + SEPARATOR).encode("utf-8")) + 3) // 4

    def exact(message: BaseMessage) -> int:
        return len(tiktoken.encode_ordinary(message.content + SEPARATOR))

    def warm(message: BaseMessage) -> int:
        if message.content not in remembered:
            remembered[message.content] = exact(message)
        return remembered[message.content]

    counters = {"bytes": in_bytes, "exact": exact, "warm": warm}
    with open(units, encoding="utf-8") as file:
        messages = [HumanMessage(text) for text in json.load(file)]
    print("ready 0 0", flush=True)
    for line in sys.stdin:
        counter = counters[line.strip()]
        start = time.perf_counter_ns()
        kept = trim_messages(messages, max_tokens=8_000, strategy="last", token_counter=counter)
        print(time.perf_counter_ns() - start, len(kept), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
