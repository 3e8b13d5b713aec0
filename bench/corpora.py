"""Makes texts to count from what the machine has.

usage: corpora.py FOLDER

Written are prose, code, cjk (Chinese, Japanese, Korean), emoji and base64 of 2 MB each, the mix of
all five (10 MB), and the worst cases, of 1 MB and of 4 MB. Sources: the documentation and the
translated messages under /usr/share, Python's standard library, and a seeded generator. Of what a
machine has little, a text is shorter; none is repeated.
"""

import gettext
import random
import sys
import sysconfig
import unicodedata
from pathlib import Path

SIZE = 2_000_000
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PEOPLE = "👩\u200d👩\u200d👧\u200d👦🇧🇷👍🏽"


def files(folders, pattern):
    for folder in folders:
        yield from sorted(Path(folder).rglob(pattern))


def texts(paths):
    for path in paths:
        try:
            yield path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            pass


def translations(language):
    for path in files([f"/usr/share/locale/{language}/LC_MESSAGES"], "*.mo"):
        try:
            with open(path, "rb") as file:
                catalog = gettext.GNUTranslations(file)
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        for text in catalog._catalog.values():
            if isinstance(text, str) and any(unicodedata.category(c) == "Lo" for c in text):
                yield text + "\n"


def up_to(size, parts):
    """The parts' beginning that has at most so many bytes, cut between characters."""
    made, length = [], 0
    for part in parts:
        encoded = part.encode("utf-8")
        made.append(encoded[: size - length])
        length += len(made[-1])
        if length >= size:
            break
    return b"".join(made).decode("utf-8", "ignore")


def lines(draw, length):
    while True:
        yield "".join(draw() for _ in range(length)) + "\n"


def main(folder):
    generator = random.Random(0)
    emoji = [c for c in map(chr, range(0x1F300, 0x1FAFF)) if unicodedata.category(c) == "So"]
    latin = [c for c in map(chr, range(0xA1, 0x100)) if c.isalpha()]
    folders = ("/usr/share/doc", "/usr/share/perl", "/usr/share/vim", "/usr/share/common-licenses")
    prose = [path for kind in ("*.txt", "*.pod", "README*") for path in files(folders, kind)]
    pick = generator.choice
    made = {
        "prose": up_to(SIZE, texts(prose)),
        "code": up_to(SIZE, texts(files([sysconfig.get_path("stdlib")], "*.py"))),
        "cjk": "".join(up_to(SIZE // 3, translations(name)) for name in ("zh_CN", "ja", "ko")),
        "emoji": up_to(SIZE, lines(lambda: pick(emoji) + pick([" ", "", "", PEOPLE]), 20)),
        "base64": up_to(SIZE, lines(lambda: pick(BASE64), 76)),
    }
    made["mix"] = "".join(made.values())
    for megabytes in (1, 4):
        size = megabytes * 1_000_000
        worst = {
            "one-letter": up_to(size, ["a" * size]),
            "spaces": up_to(size, [" " * size]),
            "newlines": up_to(size, ["\n" * size]),
            "carets": up_to(size, ["^" * size]),
            "random-letters": "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=size)),
            "random-latin-1": "".join(generator.choices(latin, k=size // 2)),
            "base64-line": "".join(generator.choices(BASE64, k=size)),
            "emoji-sequences": up_to(size, [PEOPLE * (size // len(PEOPLE.encode("utf-8")))]),
        }
        made.update({f"{name}.{megabytes}": text for name, text in worst.items()})
    for name, text in made.items():
        Path(folder, name).write_bytes(text.encode("utf-8"))
        if len(text.encode("utf-8")) < SIZE and name in ("prose", "code", "cjk"):
            print(f"{name}: {len(text.encode('utf-8'))} bytes were found", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
