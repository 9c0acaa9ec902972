#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) over our sources, tests excepted, in one build folder's compile_commands.json.

    tools/tidy.py BUILD_FOLDER [PATH_PART...]     only sources whose path has one of the parts

A clean result is remembered in BUILD_FOLDER/tidy/ under a hash of the preprocessed source, the checks and the tool's version, so that
only what changed is checked again.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def compiler_command(entry):
    """The compile command without a launcher in front of the compiler, and without its output."""
    words = shlex.split(entry["command"])
    while words and not os.path.basename(words[0]).startswith(("clang", "g++", "c++")):
        words.pop(0)
    for option, arguments in (("-o", 2), ("-c", 1)):
        if option in words:
            at = words.index(option)
            del words[at:at + arguments]
    return words


def main(argv):
    build = pathlib.Path(argv[0]).resolve()
    remembered = build / "tidy"
    remembered.mkdir(exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    checks = (ROOT / ".clang-tidy").read_bytes()
    entries = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if build in path.parents or ROOT not in path.parents:
            continue  # Generated code.
        if path.name.endswith("_test.cc") or path.relative_to(ROOT).parts[0] == "tests":
            continue
        if not argv[1:] or any(part in str(path) for part in argv[1:]):
            entries.append(entry)

    def check(entry):
        preprocessed = subprocess.run(compiler_command(entry) + ["-E", "-P"], cwd=entry["directory"], capture_output=True, check=False)
        digest = hashlib.sha256(version + checks + preprocessed.stdout).hexdigest()
        clean = remembered / digest
        if preprocessed.returncode == 0 and clean.exists():
            return None
        result = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), entry["file"]], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            clean.touch()
            return None
        return result.stdout or result.stderr

    found = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for output in pool.map(check, entries):
            if output is not None:
                found += 1
                print(output)
    print(f"tidy: {len(entries)} sources, {found} with findings")
    return 1 if found or not entries else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
