#!/usr/bin/env python3
"""Checks that clang-format (.clang-format) would change no C++ source; --fix changes them.

Exit status 1: a file is not formatted. 77: clang-format is not installed.
"""
import concurrent.futures
import pathlib
import shutil
import subprocess
import sys

from lint import Tree

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(argv):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        print("SKIPPED: clang-format is not installed (tools/deps.sh check installs it)")
        return 77
    options = ["-i"] if argv == ["--fix"] else ["--dry-run", "-Werror"]
    paths = [source.path for source in Tree.from_folder(ROOT).sources]

    def run(path):
        return subprocess.run([tool, "--style=file", *options, path], cwd=ROOT, capture_output=True, text=True, check=False)

    unformatted = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for path, result in zip(paths, pool.map(run, paths)):
            if result.returncode != 0:
                unformatted += 1
                print("\n".join(result.stderr.splitlines()[:3]))
    print(f"format: {len(paths)} sources, {unformatted} not formatted (`make format` does it)")
    return 1 if unformatted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
