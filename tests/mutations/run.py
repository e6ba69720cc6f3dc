"""Removes protections from the sources one by one, and expects their tests to fail.

    python3 tests/mutations/run.py [--together] [--in-place] [--check] [MUTATION...]
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "reference" / "guarantees.md"


def problems(mutation, root=ROOT):
    """Yields problems of a mutation: a patch that does not apply, a test that guarantees.md does not name."""
    path = root / mutation.file
    count = path.read_text().count(mutation.old) if path.exists() else 0
    if count != 1:
        yield f"{mutation.name}: the text to replace occurs {count} times in {mutation.file}"
    for test in mutation.tests:
        # The name of a trial is the test name, after its group and before its database.
        names = [part for part in test.split("/") if part not in ("sqlite", "postgres")]
        if f"`{names[-1]}`" not in GUARANTEES.read_text():
            yield f"{mutation.name}: guarantees.md does not name {names[-1]}"


def unproved():
    """Yields tests that guarantees.md marks with † but that have no mutation."""
    for name in re.findall(r"`(\w+)` †", GUARANTEES.read_text()):
        if not any(name in test.split("/") for mutation in MUTATIONS for test in mutation.tests):
            yield f"guarantees.md says that {name} was seen failing, and no mutation is for it"


def batches(chosen, together):
    """Groups mutations for one build: same package and target, different files, disjoint tests."""
    if not together:
        return [[mutation] for mutation in chosen]
    made = []
    for mutation in chosen:
        for batch in made:
            same = (batch[0].package, batch[0].target) == (mutation.package, mutation.target)
            apart = all(
                other.file != mutation.file
                and not set(other.tests) & set(mutation.tests)
                and other.name not in mutation.meets
                and mutation.name not in other.meets
                for other in batch
            )
            if same and apart:
                batch.append(mutation)
                break
        else:
            made.append([mutation])
    return made


@contextmanager
def sources(in_place):
    """A source tree to mutate: a separate worktree or, with `in_place`, this one."""
    if in_place:
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="orrery-mutation-") as scratch:
        tree = Path(scratch) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree)], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


@contextmanager
def mutated(root, batch):
    before = {mutation.file: (root / mutation.file).read_text() for mutation in batch}
    try:
        for mutation in batch:
            path = root / mutation.file
            path.write_text(path.read_text().replace(mutation.old, mutation.new))
        yield
    finally:
        for file, text in before.items():
            (root / file).write_text(text)


def cargo(root, mutation, *arguments):
    target = [mutation.target] if mutation.target.startswith("--") else ["--test", mutation.target]
    command = ["cargo", "test", "-p", mutation.package, *target, *arguments]
    # Without `-D warnings`: a mutation leaves unused code behind.
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def failed_tests(output):
    """Returns the names of failed tests, in the formats of both test harnesses."""
    return set(re.findall(r"^---- (\S+)(?: stdout)? ----$", output, re.MULTILINE)) | set(
        re.findall(r"^test (\S+) +\.\.\. FAILED$", output, re.MULTILINE)
    )


def try_batch(root, batch):
    """Yields a verdict for each test of each mutation."""
    with mutated(root, batch):
        began = time.monotonic()
        built = cargo(root, batch[0], "--no-run")
        took = time.monotonic() - began
        if built.returncode != 0:
            error = re.search(r"^error.*(?:\n.*){0,3}", built.stdout, re.MULTILINE)
            for mutation in batch:
                yield False, mutation, "", f"does not compile: {error.group(0) if error else built.stdout[-300:]}"
            return
        for mutation in batch:
            for test in mutation.tests:
                began = time.monotonic()
                done = cargo(root, mutation, "--", test)
                seconds = time.monotonic() - began
                failed = any(name.endswith(test) for name in failed_tests(done.stdout))
                ran = not re.search(r"result: ok\. 0 passed; 0 failed", done.stdout)
                word = "failed, as it must" if failed else ("PASSED without its protection" if ran else "was not found")
                yield failed, mutation, test, f"{word} (built in {took:.0f} s, ran {seconds:.0f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--together", action="store_true", help="apply independent mutations of one package in one build")
    parser.add_argument("--in-place", action="store_true", help="change the sources in place, and restore them")
    parser.add_argument("--check", action="store_true", help="only check that patches apply and guarantees.md names the tests")
    parser.add_argument("mutations", nargs="*", metavar="MUTATION", help="names of mutations; default: all")
    options = parser.parse_args()
    known = {mutation.name for mutation in MUTATIONS}
    unknown = [name for name in options.mutations if name not in known]
    if unknown:
        parser.error(f"there is no mutation {unknown[0]!r}; known are {', '.join(sorted(known))}")
    chosen = [mutation for mutation in MUTATIONS if not options.mutations or mutation.name in options.mutations]
    wrong = [problem for mutation in chosen for problem in problems(mutation)]
    wrong += unproved()
    for problem in wrong:
        print(f"WRONG   {problem}", flush=True)
    if wrong or options.check:
        print(f"{len(chosen)} mutations, {len(wrong)} problems")
        return 1 if wrong else 0
    missed = 0
    with sources(options.in_place) as root:
        for batch in batches(chosen, options.together):
            for good, mutation, test, text in try_batch(root, batch):
                missed += not good
                print(f"{'killed' if good else 'ALIVE '}  {mutation.name} ({mutation.promise}): {test} {text}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
