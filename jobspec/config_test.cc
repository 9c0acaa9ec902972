#include "jobspec/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "jobspec/job_spec.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::jobspec {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(HostPortTest, Reads) {
  EXPECT_THAT(ParseHostPort("coord.example:7443", false), IsOkAndHolds(HostPort{"coord.example", 7443}));
  EXPECT_THAT(ParseHostPort("[::1]:1", false), IsOkAndHolds(HostPort{"::1", 1}));
  EXPECT_THAT(ParseHostPort("127.0.0.1:0", true), IsOkAndHolds(HostPort{"127.0.0.1", 0}));
  EXPECT_EQ((HostPort{"::1", 7}).ToString(), "[::1]:7");
  EXPECT_EQ((HostPort{"a.b", 7}).ToString(), "a.b:7");
  for (const char* bad : {"", "host", ":7443", "host:", "host:0", "host:65536", "host:-1", "host: 7", "host:7x",
                          "::1:7443", "[host]:7443", "dns:///x:1", "a b:1", "[]:1", "host:007443"}) {
    EXPECT_THAT(ParseHostPort(bad, false), StatusIs(kInvalid, HasSubstr("allowed: HOST:PORT"))) << bad;
  }
}

TEST(CoordinatorConfigTest, Defaults) {
  absl::StatusOr<CoordinatorConfig> config =
      ParseCoordinatorYaml("advertise: coord.example:7443\n", "/etc/causeway/coordinator.yaml");
  ASSERT_THAT(config, IsOk());
  CoordinatorConfig expected;
  expected.advertise = {"coord.example", 7443};
  expected.dir = "/etc/causeway";
  expected.data_root = "/etc/causeway/data";
  EXPECT_EQ(*config, expected);
  EXPECT_EQ(config->listen.ToString(), "0.0.0.0:7443");
  EXPECT_EQ(config->http_listen.ToString(), "127.0.0.1:7480");
  EXPECT_EQ(config->lease, absl::Seconds(10));
}

TEST(CoordinatorConfigTest, EveryKey) {
  absl::StatusOr<CoordinatorConfig> config = ParseCoordinatorYaml(
      R"(advertise: a:1
listen: "[::]:0"
http: {listen: 0.0.0.0:9}
dir: state
data_root: ../data
log: {level: debug, format: json, file: c.log}
heartbeat: 100ms
lease: 1s
broken_stream_grace: 0s
profile_seconds: 500ms
spool_limit: 1MiB
certificate_lifetime: 24h
)",
      "conf/coordinator.yaml");
  ASSERT_THAT(config, IsOk());
  CoordinatorConfig expected;
  expected.advertise = {"a", 1};
  expected.listen = {"::", 0};
  expected.http_listen = {"0.0.0.0", 9};
  expected.dir = "conf/state";
  expected.data_root = "conf/../data";
  expected.log = {log::Level::kDebug, log::Format::kJson, "conf/c.log"};
  expected.heartbeat = absl::Milliseconds(100);
  expected.lease = absl::Seconds(1);
  expected.broken_stream_grace = absl::ZeroDuration();
  expected.profile = absl::Milliseconds(500);
  expected.spool_limit_bytes = 1 << 20;
  expected.certificate_lifetime = absl::Hours(24);
  EXPECT_EQ(*config, expected);
}

TEST(CoordinatorConfigTest, BadValues) {
  struct Case {
    const char* line;
    const char* message;
  };
  for (const Case& c :
       {Case{"listen: nowhere", "c.yaml:2: listen: found \"nowhere\"; allowed: HOST:PORT"},
        Case{"http: {listen: 1}", "c.yaml:2: http.listen: found \"1\""},
        Case{"log: {level: loud}", "log.level: found \"loud\""},
        Case{"log: {format: xml}", "log.format: found \"xml\""}, Case{"heartbeat: 1", "heartbeat: found \"1\""},
        Case{"lease: 1s", "lease: found 1s; allowed: at least twice the heartbeat (1s)"},
        Case{"spool_limit: 5", "spool_limit: found \"5\""}, Case{"lease: -1s", "lease: found"},
        Case{"dir: [a]", "dir: found a list"}, Case{"profile_seconds: 1h", "profile_seconds: found \"1h\""},
        Case{"certificate_lifetime: 1s", "certificate_lifetime: found \"1s\""},
        Case{"data-root: x", "unknown key; did you mean data_root?"}}) {
    EXPECT_THAT(ParseCoordinatorYaml(std::string("advertise: a:1\n") + c.line + "\n", "c.yaml"),
                StatusIs(kInvalid, HasSubstr(c.message)))
        << c.line;
  }
  EXPECT_THAT(ParseCoordinatorYaml("heartbeat: 1s\n", "c.yaml"), StatusIs(kInvalid, HasSubstr("advertise: missing")));
  EXPECT_THAT(ParseCoordinatorYaml("advertise: \"\"\n", "c.yaml"),
              StatusIs(kInvalid, HasSubstr("c.yaml:1: advertise: found \"\"; allowed: HOST:PORT")));
  EXPECT_THAT(ParseCoordinatorYaml("advertise: [a]\n", "c.yaml"),
              StatusIs(kInvalid, AllOf(HasSubstr("advertise: found a list"), Not(HasSubstr("HOST:PORT")))));
  EXPECT_THAT(ParseCoordinatorYaml("advertise: a:0\n", "c.yaml"),
              StatusIs(kInvalid, HasSubstr("a port from 1 to 65535")));
}

TEST(CoordinatorConfigTest, FormattedReadsBack) {
  CoordinatorConfig config;
  config.advertise = {"::1", 7443};
  config.dir = "/var/lib/causeway dir";
  config.data_root = "/srv/\"data\"";
  config.log = {log::Level::kWarning, log::Format::kJson, "/var/log/c.log"};
  config.heartbeat = absl::Milliseconds(1500);
  config.spool_limit_bytes = 12345678;
  EXPECT_THAT(ParseCoordinatorYaml(FormatCoordinatorYaml(config), "/x/c.yaml"), IsOkAndHolds(config));

  CoordinatorConfig plain;
  plain.advertise = {"a", 1};
  std::string yaml = FormatCoordinatorYaml(plain);
  plain.dir = "/moved";
  plain.data_root = "/moved/data";
  EXPECT_THAT(ParseCoordinatorYaml(yaml, "/moved/c.yaml"), IsOkAndHolds(plain));
}

TEST(WorkerConfigTest, Defaults) {
  absl::StatusOr<WorkerConfig> config = ParseWorkerYaml("coordinator: c:7443\n", "worker.yaml");
  ASSERT_THAT(config, IsOk());
  WorkerConfig expected;
  expected.coordinator = {"c", 7443};
  expected.dir = ".";
  EXPECT_EQ(*config, expected);
  EXPECT_FALSE(config->emulate.any());
}

TEST(WorkerConfigTest, EveryKey) {
  absl::StatusOr<WorkerConfig> config = ParseWorkerYaml(
      R"(coordinator: c:7443
dir: /var/w
http: {listen: 0.0.0.0:7481}
log: {level: error, format: text, file: /l}
cache: {limit: 100MB}
threads: 2
drain_timeout: 45s
device: cpu
emulate: {slowdown: 2.5, down: 1MiB/s, up: 500kB/s}
)",
      "worker.yaml");
  ASSERT_THAT(config, IsOk());
  WorkerConfig expected;
  expected.coordinator = {"c", 7443};
  expected.dir = "/var/w";
  expected.http_listen = {"0.0.0.0", 7481};
  expected.log = {log::Level::kError, log::Format::kText, "/l"};
  expected.cache_limit_bytes = 100000000;
  expected.threads = 2;
  expected.drain_timeout = absl::Seconds(45);
  expected.device = "cpu";
  expected.emulate = {2.5, 1048576, 500000};
  EXPECT_EQ(*config, expected);
  EXPECT_TRUE(config->emulate.any());
}

TEST(WorkerConfigTest, BadValues) {
  struct Case {
    const char* line;
    const char* message;
  };
  for (const Case& c :
       {Case{"emulate: {slowdown: 0.5}", "w.yaml:2: emulate.slowdown: found \"0.5\"; allowed: a number of at least 1"},
        Case{"emulate: {up: 0}", "emulate.up: found \"0\""}, Case{"emulate: {speed: 1}", "emulate.speed: unknown key"},
        Case{"device: tpu", "device: found \"tpu\"; allowed: auto, cpu, cuda"},
        Case{"cache: {limit: 1}", "cache.limit: found \"1\""}, Case{"threads: 1.5", "threads: found \"1.5\""}}) {
    EXPECT_THAT(ParseWorkerYaml(std::string("coordinator: a:1\n") + c.line + "\n", "w.yaml"),
                StatusIs(kInvalid, HasSubstr(c.message)))
        << c.line;
  }
  EXPECT_THAT(ParseWorkerYaml("{}", "w.yaml"), StatusIs(kInvalid, HasSubstr("coordinator: missing")));
}

TEST(WorkerConfigTest, FormattedReadsBack) {
  WorkerConfig config;
  config.coordinator = {"c", 7443};
  config.dir = "/w";
  EXPECT_THAT(ParseWorkerYaml(FormatWorkerYaml(config), "/w/w.yaml"), IsOkAndHolds(config));
  config.device = "cuda";
  config.threads = 7;
  config.drain_timeout = absl::Minutes(2);
  config.emulate = {.slowdown = 3, .down_bytes_per_s = 0, .up_bytes_per_s = 1500000};
  EXPECT_THAT(ParseWorkerYaml(FormatWorkerYaml(config), "/w/w.yaml"), IsOkAndHolds(config));
}

TEST(TlsPathsTest, LieBelowTheFolder) {
  EXPECT_EQ(CoordinatorTlsPaths("/c").ca_key, "/c/tls/ca.key");
  EXPECT_EQ(CoordinatorTlsPaths("/c").certificate, "/c/tls/coordinator.pem");
  EXPECT_EQ(WorkerTlsPaths("/w").key, "/w/tls/worker.key");
  EXPECT_EQ(WorkerTlsPaths("/w").ca_key, "");
}

TEST(LoadConfigTest, ReadsTheFileAndNamesItInErrors) {
  TempDir dir;
  std::string path = JoinPath(dir.path(), "coordinator.yaml");
  EXPECT_THAT(LoadCoordinatorConfig(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr("coordinator.yaml")));
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(path, "advertise: a:1\nbad: 1\n"), IsOk());
  EXPECT_THAT(LoadCoordinatorConfig(path), StatusIs(kInvalid, HasSubstr(path + ":2: bad: unknown key")));
  EXPECT_THAT(LoadWorkerConfig(path), StatusIs(kInvalid, HasSubstr(path + ":1:")));
}

// The message about an unknown key lists the known ones: each is in docs/reference.md.
TEST(ReferenceTest, HasEveryKey) {
  absl::StatusOr<std::string> reference = RealFileSystem()->ReadFile(CAUSEWAY_SOURCE_DIR "/docs/reference.md", 1 << 20);
  ASSERT_THAT(reference, IsOk());
  for (const absl::Status& status :
       {ParseCoordinatorYaml("advertise: a:1\nzzzzzzzzz: 1\nhttp: {zzzzzzzzz: 1}\nlog: {zzzzzzzzz: 1}\n", "f").status(),
        ParseWorkerYaml("coordinator: a:1\nzzzzzzzzz: 1\ncache: {zzzzzzzzz: 1}\nemulate: {zzzzzzzzz: 1}\n", "f")
            .status(),
        ParseJobYaml("zzzzzzzzz: 1\nbatch: {zzzzzzzzz: 1}\noptimizer: {zzzzzzzzz: 1, schedule: {zzzzzzzzz: 1}}\n"
                     "rounds: {zzzzzzzzz: 1}\ncheckpoint: {zzzzzzzzz: 1}\nallocation: {zzzzzzzzz: 1}\n"
                     "site_sync: {zzzzzzzzz: 1}\nmodel: {zzzzzzzzz: 1}\nend: {zzzzzzzzz: 1}\n",
                     "f")
            .status()}) {
    int keys = 0;
    for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
      std::vector<std::string> parts = absl::StrSplit(line, "zzzzzzzzz: unknown key; allowed: ");
      if (parts.size() != 2) continue;
      std::string prefix = parts[0].substr(parts[0].rfind(' ') + 1);  // "optimizer.schedule."
      for (absl::string_view key : absl::StrSplit(parts[1], ", ")) {
        ++keys;
        std::string name = absl::StrCat("`", prefix, key);
        EXPECT_TRUE(absl::StrContains(*reference, name + "`") || absl::StrContains(*reference, name + ".")) << name;
      }
    }
    EXPECT_GT(keys, 10);
  }
}

}  // namespace
}  // namespace causeway::jobspec
