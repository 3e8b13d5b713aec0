"""Makes the files beside it: three small tokenizers, trained on this project's own text, and what
the Python package `tokenizers` counts with them for the texts of ../tokens.json.

usage: make.py, with `tokenizers` 0.23 installed, in the project's root
"""

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

FOLDER = Path(__file__).parent
TEXT = ["README.md", "ARCHITECTURE.md"]
SPLIT = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>"]


def bpe():
    """Bytes, as GPT-like models have them, with all that must not limit or change a count."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(SPLIT, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
        ),
    )
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64, pad_token="<|endoftext|>")
    tokenizer.model.dropout = 0.5
    return tokenizer


def word_piece():
    """Words, as BERT has them."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train(
        TEXT, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def unigram():
    """Pieces with scores, as T5 and its kin have them."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train(
        TEXT,
        trainers.UnigramTrainer(
            vocab_size=500, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        ),
    )
    return tokenizer


def plain(tokenizer):
    """Nothing but the text is counted."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None
    return tokenizer


def count(tokenizer, text):
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def main():
    texts = [case["text"] for case in json.loads((FOLDER.parent / "tokens.json").read_text("utf-8"))]
    counts = {}
    for make in [bpe, word_piece, unigram]:
        file = json.loads(make().to_str())
        path = FOLDER / f"{make.__name__}.json"
        path.write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n", "utf-8")
        read = plain(Tokenizer.from_file(str(path)))
        counts[make.__name__] = [count(read, text) for text in texts]
    (FOLDER / "counts.json").write_text(json.dumps(counts) + "\n", "utf-8")


if __name__ == "__main__":
    main()
