"""Makes texts and writes down what Python tiktoken counts for them.

usage: exactness.py VOCABULARIES SOURCES SEED TEXTS > RECORDS

VOCABULARIES is the folder of tiktoken's files, SOURCES one with files of code to cut texts from.
A record is the length of the text in bytes (32 bits, big endian), the text, the name of what made
it (likewise), and its count by each encoding (32 bits).
"""

import random
import struct
import sys
import unicodedata
from pathlib import Path

from vocabularies import ENCODINGS, encoding

CHARACTERS = {}
for code in range(sys.maxunicode + 1):
    if not 0xD800 <= code <= 0xDFFF:
        CHARACTERS.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
CATEGORIES = sorted(CHARACTERS)
# White space of Python's and of the expressions', which differ in the separators of ASCII.
SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace() or code in (0x200B, 0x180E)]
ENDINGS = ["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "lL", "ſ", "x", "é", "st", ""]
EMOJI = [chr(code) for code in [*range(0x1F300, 0x1F650), *range(0x2600, 0x27C0)]]
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
SPECIAL = ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>", "<|im_start|>", "<|start|>"]


class Texts:
    """One method for each kind of text."""

    def __init__(self, seed, sources):
        self.random = random.Random(seed)
        paths = (path for kind in ("*.rs", "*.ex", "*.md") for path in Path(sources).rglob(kind))
        paths = sorted(path for path in paths if "_build" not in path.parts)
        self.sources = [path.read_text("utf-8") for path in paths]

    def many(self, make, most=60):
        # Mostly short, now and then long.
        count = self.random.choice([self.random.randint(1, 8), self.random.randint(1, most)])
        if self.random.random() < 0.01:
            count *= 50
        return "".join(make() for _ in range(count))

    def of(self, category):
        return self.random.choice(CHARACTERS[category])

    def letters(self, category=None):
        category = category or self.random.choice(["Ll", "Ll", "Lu", "Lt", "Lm", "Lo"])
        ascii_only = category in ("Ll", "Lu") and self.random.random() < 0.5
        made = "".join(self.of(category) for _ in range(self.random.randint(1, 6)))
        if not ascii_only:
            return made
        plain = "".join(self.random.choice("etaoinshrdlu") for _ in made)
        return plain if category == "Ll" else plain.upper()

    def categories(self):
        return self.many(lambda: self.of(self.random.choice(CATEGORIES)))

    def runs(self):
        def run():
            category = self.random.choice(CATEGORIES)
            return "".join(self.of(category) for _ in range(self.random.randint(1, 5)))

        return self.many(run, 25)

    def white_space(self):
        choices = SPACES + [" "] * 20 + ["\n"] * 10 + ["\r\n", "\t", "\r"] * 3
        return self.many(
            lambda: self.random.choice(choices) if self.random.random() < 0.8 else self.letters()
        )

    def digits(self):
        def number():
            category = self.random.choice(["Nd", "Nd", "No", "Nl"])
            plain = self.random.random() < 0.6
            run = range(self.random.randint(1, 9))
            made = "".join(self.random.choice("0123456789") if plain else self.of(category) for _ in run)
            return made + self.random.choice(["", "", ".", ",", " ", "-", "e", ":", "\n"])

        return self.many(number, 20)

    def apostrophes(self):
        def word():
            apostrophe = self.random.choice(["'", "'", "'", "’", "''", " '", "' "])
            return self.letters() + apostrophe + self.random.choice(ENDINGS) + self.random.choice(["", " "])

        return self.many(word, 20)

    def case(self):
        return self.many(lambda: self.letters() + self.random.choice(["", "", "", "_", " ", "-", "."]), 20)

    def marks(self):
        def marked():
            marks = "".join(self.of(self.random.choice(["Mn", "Mc", "Me"])) for _ in range(self.random.randint(0, 3)))
            return self.random.choice([self.letters(), self.of("Lo"), " ", "\n", "1", "!"]) + marks

        return self.many(marked, 25)

    def punctuation(self):
        def symbols():
            plain = self.random.random() < 0.7
            run = range(self.random.randint(1, 4))
            made = "".join(
                self.random.choice("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~")
                if plain
                else self.of(self.random.choice(["Po", "Ps", "Pe", "Pd", "Sm", "Sc", "Sk", "So"]))
                for _ in run
            )
            return made + self.random.choice(["", "", " ", "\n", "/", "\r\n", "a", "  "])

        return self.many(symbols, 25)

    def code(self):
        source = self.random.choice(self.sources)
        start = self.random.randrange(max(1, len(source)))
        return source[start : start + self.random.choice([20, 200, 2000])]

    def mutated_code(self):
        made = list(self.code())
        for _ in range(self.random.randint(1, 10)):
            made.insert(self.random.randint(0, len(made)), self.of(self.random.choice(CATEGORIES)))
        return "".join(made)

    def east_asian(self):
        blocks = [(0x4E00, 0x9FFF)] * 3 + [(0x3041, 0x3096), (0x30A1, 0x30FA), (0xAC00, 0xD7A3), (0x3000, 0x303F)]

        def one():
            return chr(self.random.randint(*self.random.choice(blocks)))

        return self.many(lambda: one() + self.random.choice(["", "", "", "", "，", "。", " ", "\n", "12"]))

    def emoji(self):
        def sequence():
            parts = [self.random.choice(EMOJI) for _ in range(self.random.randint(1, 4))]
            joined = self.random.choice(["", "\u200d", "\ufe0f\u200d"]).join(parts)
            return joined + self.random.choice(["", "\ufe0f", "\u20e3", "🏽", " ", "🇧🇷", "1\ufe0f\u20e3"])

        return self.many(sequence, 20)

    def base64(self):
        return self.many(lambda: self.random.choice(BASE64), 400) + self.random.choice(["", "=", "==", "\n"])

    def repeated(self):
        unit = self.random.choice([self.of(self.random.choice(CATEGORIES)), self.letters(), " ", "\n", "^", "ab"])
        return unit * self.random.choice([2, 7, 64, 129, 1000]) + self.random.choice(["", "a", " ", "\n"])

    def special(self):
        return self.many(lambda: self.random.choice([self.letters(), " ", "\n", *SPECIAL]), 12)


def record(data):
    return struct.pack(">I", len(data)) + data


def main():
    vocabularies, sources, seed, count = sys.argv[1:]
    texts = Texts(int(seed), sources)
    kinds = [name for name in vars(Texts) if name not in ("__init__", "many", "of", "letters") and name[0] != "_"]
    encodings = [encoding(vocabularies, name) for name in ENCODINGS]
    for index in range(int(count)):
        kind = kinds[index % len(kinds)]
        text = getattr(texts, kind)()
        out = record(text.encode("utf-8")) + record(kind.encode("ascii"))
        for each in encodings:
            out += struct.pack(">I", len(each.encode_ordinary(text)))
        sys.stdout.buffer.write(out)


main()
