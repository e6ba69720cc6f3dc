"""Makes a model that differs from the reference small, by leaving out statements as long as the difference stays.

All ways to leave something out are tried at once in one run; what can go on its own is then left out together, and
if that changes the difference, one by one.
"""

from __future__ import annotations

import re
from typing import Protocol

from cases import Case

ROUNDS = 25
# Errors that a model without some of its definitions has, and that say nothing about evaluation.
BROKEN = {"ParserException", "TypeNotFoundException", "MissingImportException", "NotFoundException", "ModuleLoadingException", "TypingException"}

# A place in a model: the file and the lines to leave out.
Cut = tuple[str, frozenset[int]]


class Comparison(Protocol):
    def run(self, cases: list[Case]) -> tuple[dict[str, str], dict[str, dict[str, object]]]: ...


def shrink(case: Case, comparison: Comparison) -> tuple[Case, dict[str, object], str]:
    """The smallest model found that differs in the same way, its outcome and the difference."""
    texts, outcomes = comparison.run([case])
    if case.name not in texts:
        return case, outcomes.get(case.name, {"status": "gone"}), "does not differ when it is run alone"
    best, outcome, text = case, outcomes[case.name], texts[case.name]
    wanted = signature(text), error_class(outcome)
    for _ in range(ROUNDS):
        cuts = possible_cuts(best)
        variants = [Case(f"{case.name}_v{number}", best.flags, apply(best, [cut])) for number, cut in enumerate(cuts)]
        texts, outcomes = comparison.run(variants)
        good = [cut for cut, variant in zip(cuts, variants) if agrees(variant.name, texts, outcomes, wanted)]
        if not good:
            break
        # Small cuts may be parts of larger ones: the larger come first, and what overlaps is dropped.
        chosen: list[Cut] = []
        for cut in good:
            if not any(cut[0] == other[0] and cut[1] & other[1] for other in chosen):
                chosen.append(cut)
        attempts = [Case(f"{case.name}_a{count}", best.flags, apply(best, chosen[:count])) for count in halving(len(chosen))]
        texts, outcomes = comparison.run(attempts)
        for attempt in attempts:
            if agrees(attempt.name, texts, outcomes, wanted):
                best, outcome, text = Case(case.name, best.flags, attempt.files), outcomes[attempt.name], texts[attempt.name]
                break
    return best, outcome, text


def halving(count: int) -> list[int]:
    """All of it, half of it and so on; one at last."""
    counts = []
    while count:
        counts.append(count)
        count //= 2
    return counts


def agrees(name: str, texts: dict[str, str], outcomes: dict[str, dict[str, object]], wanted: tuple[str, str]) -> bool:
    if name not in texts or signature(texts[name]) != wanted[0]:
        return False
    found = error_class(outcomes[name])
    return found == wanted[1] or found not in BROKEN


def signature(text: str) -> str:
    """What kind of difference it is: the part of the report, and for the status both sides."""
    first = text.partition("\n")[0]
    return first if first.startswith("status:") else re.split(r"[:(]", first)[0]


def error_class(outcome: dict[str, object]) -> str:
    error = outcome.get("error")
    return str(error.get("class")) if isinstance(error, dict) else ""


def apply(case: Case, cuts: list[Cut]) -> dict[str, str]:
    files = {}
    for path, text in case.files.items():
        gone = {number for file, lines in cuts if file == path for number in lines}
        lines = [line for number, line in enumerate(text.splitlines()) if number not in gone]
        if text and not lines and path == "project.yml":
            continue
        files[path] = "".join(line + "\n" for line in lines)
    return files


def possible_cuts(case: Case) -> list[Cut]:
    """Whole blocks first, then blocks without their body (which moves out), then lines; largest first."""
    cuts: list[Cut] = []
    for path, text in case.files.items():
        if path == "project.yml":
            cuts.append((path, frozenset(range(len(text.splitlines())))))
        if not path.endswith(".cf"):
            continue
        opened: list[int] = []
        for number, line in enumerate(text.splitlines()):
            word = line.split(" ")[-1] if line.strip() == "end" else line.strip().split(" ")[0]
            if line.rstrip().endswith(":") and word in ("entity", "implementation", "for", "if"):
                opened.append(number)
            elif line.strip() == "end" and opened:
                start = opened.pop()
                cuts.append((path, frozenset(range(start, number + 1))))
                if text.splitlines()[start].strip().split(" ")[0] in ("for", "if"):
                    cuts.append((path, frozenset([start, number])))
            elif line.strip() and not line.strip().startswith(("else:", "elif ")):
                cuts.append((path, frozenset([number])))
    return sorted(cuts, key=lambda cut: -len(cut[1]))
