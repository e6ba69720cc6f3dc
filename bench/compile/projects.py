"""Write the projects to compile: a model shape, scaled to about the requested number of instances."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from measure import Outcome

MODELS = Path(__file__).resolve().parent / "models"

# Instances per unit of `scale`; the head comment of each model explains the sum.
SHAPES = {"hosts": 201, "fabric": 73, "applications": 101}

SCALE_LINE = re.compile(r"^scale = 1$", re.MULTILINE)
COUNT_LINE = re.compile(r"^instances (\d+)$", re.MULTILINE)


@dataclass
class Project:
    """A project directory and the number of instances that its model must report."""

    directory: Path
    instances: int

    def problem_with(self, outcome: Outcome) -> str | None:
        """The reason why `outcome` is not a correct compilation of this project, or None."""
        if outcome.exit_code != 0:
            return f"exit code {outcome.exit_code}: {complaint_of(outcome.output)}"
        if self.instances == 0:
            return None
        counts = COUNT_LINE.findall(outcome.output)
        if counts != [str(self.instances)]:
            return f"expected {self.instances} instances, the model printed {counts}"
        return None


def complaint_of(output: str) -> str:
    """The reason in a failed command's output: the shortened text from the first error on."""
    start = max(output.find("Error: "), output.find("panicked at"), 0)
    return output[start:].strip()[:400]


def write(shape: str, size: int, directory: Path) -> Project:
    """A project of `shape` with at least `size` instances, and as few more as the shape allows."""
    scale = -(-size // SHAPES[shape])
    text, replaced = SCALE_LINE.subn(f"scale = {scale}", (MODELS / f"{shape}.cf").read_text())
    if replaced != 1:
        raise SystemExit(f"models/{shape}.cf must hold the line `scale = 1` once")
    return write_project(directory, shape, text, scale * SHAPES[shape])


def write_empty(directory: Path) -> Project:
    """A project with an empty model, which measures the start-up of the command."""
    return write_project(directory, "empty", "", 0)


def write_project(directory: Path, name: str, text: str, instances: int) -> Project:
    (directory / "libs").mkdir(parents=True, exist_ok=True)
    (directory / "project.yml").write_text(f"name: {name}\nmodulepath: libs\n")
    (directory / "main.cf").write_text(text)
    return Project(directory, instances)
