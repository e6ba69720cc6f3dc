"""Tests of the benchmark's own parts; no compiler is needed. Run by `make test`."""

import sys
import tempfile
import time
import unittest
from pathlib import Path

import projects
from measure import Outcome, run_command


def outcome(output: str, exit_code: int = 0) -> Outcome:
    return Outcome(wall_seconds=1, cpu_seconds=1, peak_bytes=1, exit_code=exit_code, output=output)


class ProjectTest(unittest.TestCase):
    def test_every_shape_is_scaled_to_just_above_the_size(self) -> None:
        for shape, unit in projects.SHAPES.items():
            with self.subTest(shape), tempfile.TemporaryDirectory() as directory:
                project = projects.write(shape, 1000, Path(directory))
                self.assertGreaterEqual(project.instances, 1000)
                self.assertLess(project.instances, 1000 + unit)
                model = (Path(directory) / "main.cf").read_text()
                self.assertIn(f"\nscale = {project.instances // unit}\n", model)

    def test_a_wrong_count_or_a_failure_is_noticed(self) -> None:
        project = projects.Project(Path("."), instances=7)
        self.assertIsNone(project.problem_with(outcome("links 3\ninstances 7\n")))
        self.assertIsNotNone(project.problem_with(outcome("instances 8\n")))
        self.assertIsNotNone(project.problem_with(outcome("")))
        self.assertIsNotNone(project.problem_with(outcome("instances 7\n", exit_code=1)))


    def test_the_complaint_is_what_follows_the_first_error(self) -> None:
        self.assertEqual(projects.complaint_of("instances 7\nError: no such type\n"), "Error: no such type")
        self.assertEqual(projects.complaint_of(" killed \n"), "killed")


class MeasureTest(unittest.TestCase):
    def test_output_exit_code_and_directory_are_the_command_s_own(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            script = "import os, sys; print(os.getcwd()); print('no', file=sys.stderr); sys.exit(3)"
            result = run_command([sys.executable, "-c", script], Path(directory), 60)
            self.assertEqual(result.exit_code, 3)
            self.assertEqual(sorted(result.output.split()), sorted([str(Path(directory).resolve()), "no"]))
            self.assertGreater(result.peak_bytes, 1_000_000)

    def test_peak_memory_follows_what_the_command_allocates(self) -> None:
        script = "block = b'x' * 200_000_000"
        result = run_command([sys.executable, "-c", script], Path("."), 60)
        self.assertGreater(result.peak_bytes, 200_000_000)

    def test_a_command_over_its_limit_is_killed(self) -> None:
        result = run_command([sys.executable, "-c", "import time; time.sleep(60)"], Path("."), 0.5)
        self.assertLess(result.exit_code, 0)
        self.assertLess(result.wall_seconds, 30)

    def test_what_a_killed_command_started_is_killed_too(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            # The inner one leaves the group of the outer one, as workers of some programs do.
            script = (
                "import subprocess, sys, time; "
                "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True); "
                "print(inner.pid, flush=True); time.sleep(60)"
            )
            result = run_command([sys.executable, "-c", script], Path(directory), 5)
            state = Path(f"/proc/{int(result.output)}/stat")
            for _ in range(100):
                # A zombie is dead, but was not waited for.
                if not state.exists() or ") Z " in state.read_text():
                    return
                time.sleep(0.1)
            self.fail("it still runs")


if __name__ == "__main__":
    unittest.main()
