#!/usr/bin/env python3
"""Checks the rules of docs/contributing.md that need no compiler. Prints one line per violation; exit status 1 when there is any.

    tests/lint/lint.py [ROOT]

Each rule is a function from a Tree to (path, line number, message) triples; lint_test.py shows each of them a good and a bad tree.
"""
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOMS = ("base", "proto", "jobspec", "scheduler", "dataplane", "backup", "server", "worker", "cli", "tests")

# A .cc file without an x_test.cc beside it, and what tests it instead. Patterns match the whole path; `*` does not cross a slash.
UNTESTED = {
    "*/main.cc": "a main: tests/e2e",
    "server/coordinator_*.cc": "parts of Coordinator: coordinator_test.cc",
    "server/job_*.cc": "parts of Job: job_test.cc",
    "server/server.cc": "composition root: tests/e2e",
    "worker/worker.cc": "composition root: tests/e2e",
    "*/grpc_*.cc": "gRPC adapter: contract and integration tests",
    "*/*_service.cc": "gRPC adapter: contract and integration tests",
    "cli/cmd_*.cc": "a command: the output has unit tests, the whole is run by tests/e2e",
}

# Calls that only base/clock.cc may make.
CLOCK_CALLS = re.compile(
    r"\babsl::Now\b|\babsl::SleepFor\b|\bsystem_clock\b|\bsteady_clock\b|\bhigh_resolution_clock\b|\bthis_thread::sleep|"
    r"\b(?:usleep|nanosleep|clock_nanosleep|clock_gettime|gettimeofday)\s*\(|(?<![\w.>])sleep\s*\(|"
    r"(?<![\w.>])time\s*\(\s*(?:nullptr|NULL|0)\s*\)")
CLOCK_FREE = {
    "base/clock.cc": "the clock",
    "server/server.cc": "grpc::Server::Shutdown takes a point of system_clock",
    "dataplane/credentials_test.cc": "gRPC's deadlines are points of system_clock",
    "*/grpc_*_test.cc": "gRPC's deadlines are points of system_clock",
    "base/mutex.h": "the std form of a timed wait needs a deadline on one of its clocks",
    "tests/e2e/*": "waits for real processes",
    "tests/netns/*": "waits for real processes",
    "tests/peers/*": "waits for real processes",
    "tests/bench/*": "measures real time",
    "*/*_bench.cc": "measures real time",
}

ENVIRONMENT_READERS = {
    "*/config.cc": "configuration",
    "*/main.cc": "configuration",
    "tests/*/*": "test parameters",
    "*/*_test.cc": "test parameters",
}

# Headers that stay inside few files: (what, pattern of the included path, who may include it).
TEST_FILES = ("*/*_test.cc", "*/*_test_*.h", "tests/*/*")
CONFINED = (
    ("libtorch, CUDA, NCCL, Gloo", r"^(torch|ATen|c10|cuda|gloo)/|^(cuda|nccl)[\w]*\.h$",
     ("worker/torch_internal.h", "worker/torch_*.cc", "worker/group_*")),
    ("torch_internal.h", r"^worker/torch_internal\.h$", ("worker/torch_*.cc",)),
    ("gRPC", r"^(grpc|grpcpp)/|\.grpc\.pb\.h$",
     ("*/grpc_*", "*/*_service*", "*/credentials*", "*/server.cc", "*/worker.cc", "*/main.cc") + TEST_FILES),
    ("prometheus-cpp, civetweb", r"^prometheus/|^(civetweb|CivetServer)\.h$", ("*/metrics.cc", "*/metrics_test.cc")),
    ("SQLite", r"^sqlite3\.h$", ("server/journal.cc", "backup/journal_snapshot.cc", "base/sqlite_seals*", "server/journal_test.cc", "server/coordinator_test.cc", "backup/*_test*", "tests/fakes/fault_vfs.cc")),
    ("spdlog", r"^spdlog/", ("base/log.cc",)),
    ("yaml-cpp", r"^yaml-cpp/", ("jobspec/*",)),
    ("CLI11", r"^CLI/", ("cli/*", "*/main.cc")),
)

# What only this kind of machine knows. Written in pieces, so that this file passes its own rule.
FOREIGN = re.compile(
    r"(?<![\w./$}>-])/(?:work|home)/|/tmp/" + r"build-|"
    r"\b(?:pypi\.org|pythonhosted\.org|deb\.debian\.org|security\.debian\.org|registry\.npmjs\.org|proxy\.golang\.org|crates\.io)\b"
    .replace(r"\.", r"[.]"))
FOREIGN_EXEMPT = {
    "tests/lint/lint.py": "the rule itself",
    "tests/lint/lint_test.py": "its bad examples",
    "cli/context_test.cc": "an invented home folder",
}


def matches(path, patterns):
    """Whether the whole path matches one of the patterns; `*` stays within one folder, but a last `*` after a slash crosses."""
    for pattern in patterns:
        if pattern.endswith("/*") and path.startswith(pattern[:-1]):
            return True
        parts, wanted = path.split("/"), pattern.split("/")
        if len(parts) == len(wanted) and all(fnmatch.fnmatchcase(part, want) for part, want in zip(parts, wanted)):
            return True
    return False


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])+'", re.DOTALL)


def blank(text, keep_strings):
    """The source with comments (and strings) blanked out; line numbers stay."""
    def replace(found):
        token = found.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token if keep_strings else '""' + "\n" * token.count("\n")
    # A digit separator (1'000) is no character literal.
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    return _TOKEN.sub(replace, text)


class Source:
    """One C++ file."""

    def __init__(self, path, text):
        self.path = path
        self.room = path.split("/")[0]
        self.name = path.split("/")[-1]
        self.raw_lines = text.split("\n")
        self.code_lines = blank(text, keep_strings=False).split("\n")
        self.includes = []  # (line number, path, whether in quotes)
        for number, line in enumerate(blank(text, keep_strings=True).split("\n"), 1):
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if found:
                self.includes.append((number, found.group(2), found.group(1) == '"'))

    @property
    def is_test(self):
        return self.path.endswith("_test.cc") or "_test_" in self.name or self.room == "tests"  # x_test_fixture.h


class Tree:
    """What the rules look at: text files by path, C++ sources, the table of edges and who belongs to which target."""

    def __init__(self, files):
        self.files = files  # path -> text
        self.sources = [Source(path, text) for path, text in sorted(files.items())
                        if path.endswith((".h", ".cc")) and path.split("/")[0] in ROOMS]
        self.edges = self._read_edges()
        self.target_of_source = self._read_targets()

    @classmethod
    def from_folder(cls, root):
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, check=False)
        if listed.returncode == 0:
            paths = [path for path in listed.stdout.decode().split("\0") if path]
        else:  # An unpacked archive.
            paths = [str(path.relative_to(root)) for path in root.rglob("*")
                     if path.is_file() and path.relative_to(root).parts[0] not in ("build", "demo")]
        files = {}
        for path in paths:
            try:
                files[path] = (root / path).read_text()
            except (UnicodeDecodeError, FileNotFoundError):
                continue  # Binary, or deleted and not yet committed.
        return cls(files)

    def _read_edges(self):
        """CAUSEWAY_EDGES_x of cmake/CausewayRooms.cmake, as target -> set of targets."""
        variables, edges = {}, {}
        for name, value in re.findall(r"^set\((\w+)\s*([^)]*)\)", self.files.get("cmake/CausewayRooms.cmake", ""), re.MULTILINE):
            words = []
            for word in re.sub(r"#.*", "", value).replace('"', "").split():
                reference = re.fullmatch(r"\$\{(\w+)\}", word)
                words += variables.get(reference.group(1), []) if reference else [word]
            variables[name] = words
            if name.startswith("CAUSEWAY_EDGES_"):
                edges[name[len("CAUSEWAY_EDGES_"):]] = set(words)
        return edges

    def _read_targets(self):
        """Path of each .cc in a causeway_add_library -> its target."""
        targets = {}
        for path, text in self.files.items():
            if not path.endswith("CMakeLists.txt"):
                continue
            folder = path[:-len("CMakeLists.txt")]
            for target, sources in re.findall(
                    r"causeway_add_library\(\s*(\w+)\s+SRCS\s+(.*?)(?:\)|\bDEPS\b|\bLIBS\b|\bPRIVATE_LIBS\b)",
                    re.sub(r"#.*", "", text), re.DOTALL):
                for source in sources.split():
                    targets[folder + source] = target
        return targets

    def target(self, path):
        """The target that a file belongs to, or None for a program's own file (a main, a test)."""
        if path.startswith("proto/"):
            return "proto_grpc" if path.endswith(".grpc.pb.h") else "proto"
        found = self.target_of_source.get(path) or self.target_of_source.get(re.sub(r"\.h$", ".cc", path))
        if not found and path.startswith("tests/fakes/"):
            return "fakes"
        if found or not path.endswith(".h"):
            return found
        room, name = path.split("/")[0], path.split("/")[-1]  # Header only.
        if room == "worker" and name.startswith("torch_"):
            return "worker_torch"
        if name.startswith("grpc_") and room + "_grpc" in self.edges:
            return room + "_grpc"
        return room if room in self.edges else None

    def room_targets(self, room):
        return {target for target in self.edges if target == room or target.startswith(room + "_")}


def check_edges(tree):
    for source in tree.sources:
        for number, included, quoted in source.includes:
            if not quoted or included.split("/")[0] not in ROOMS:
                continue
            if source.path.startswith("tests/") and not source.path.startswith("tests/fakes/"):
                continue  # What needs more than one room.
            own, other = tree.target(source.path), tree.target(included)
            if included.startswith("tests/") and not included.startswith("tests/fakes/"):
                if not source.is_test:
                    yield source.path, number, f"{included}: only tests include tests/"
                continue
            if source.is_test and source.room != "tests" or own is None:
                # A test or a main: whatever its room may use, and (a test) the fakes.
                targets = tree.room_targets(source.room)
                allowed = targets.union(*(tree.edges[target] for target in targets))
                if source.is_test:
                    allowed.update(target for target in tree.edges if target.startswith("fakes"))
                own = f"the programs of {source.room}/"
            else:
                allowed = tree.edges.get(own, set()) | {own}
            if other not in allowed:
                yield (source.path, number,
                       f"{own} may not include {included} (of {other}): no such edge in cmake/CausewayRooms.cmake")


def check_include_form(tree):
    for source in tree.sources:
        for number, included, quoted in source.includes:
            if ".." in included.split("/"):
                yield source.path, number, f'{included}: no ".." in an include'
            elif quoted and "/" not in included and included not in ("CivetServer.h", "civetweb.h"):
                yield source.path, number, f'"{included}": includes start at the root of the repository'


def check_guards(tree):
    for source in tree.sources:
        if not source.path.endswith(".h"):
            continue
        guard = "CAUSEWAY_" + re.sub(r"[^A-Z0-9]", "_", source.path.upper()) + "_"
        code = [line.strip() for line in source.code_lines if line.strip()]
        if code[:2] != [f"#ifndef {guard}", f"#define {guard}"] or not code[-1].startswith("#endif"):
            yield source.path, 1, f"the include guard must be {guard}"


def check_confined_headers(tree):
    for source in tree.sources:
        for number, included, _ in source.includes:
            for what, pattern, allowed in CONFINED:
                if re.search(pattern, included) and not matches(source.path, allowed):
                    yield source.path, number, f"{included}: {what} only in {', '.join(allowed)}"


def _ban(tree, pattern, message, exempt=(), only=lambda source: True):
    for source in tree.sources:
        if matches(source.path, exempt) or not only(source):
            continue
        for number, line in enumerate(source.code_lines, 1):
            found = re.search(pattern, line)
            if found:
                yield source.path, number, f"{found.group(0).strip()}: {message}"


def check_clock(tree):
    return _ban(tree, CLOCK_CALLS, "time comes from an injected Clock (base/clock.h)", CLOCK_FREE)


def check_environment(tree):
    return _ban(tree, r"\b(?:secure_)?getenv\s*\(", "the environment is read in config.cc and main.cc only", ENVIRONMENT_READERS)


def check_volatile(tree):
    return _ban(tree, r"\bvolatile\b", "use std::atomic or a Mutex", ("*/*_bench.cc", "tests/bench/*"))


def check_detach(tree):
    return _ban(tree, r"\.\s*detach\s*\(\s*\)", "every thread is joined")


def check_string_view(tree):
    return _ban(tree, r"\bstd::string_view\b", "absl::string_view in signatures (the two do not convert)",
                only=lambda source: source.path.endswith(".h"))


def check_skips(tree):
    return _ban(tree, r"\bGTEST_SKIP\s*\(\s*\)\s*;", "a skip says why: GTEST_SKIP() << reason")


def check_disabled_tests(tree):
    yield from _ban(tree, r"\bDISABLED_\w+", "a test runs or is deleted")
    for source in tree.sources:
        for number, line in enumerate(source.raw_lines, 1):
            if re.match(r"\s*(?://|/\*)\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(", line):
                yield source.path, number, "a test that is commented out"


def check_tests_beside(tree):
    for source in tree.sources:
        if not source.path.endswith(".cc") or source.is_test or source.path.endswith("_bench.cc"):
            continue
        if source.path.replace(".cc", "_test.cc") not in tree.files and not matches(source.path, UNTESTED):
            yield source.path, 1, f"no {source.name.replace('.cc', '_test.cc')} beside it"


def check_foreign_names(tree):
    for path, text in sorted(tree.files.items()):
        if path in FOREIGN_EXEMPT:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            found = FOREIGN.search(line)
            if found:
                yield path, number, f"{found.group(0)}: names a path or a host of one machine"


RULES = (check_edges, check_include_form, check_guards, check_confined_headers, check_clock, check_environment, check_volatile,
         check_detach, check_string_view, check_skips, check_disabled_tests, check_tests_beside, check_foreign_names)


def main(argv):
    root = pathlib.Path(argv[0] if argv else pathlib.Path(__file__).resolve().parents[2])
    tree = Tree.from_folder(root)
    violations = [violation for rule in RULES for violation in rule(tree)]
    for path, number, message in violations:
        print(f"{path}:{number}: {message}")
    print(f"lint: {len(tree.sources)} sources, {len(violations)} violations")
    return 1 if violations or not tree.sources else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
