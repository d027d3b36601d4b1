#!/usr/bin/env python3
"""Makes `tokenizer_patterns.json`: where regular expressions cut texts, by the wheel `tokenizers` (Oniguruma).

    pip install tokenizers==0.23.2 && python tokenizer_patterns.py

The expressions come from known models, or test one construct each, or are random. Texts have
many scripts, marks, digits, newlines. A cut is a list of the lengths of pieces in characters, a
matched one as a negative number.
"""

import json
import random
from pathlib import Path

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

KNOWN = [
    r"\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}", r"\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)", r"\A\p{Nd}{3}|\G\p{Nd}{3}",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"\d{1,3}(?=(?:\d{3})*\b)", r"(?=(\d{3})+(?!\d))", r"\s+$", r"^.", r"$", r"\Z", r"^", r"[\p{L}\p{M}&&[^\p{Han}]]+",
]
SETS = r"\w \W \d \D \s \S \h \H . \N \O \R \p{L} \P{L} \p{^L} \P{^N} \p{N} \p{Lu} \p{Ll} \p{M} \p{P} \p{S} \p{Han} \p{Alpha} \p{Punct} \p{Word} \p{^Word} \p{Alnum} [[:alpha:]] [[:^alpha:]] [[:punct:]] [[:^punct:]] [^[:punct:]] [[:word:]] [[:space:]] [[:digit:]] [[:upper:]] [[:lower:]] [[:graph:]] [[:print:]] [[:cntrl:]] [[:xdigit:]] [[:blank:]] [[:alnum:]] [[:ascii:]] [\w] [^\w] [\W] [^\s\p{L}\p{N}] [a-c&&b-z] [\p{L}&&[^a-z]] [[a-c][x-z]] []a] [^]a] [-a] [a-] [\]\[] [^\r\n] [\u0041-Z] [\101] [ß] [k-s] [^é] [ſ]".split(" ")
CHARS = r"a b A k s é ß 1 ' \. \n \t \r \x41 \x{e9} \u00e9 \101 \012 \x{4e2d} \xC3\xA9 \- # 中 \$ ſ st ss 's - ~ < \< ﬁ } ] {".split(" ")
TIMES = "* + ? *? +? ?? *+ ++ ?+ {2} {1,2} {,2} {2,} {2}+ {2}? {1,2}? {2,1} {1} {3}+ ** +* {2}{2} ??* {0}".split(" ")
ANCHORS = r"^ $ \b \B \A \z \Z".split(" ")
PIECES = ["a", "b", "A", "s", "S", "k", "K", "\u212a", "é", "e\u0301", "1", "2", "12", "٣", "²", "¼", "½", "_", "-", " ", "  ", "\t", "\n", "\r\n", "\r", "\x85", "\u2028", "\xa0", "\u3000", "中", "国", "あ", "ß", "ẞ", "ſ", "ﬁ", "ﬆ", "😀", "👩\u200d👧", "\u200d", "\u200c", "🇩🇪", ".", "$", "+", "€", "…", "'s", "]", "Ⅷ", "ⓐ", "न", "ि", "한", "İ", "ı", "Σ", "ς", "ǅ", "\0", "st", "ss", "aaa", "\u0378"]


def expression(r, depth):
    out = ""
    for _ in range(r.randint(1, 3)):
        kind = r.random()
        if kind < 0.3:
            one = r.choice(CHARS)
        elif kind < 0.65:
            one = r.choice(SETS)
        elif kind < 0.73 or depth == 0:
            out += r.choice(ANCHORS)
            continue
        else:
            inside = "|".join(expression(r, depth - 1) for _ in range(r.choice([1, 2])))
            before = r.choice(["(?:", "(?:", "(", "(?>", "(?i:", "(?m:", "(?x: ", "(?=", "(?!", "(?<=", "(?<!", "(?i)"])
            if before == "(?i)":
                out += before + inside
                continue
            one = f"{before}{inside})"
            if before in ("(?=", "(?!", "(?<=", "(?<!"):
                out += one
                continue
        out += one + (r.choice(TIMES) if r.random() < 0.35 else "")
    return out


def cut(pattern, text):
    """Lengths of pieces; of those that match below zero."""
    all_pieces = [at for _, at in Split(Regex(pattern), "isolated").pre_tokenize_str(text)]
    rest = {at for _, at in Split(Regex(pattern), "removed").pre_tokenize_str(text)}
    return [(b - a) if (a, b) in rest else a - b for a, b in all_pieces]


def main():
    r = random.Random(7)
    texts = ["".join(r.choice(PIECES) for _ in range(30)) for _ in range(5)] + ["1234567890 12345b1234567²", "it's 'LL  \n\n  x"]
    patterns = [*KNOWN, *[s + "+" for s in SETS if s != r"\R"], r"\R", *[c for c in CHARS], *[f"(?i:{c})" for c in CHARS]]
    out, seen = [], set()
    while len(out) < 260:
        pattern = patterns.pop(0) if patterns else expression(r, 2)
        if pattern in seen or len(pattern) > 40 and pattern not in KNOWN:
            continue
        seen.add(pattern)
        try:
            Regex(pattern)
        except Exception:
            out.append([pattern, None])
            continue
        cuts = [cut(pattern, text) for text in texts]
        # Most random ones match nowhere.
        if any(n < 0 for c in cuts for n in c) or pattern in KNOWN or r.random() < 0.05:
            out.append([pattern, cuts])
    lines = ",\n".join(json.dumps(x, ensure_ascii=True, separators=(",", ":")) for x in out)
    head = json.dumps(texts, ensure_ascii=True, separators=(",", ":"))
    Path(__file__).with_suffix(".json").write_text(f'{{"texts":{head},"patterns":[\n{lines}\n]}}\n')


main()
