#!/usr/bin/env python3
"""test_summary.py on results as ctest writes them."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import test_summary

PASSED = '<testcase name="a.Ok" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="a.Bad" status="fail"><failure message=""/><system-out>x</system-out></testcase>'
MISSING = ('<testcase name="b_NOT_BUILT" status="notrun"><skipped message="Unable to find executable"/>'
           '<system-out>Unable to find executable: b_NOT_BUILT</system-out></testcase>')
SKIPPED = """<testcase name="a.Root" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>
[ RUN      ] A.Root
/x/a_test.cc:5: Skipped
needs root,
and a namespace
[  SKIPPED ] A.Root (0 ms)
</system-out></testcase>"""
SCRIPT_SKIPPED = """<testcase name="s" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>hello
SKIPPED: no Python set
</system-out></testcase>"""
DISABLED = '<testcase name="a.Off" status="disabled"><system-out>Disabled</system-out></testcase>'


class TestSummaryTest(unittest.TestCase):
    def summary(self, *files, arguments=()):
        """The lines printed and the exit status. A file that is None does not exist."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, cases in enumerate(files):
                paths.append(str(pathlib.Path(folder) / f"{number}.xml"))
                if cases is not None:
                    pathlib.Path(paths[-1]).write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = test_summary.main([*paths, *arguments])
            return output.getvalue().splitlines(), status

    def test_all_passed(self):
        lines, status = self.summary([PASSED, PASSED])
        self.assertEqual(lines[-1], "2 passed, 0 failed, 0 skipped")
        self.assertEqual(status, 0)

    def test_failures_are_named_and_fatal(self):
        lines, status = self.summary([PASSED, FAILED, MISSING])
        self.assertEqual(lines[-1], "1 passed, 2 failed, 0 skipped")
        self.assertIn("FAILED  a.Bad", lines)
        self.assertIn("FAILED  b_NOT_BUILT", lines)
        self.assertEqual(status, 1)

    def test_skips_have_reasons(self):
        lines, status = self.summary([PASSED, SKIPPED, SCRIPT_SKIPPED, DISABLED])
        self.assertEqual(lines[-1], "1 passed, 0 failed, 3 skipped")
        self.assertIn("SKIPPED a.Root: needs root, and a namespace", lines)
        self.assertIn("SKIPPED s: no Python set", lines)
        self.assertIn("SKIPPED a.Off: disabled", lines)
        self.assertEqual(status, 0)

    def test_no_results_fail(self):
        self.assertEqual(self.summary(None)[0][-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(self.summary([])[0][-1], "0 passed, 1 failed, 0 skipped")
        self.assertEqual(self.summary([PASSED], None)[1], 1)
        self.assertEqual(self.summary([SKIPPED])[1], 1)

    def test_steps_and_files_add_up(self):
        lines, status = self.summary([PASSED], [PASSED, FAILED, SKIPPED], arguments=["--passed", "tsa", "--failed", "tidy"])
        self.assertEqual(lines[-1], "3 passed, 2 failed, 1 skipped")
        self.assertIn("FAILED  1: a.Bad", lines)
        self.assertIn("FAILED  tidy", lines)
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main()
