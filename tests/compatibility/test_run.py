"""Tests of the parsing and display of results; nothing is installed here."""

import pathlib
import tempfile
import unittest

import published
import run

REPORT = """<testsuites><testsuite>
<testcase name="good"/>
<testcase name="bad"><failure message="first line&#10;second"/></testcase>
<testcase name="broken"><error/></testcase>
<testcase name="left"><skipped/></testcase>
</testsuite></testsuites>"""


class Reports(unittest.TestCase):
    def test_cases_are_counted_by_what_became_of_them(self):
        suite = run.read_report(REPORT)
        self.assertEqual((suite.passed, suite.failed, suite.skipped), (1, 2, 1))
        self.assertEqual(suite.failures, ["bad: first line", "broken: no message"])
        self.assertEqual(run.in_words(suite), "1 of 4 pass, 1 skipped")

    def test_what_cannot_be_collected_is_a_problem_and_no_failure(self):
        cause = "E   ModuleNotFoundError: No module named 'helper'"
        report = f'<s><testcase name="t"><error message="collection failure">x&#10;{cause}</error></testcase></s>'
        suite = run.read_report(report)
        self.assertEqual(run.in_words(suite), "do not run: ModuleNotFoundError: No module named 'helper'")

    def test_too_few_passing_tests_are_not_good(self):
        module = published.Module("m", "1", tests_min=2)
        result = run.Result(module, "g", compiled=True, suite=run.read_report(REPORT))
        self.assertFalse(result.is_good)
        result.suite.passed = 2
        self.assertTrue(result.is_good)
        result.compiled = False
        self.assertFalse(result.is_good)

    def test_cells_of_the_table_stay_in_their_row(self):
        module = published.Module("m", "1")
        text = run.table([run.Result(module, "g", problem="a\n b | c")])
        self.assertEqual(text.splitlines()[2], "| m | 1 | g | no: b \\| c | – |")

    def test_the_innermost_reason_stands_in_the_table(self):
        problem = "Could not set x (reported in a (/here/m.cf:1))\ncaused by:\n  Invalid value '5' (reported in b (/here/m.cf:1))"
        self.assertEqual(run.cause(problem), "Invalid value '5'")

    def test_only_what_is_between_the_marks_is_replaced(self):
        with tempfile.TemporaryDirectory() as scratch:
            page = pathlib.Path(scratch) / "page.md"
            page.write_text(f"a\n{run.BEGIN}\nold\n{run.END}\nb\n")
            run.write_into(page, "new\n")
            self.assertEqual(page.read_text(), f"a\n{run.BEGIN}\n\nnew\n\n{run.END}\nb\n")


class Published(unittest.TestCase):
    def test_every_module_stands_in_one_group(self):
        names = [module.name for group in published.GROUPS for module in group.modules]
        self.assertEqual(len([name for name in names if name != "std"]), 36)
        twice = {name for name in names if names.count(name) > 1}
        self.assertEqual(twice, {"std"})

    def test_the_quick_ones_are_modules(self):
        names = {module.name for module in published.NOW.modules}
        self.assertLessEqual(set(published.QUICK), names)
        self.assertLessEqual(set(published.QUICK_SUITES), set(published.QUICK))


if __name__ == "__main__":
    unittest.main()
