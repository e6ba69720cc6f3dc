#!/usr/bin/env python3
"""Writes the models of the language corpus as inputs for the fuzz targets.

    tools/fuzz_corpus.py fuzz/corpus/parse fuzz/corpus/compile
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "oracle"))

from cases import read_cases  # noqa: E402

# Longer inputs only make the fuzzer slow.
BYTES_MAX = 4096


def main() -> int:
    targets = [Path(argument) for argument in sys.argv[1:]]
    if not targets:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    written: set[str] = set()
    for target in targets:
        target.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "tests" / "language").glob("*.cases")):
        for case in read_cases(path):
            text = case.main_bytes()
            name = hashlib.sha256(text).hexdigest()[:16]
            if not text or len(text) > BYTES_MAX or name in written:
                continue
            written.add(name)
            for target in targets:
                (target / name).write_bytes(text)
    print(f"{len(written)} inputs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
