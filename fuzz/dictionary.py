"""Prints a dictionary for libFuzzer: the short texts in quotes in the sources of a target's reader.

    python3 fuzz/dictionary.py TARGET

Targets whose inputs have no words get an empty one.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Folders and files of the readers; tests in them help, since they have inputs.
SOURCES = {
    "adapter": ["frontends/src/checkpoint/adapter"],
    "config": ["frontends/src/config", "frontends/src/config.rs", "frontends/src/arch/models"],
    "gbnf": ["serve/src/gbnf.rs"],
    "gguf": ["frontends/src/checkpoint/gguf"],
    "hub_listing": ["frontends/hub/src"],
    "hub_reference": ["frontends/hub/src/reference.rs"],
    "lir": ["ir/src/text"],
    "template": ["runtime/text/src/jinja"],
    "text_config": ["runtime/text/src/config.rs"],
    "text_settings": ["frontends/src/tokenizer"],
    "tokenizer": ["runtime/text/src"],
    "turns": ["serve/turns/src", "serve/turns/tests/random.rs"],
}
MOST = 4000


def words(target: str) -> list[str]:
    """Texts of 2 to 40 characters, sorted."""
    found = set()
    for source in SOURCES.get(target, []):
        path = ROOT / source
        for file in sorted(path.rglob("*.rs")) if path.is_dir() else [path]:
            found.update(re.findall(r'"([\w./:$%#<|>@\[\]=+*-]{2,40})"', file.read_text(encoding="utf-8")))
    return sorted(found)[:MOST]


def main() -> None:
    """Each text by its bytes."""
    for word in words(sys.argv[1]):
        escaped = "".join(f"\\x{b:02x}" if b in b'"\\' or not 32 <= b < 127 else chr(b) for b in word.encode())
        print(f'"{escaped}"')


if __name__ == "__main__":
    main()
