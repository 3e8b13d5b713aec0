"""Counts tokens with Python tiktoken and times itself, as native/harness_bench's tokens does.

usage: tokens.py VOCABULARIES ENCODING
"""

import os
import sys
import time


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    from vocabularies import encoding

    before, start = resident(), time.perf_counter_ns()
    peer = encoding(sys.argv[1], sys.argv[2])
    peer.encode_ordinary("ready")
    milliseconds = (time.perf_counter_ns() - start) // 1_000_000
    print(f"ready {milliseconds} {resident() - before}", flush=True)
    for line in sys.stdin:
        with open(line.rstrip("\n"), encoding="utf-8", newline="") as file:
            text = file.read()
        start = time.perf_counter_ns()
        tokens = len(peer.encode_ordinary(text))
        print(time.perf_counter_ns() - start, tokens, flush=True)
