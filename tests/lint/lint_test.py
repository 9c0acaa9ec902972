#!/usr/bin/env python3
"""Every rule of lint.py fires on a bad tree and keeps quiet on a good one."""
import pathlib
import unittest

import lint

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The real table, and the targets that a small tree needs.
TABLE = {
    "cmake/CausewayRooms.cmake": (ROOT / "cmake/CausewayRooms.cmake").read_text(),
    "scheduler/CMakeLists.txt": "causeway_add_library(scheduler SRCS allocation.cc LIBS absl::status)\n"
                                "causeway_add_library(scheduler_proto\n  SRCS plan_proto.cc\n  DEPS scheduler proto)\n",
    "dataplane/CMakeLists.txt": "causeway_add_library(dataplane SRCS chunk.cc DEPS base)\n"
                                "causeway_add_library(dataplane_grpc SRCS grpc_link.cc credentials.cc DEPS dataplane)\n",
    "worker/CMakeLists.txt": "causeway_add_library(worker SRCS agent.cc)  # comment\n"
                             "causeway_add_library(worker_torch SRCS torch_models.cc DEPS worker)\n",
    "server/CMakeLists.txt": "causeway_add_library(server SRCS job.cc DEPS base)\n"
                             "causeway_add_library(server_grpc SRCS bulk_service.cc DEPS server)\n",
}


def header(path, body=""):
    guard = "CAUSEWAY_" + path.upper().replace("/", "_").replace(".", "_") + "_"
    return f"#ifndef {guard}\n#define {guard}\n{body}\n#endif  // {guard}\n"


class LintTest(unittest.TestCase):
    def found(self, rule, files):
        return list(rule(lint.Tree({**TABLE, **files})))

    def assert_bad(self, rule, path, text, line=None, message=""):
        violations = self.found(rule, {path: text})
        self.assertEqual([violation[0] for violation in violations], [path], violations)
        if line is not None:
            self.assertEqual(violations[0][1], line)
        self.assertIn(message, violations[0][2])

    def assert_good(self, rule, path, text):
        self.assertEqual(self.found(rule, {path: text}), [])

    def test_table_of_edges_is_read(self):
        edges = lint.Tree(TABLE).edges
        self.assertEqual(edges["base"], set())
        self.assertEqual(edges["scheduler_proto"], {"scheduler", "proto"})
        self.assertLessEqual({"base", "proto", "dataplane", "jobspec", "scheduler", "worker"}, edges["worker_grpc"])
        self.assertNotIn("server", edges["worker_grpc"])

    def test_edges(self):
        rule = lint.check_edges
        for path, included in (
                ("scheduler/allocation.cc", "base/clock.h"),
                ("scheduler/model.h", "proto/plan.pb.h"),
                ("scheduler/allocation.cc", "scheduler/plan_proto.h"),
                ("base/log.cc", "proto/common.pb.h"),
                ("server/job.cc", "worker/agent.h"),
                ("server/job_test.cc", "worker/agent.h"),
                ("server/main.cc", "worker/agent.h"),
                ("server/job.cc", "proto/operator.grpc.pb.h"),
                ("worker/agent.cc", "worker/torch_models.h"),
                ("worker/torch_models.cc", "jobspec/job.h"),
                ("dataplane/chunk.cc", "dataplane/grpc_link.h"),
                ("dataplane/link.h", "dataplane/credentials.h"),
                ("worker/agent.cc", "tests/fakes/fake_clock.h"),
                ("tests/fakes/fake_clock.cc", "dataplane/credentials.h")):
            self.assert_bad(rule, path, f'\n#include "{included}"\n', 2)
        for path, included in (
                ("scheduler/allocation.cc", "scheduler/model.h"),
                ("scheduler/plan_proto.cc", "proto/plan.pb.h"),
                ("server/job.cc", "scheduler/plan_proto.h"),
                ("server/bulk_service.cc", "proto/data.grpc.pb.h"),
                ("server/main.cc", "server/bulk_service.h"),
                ("server/job_test.cc", "tests/fakes/fake_clock.h"),
                ("cli/cli_test_fixture.h", "tests/fakes/fake_clock.h"),
                ("dataplane/grpc_link.cc", "dataplane/chunk.h"),
                ("worker/torch_models.cc", "worker/model.h"),
                ("worker/main.cc", "worker/torch_models.h"),
                ("tests/e2e/fleet_test.cc", "server/job.h"),
                ("base/log.cc", "absl/strings/str_cat.h")):
            self.assert_good(rule, path, f'#include "{included}"\n')
        self.assert_good(rule, "scheduler/allocation.cc", '// #include "base/clock.h"\n')

    def test_include_form(self):
        rule = lint.check_include_form
        self.assert_bad(rule, "server/job.cc", '#include "../base/clock.h"\n', 1)
        self.assert_bad(rule, "server/job.cc", '#include "job.h"\n', 1)
        self.assert_good(rule, "server/job.cc", '#include "server/job.h"\n#include <vector>\n')

    def test_guards(self):
        rule = lint.check_guards
        self.assert_bad(rule, "server/job.h", "#pragma once\n")
        self.assert_bad(rule, "server/job.h", header("worker/job.h"))
        self.assert_bad(rule, "server/job.h", "")
        self.assert_good(rule, "server/job.h", "// Licence.\n" + header("server/job.h"))

    def test_confined_headers(self):
        rule = lint.check_confined_headers
        for path, included in (
                ("worker/torch_models.h", "<torch/torch.h>"),
                ("worker/agent.cc", "<ATen/ATen.h>"),
                ("server/job.cc", "<cuda_runtime.h>"),
                ("worker/model.h", "<nccl.h>"),
                ("worker/trainer.cc", '"worker/torch_internal.h"'),
                ("server/job.h", "<grpcpp/grpcpp.h>"),
                ("worker/agent.cc", '"proto/data.grpc.pb.h"'),
                ("base/log.cc", "<prometheus/registry.h>"),
                ("server/spool.cc", "<sqlite3.h>"),
                ("server/job.cc", '"spdlog/spdlog.h"'),
                ("server/config.cc", "<yaml-cpp/yaml.h>"),
                ("server/config.cc", "<CLI/CLI.hpp>")):
            self.assert_bad(rule, path, f"#include {included}\n", 1)
        for path, included in (
                ("worker/torch_internal.h", "<torch/torch.h>"),
                ("worker/torch_models_test.cc", '"worker/torch_internal.h"'),
                ("worker/group_nccl.cc", "<nccl.h>"),
                ("server/bulk_service.h", "<grpcpp/grpcpp.h>"),
                ("dataplane/credentials.h", "<grpcpp/security/credentials.h>"),
                ("cli/grpc_client.cc", '"proto/operator.grpc.pb.h"'),
                ("server/server.cc", "<grpcpp/server.h>"),
                ("tests/e2e/wire_test.cc", "<grpcpp/server.h>"),
                ("base/metrics.cc", "<prometheus/registry.h>"),
                ("server/journal.cc", "<sqlite3.h>"),
                ("jobspec/job_yaml.cc", "<yaml-cpp/yaml.h>"),
                ("cli/main.cc", "<CLI/CLI.hpp>"),
                ("server/main.cc", "<CLI/CLI.hpp>")):
            self.assert_good(rule, path, f"#include {included}\n")

    def test_clock(self):
        rule = lint.check_clock
        for call in ("absl::Now()", "absl::SleepFor(absl::Seconds(1))", "std::chrono::system_clock::now()",
                     "std::chrono::steady_clock::now()", "std::this_thread::sleep_for(d)", "usleep(10)", "::sleep(1)",
                     "time(nullptr)", "std::time(nullptr)", "clock_gettime(CLOCK_MONOTONIC, &t)", "nanosleep(&t, nullptr)"):
            self.assert_bad(rule, "server/job.cc", f"int a;\nauto x = {call};\n", 2)
            self.assert_bad(rule, "server/job_test.cc", f"auto x = {call};\n")
            self.assert_good(rule, "base/clock.cc", f"auto x = {call};\n")
            self.assert_good(rule, "tests/e2e/kill_test.cc", f"auto x = {call};\n")
        for good in ("clock->Now()", "clock->SleepFor(absl::Seconds(1))", "// absl::Now() is banned", 'Say("absl::Now()");',
                     "/* usleep(1)\n usleep(2) */", 'R"(steady_clock)"', "batch_time(0)", "model.time(0)", "absl::Nowhere()"):
            self.assert_good(rule, "server/job.cc", good + "\n")

    def test_environment(self):
        self.assert_bad(lint.check_environment, "server/job.cc", 'auto x = std::getenv("A");\n', 1)
        self.assert_good(lint.check_environment, "server/config.cc", 'auto x = std::getenv("A");\n')
        self.assert_good(lint.check_environment, "worker/main.cc", 'auto x = getenv("A");\n')

    def test_volatile(self):
        self.assert_bad(lint.check_volatile, "server/job.cc", "volatile int x;\n", 1)
        self.assert_good(lint.check_volatile, "server/job.cc", "// volatile\nstd::atomic<int> x;\n")

    def test_detach(self):
        self.assert_bad(lint.check_detach, "server/job.cc", "thread.detach();\n", 1)
        self.assert_good(lint.check_detach, "server/job.cc", "thread.join();\n")

    def test_string_view(self):
        self.assert_bad(lint.check_string_view, "server/job.h", "void F(std::string_view x);\n", 1)
        self.assert_good(lint.check_string_view, "server/job.h", "void F(absl::string_view x);\n")

    def test_skips(self):
        self.assert_bad(lint.check_skips, "server/job_test.cc", "GTEST_SKIP();\n", 1)
        self.assert_good(lint.check_skips, "server/job_test.cc", 'GTEST_SKIP() << "needs root";\n')

    def test_disabled_tests(self):
        rule = lint.check_disabled_tests
        self.assert_bad(rule, "server/job_test.cc", "TEST(Job, DISABLED_Ends) {}\n", 1)
        self.assert_bad(rule, "server/job_test.cc", "// TEST(Job, Ends) {\n", 1)
        self.assert_good(rule, "server/job_test.cc", "// Each TEST(...) ends.\nTEST(Job, Ends) {}\n")

    def test_tests_beside(self):
        rule = lint.check_tests_beside
        self.assert_bad(rule, "server/job.cc", "")
        self.assertEqual(self.found(rule, {"server/job.cc": "", "server/job_test.cc": ""}), [])
        for path in ("server/main.cc", "server/bulk_service.cc", "dataplane/grpc_link.cc", "tests/fakes/fake_clock.cc",
                     "scheduler/allocation_bench.cc"):
            self.assert_good(rule, path, "")

    def test_foreign_names(self):
        rule = lint.check_foreign_names
        for text in ("see /work/main/x", "/home/somebody/x", "pip --index-url https://pypi.org/simple", "ls /tmp/build-x"):
            self.assert_bad(rule, "docs/operations.md", f"\n{text}\n", 2)
        for text in ("$HOME/.cache", "tests/work/x", "worker/home/", "/var/lib/causeway", "a pypi package"):
            self.assert_good(rule, "docs/operations.md", text + "\n")

    def test_blank_keeps_line_numbers(self):
        text = 'a /* x\n y */ "s\\"t" R"(1\n2)" \'"\' 1\'000 // c\nb'
        self.assertEqual(lint.blank(text, keep_strings=False).count("\n"), text.count("\n"))
        self.assertEqual(lint.blank("x = \"a\\\"b\"; // c", keep_strings=False).rstrip(), 'x = "";')


if __name__ == "__main__":
    unittest.main()
