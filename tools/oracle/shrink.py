"""Makes a model that differs from the reference small, by leaving out statements and arguments as long as the
difference stays of its kind.

All ways to leave something out are tried at once in one run; what can go on its own is then left out together, and
if that changes the difference, half of it, and so on.
"""

from __future__ import annotations

import re
from typing import Protocol

from cases import Case

ROUNDS = 30

# One thing to leave out: in a file, the lines with these numbers get these texts; None takes the line away.
Cut = tuple[str, dict[int, str | None]]


class Comparison(Protocol):
    def run(self, cases: list[Case]) -> tuple[dict[str, str], dict[str, dict[str, object]]]: ...


def shrink(case: Case, comparison: Comparison) -> tuple[Case, dict[str, object], str]:
    """The smallest model found that differs in the same way, its outcome and the difference."""
    texts, outcomes = comparison.run([case])
    if case.name not in texts:
        return case, outcomes.get(case.name, {"status": "gone"}), "does not differ when it is run alone"
    best, outcome, text = case, outcomes[case.name], texts[case.name]
    wanted = signature(text, outcome)
    for round_number in range(ROUNDS):
        cuts = line_cuts(best)
        if round_number % 2:
            cuts = argument_cuts(best) + cuts
        variants = [Case(f"{case.name}_v{number}", best.flags, apply(best, [cut])) for number, cut in enumerate(cuts)]
        texts, outcomes = comparison.run(variants)
        good = [cut for cut, variant in zip(cuts, variants) if has(variant.name, texts, outcomes, wanted)]
        if not good and round_number % 2:
            break
        # Small cuts may be parts of larger ones: the larger come first, and what overlaps is dropped.
        chosen: list[Cut] = []
        for cut in good:
            if not any(cut[0] == other[0] and cut[1].keys() & other[1].keys() for other in chosen):
                chosen.append(cut)
        attempts = [Case(f"{case.name}_a{count}", best.flags, apply(best, chosen[:count])) for count in halving(len(chosen))]
        texts, outcomes = comparison.run(attempts) if attempts else ({}, {})
        for attempt in attempts:
            if has(attempt.name, texts, outcomes, wanted):
                best = Case(case.name, best.flags, attempt.files)
                outcome, text = outcomes[attempt.name], texts[attempt.name]
                break
    return best, outcome, text


def halving(count: int) -> list[int]:
    """All of it, half of it and so on; one at last."""
    counts = []
    while count:
        counts.append(count)
        count //= 2
    return counts


def has(name: str, texts: dict[str, str], outcomes: dict[str, dict[str, object]], wanted: str) -> bool:
    return name in texts and signature(texts[name], outcomes[name]) == wanted


def signature(text: str, outcome: dict[str, object]) -> str:
    """The kind of a difference: the part of the report that differs, the error that was expected, and for messages the
    first line that differs, without the names and numbers of the model."""
    first = text.partition("\n")[0]
    error = outcome.get("error")
    parts = [first if first.startswith("status:") else re.split(r"[:(]", first)[0]]
    parts.append(str(error.get("class")) if isinstance(error, dict) else "")
    if first.startswith(("error", "status")):
        lines = [line for line in text.splitlines() if line.startswith(("  -", "  +", "  got error"))]
        parts += [re.sub(r"\S*\d\S*", "#", line) for line in lines[:1]]
    return "\n".join(parts)


def apply(case: Case, cuts: list[Cut]) -> dict[str, str]:
    files: dict[str, str] = {}
    for path, text in case.files.items():
        changed: dict[int, str | None] = {}
        for file, lines in cuts:
            if file == path:
                changed |= lines
        kept = [changed.get(number, line) for number, line in enumerate(text.splitlines())]
        files[path] = "".join(line + "\n" for line in kept if line is not None)
    if not files.get("project.yml"):
        files.pop("project.yml", None)
    imported = " ".join(re.findall(r"^import (\w+)", "\n".join(files.values()), flags=re.MULTILINE)).split()
    return {path: text for path, text in files.items() if not path.startswith("libs/") or path.split("/")[1] in imported}


def line_cuts(case: Case) -> list[Cut]:
    """Whole blocks, blocks without their body (which moves out), and lines; largest first."""
    cuts: list[Cut] = []
    for path, text in case.files.items():
        lines = text.splitlines()
        if path == "project.yml":
            cuts.append((path, dict.fromkeys(range(len(lines)))))
        if not path.endswith(".cf"):
            continue
        opened: list[int] = []
        for number, line in enumerate(lines):
            words = line.split()
            if words and line.endswith(":") and words[0] in ("entity", "implementation", "for", "if"):
                opened.append(number)
            elif words == ["end"] and opened:
                start = opened.pop()
                cuts.append((path, dict.fromkeys(range(start, number + 1))))
                if lines[start].split()[0] in ("for", "if"):
                    cuts.append((path, dict.fromkeys([start, number])))
            elif words and words[0] not in ("else:", "elif"):
                cuts.append((path, {number: None}))
    return sorted(cuts, key=lambda cut: -len(cut[1]))


def argument_cuts(case: Case) -> list[Cut]:
    """Lines without one of the arguments or list members in them; the longest first."""
    cuts: list[tuple[int, Cut]] = []
    for path, text in case.files.items():
        for number, line in enumerate(text.splitlines()):
            for start, end in argument_spans(line) if path.endswith(".cf") else []:
                cuts.append((end - start, (path, {number: line[:start] + line[end:]})))
    return [cut for _, cut in sorted(cuts, key=lambda cut: -cut[0])]


def argument_spans(line: str) -> list[tuple[int, int]]:
    """Where the members of the brackets in a line are, each with the comma that goes with it."""
    spans: list[tuple[int, int]] = []
    opened: list[list[int]] = []
    for position, character in enumerate(line):
        if character in "([":
            opened.append([position])
        elif character == "," and opened:
            opened[-1].append(position)
        elif character in ")]" and opened:
            marks = [*opened.pop(), position]
            for index, (start, end) in enumerate(zip(marks, marks[1:])):
                if index > 0:
                    spans.append((start, end))
                elif len(marks) > 2:
                    spans.append((start + 1, end + 1))
                elif end > start + 1:
                    spans.append((start + 1, end))
    return spans
