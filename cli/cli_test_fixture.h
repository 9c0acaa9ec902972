#ifndef CAUSEWAY_CLI_CLI_TEST_FIXTURE_H_
#define CAUSEWAY_CLI_CLI_TEST_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/app.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_operator_client.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::cli {

// Runs whole commands, from the arguments to the exit code, against a fake coordinator.
class CliTest : public testing::Test {
 protected:
  // Sleeping takes no time but the clock's.
  class SkippingClock : public FakeClock {
   public:
    void SleepFor(absl::Duration duration) override { Advance(duration); }
  };

  CliTest() {
    environment_.in = &in_;
    environment_.out = &out_;
    environment_.err = &err_;
    environment_.clock = &clock_;
    environment_.files = RealFileSystem();
    environment_.config_home = dir_.Join("config");
    environment_.connect = [this](const Context& context) -> absl::StatusOr<std::unique_ptr<OperatorClient>> {
      connected_to_ = context.coordinator.ToString();
      return std::make_unique<FakeOperatorClient>(&coordinator_);
    };
    Write("config/context.yaml", "coordinator: coord.example:7443\noperator: admin\n");
  }

  // Writes a file below dir_ and returns its path.
  std::string Write(const std::string& name, absl::string_view content) {
    std::string path = dir_.Join(name);
    EXPECT_TRUE(RealFileSystem()->MakeDirs(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(RealFileSystem()->WriteFileAtomically(path, content).ok());
    return path;
  }

  int Run(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    return RunCli(arguments, environment_);
  }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }
  Json OutJson() const { return Json::parse(out_.str(), nullptr, /*allow_exceptions=*/false); }

  TempDir dir_;
  SkippingClock clock_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Environment environment_;
  std::string connected_to_;
  FakeCoordinator coordinator_;
};

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_CLI_TEST_FIXTURE_H_
