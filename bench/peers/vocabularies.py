"""Python tiktoken's encodings, from the vocabularies inside this project's library.

As a program: reads a vocabulary's tokens from standard input, one in hexadecimal a line, and writes
tiktoken's own file. tiktoken compares its SHA-256 with the one it knows before it uses it.
"""

import base64
import os
import sys
from pathlib import Path

# Its files are handed over below; without this it would keep copies of them elsewhere.
os.environ["TIKTOKEN_CACHE_DIR"] = ""

import tiktoken
import tiktoken_ext.openai_public as public

ENCODINGS = ["cl100k_base", "o200k_base"]


def encoding(folder, name):
    """The encoding, of FOLDER/NAME.tiktoken instead of the address that tiktoken asks."""
    load = tiktoken.load.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda _address, expected_hash: load(
        str(Path(folder, f"{name}.tiktoken")), expected_hash
    )
    return tiktoken.Encoding(**getattr(public, name)())


if __name__ == "__main__":
    for rank, line in enumerate(sys.stdin):
        token = base64.b64encode(bytes.fromhex(line.strip())).decode("ascii")
        print(f"{token} {rank}")
