#!/usr/bin/env python3
"""Adds up test results and prints `N passed, M failed, K skipped` as the last line.

    tools/test_summary.py RESULTS.xml... [--passed NAME]... [--failed NAME]...

RESULTS.xml are JUnit files of ctest; --passed and --failed add steps that are no ctest test (a compilation). A result file that is
missing or empty counts as one failure: tests that did not run did not pass. Skipped tests are listed with their reasons, failed ones by
name. The exit status is 1 when anything failed.
"""
import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

NO_REASON = "no reason given"


def skip_reason(case):
    """Why a test was skipped: what it wrote to GTEST_SKIP(), or after `SKIPPED:`, or what ctest says."""
    output = case.findtext("system-out") or ""
    found = re.search(r"^\S+:\d+: Skipped\n(.*?)^\[  SKIPPED \]", output, re.MULTILINE | re.DOTALL)
    if found:
        return " ".join(found.group(1).split()) or NO_REASON
    found = re.search(r"^SKIPPED: *(.+)$", output, re.MULTILINE)
    if found:
        return found.group(1).strip()
    if case.get("status") == "disabled":
        return "disabled"
    return NO_REASON


def read_results(path):
    """The passed (names), failed (names) and skipped ((name, reason) pairs) of one file."""
    passed, failed, skipped = [], [], []
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        return passed, [f"{path} ({error})"], skipped
    if not cases:
        return passed, [f"{path} (no test ran)"], skipped
    for case in cases:
        name = case.get("name")
        # ctest calls a test `notrun` when it was skipped and also when its program is missing.
        if case.get("status") == "run":
            passed.append(name)
        elif case.get("status") == "disabled" or (
                case.get("status") == "notrun" and
                "SKIP_" in (case.find("skipped").get("message", "") if case.find("skipped") is not None else "")):
            skipped.append((name, skip_reason(case)))
        else:
            failed.append(name)
    return passed, failed, skipped


def main(argv):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--passed", action="append", default=[])
    parser.add_argument("--failed", action="append", default=[])
    args = parser.parse_args(argv)
    passed, failed, skipped = list(args.passed), list(args.failed), []
    for path in args.results:
        file_passed, file_failed, file_skipped = read_results(path)
        prefix = f"{path.stem}: " if len(args.results) > 1 else ""
        passed += file_passed
        failed += [prefix + name for name in file_failed]
        skipped += [(prefix + name, reason) for name, reason in file_skipped]
    print()
    for name, reason in skipped:
        print(f"SKIPPED {name}: {reason}")
    for name in failed:
        print(f"FAILED  {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
