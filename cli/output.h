#ifndef CAUSEWAY_CLI_OUTPUT_H_
#define CAUSEWAY_CLI_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "proto/operator.pb.h"

namespace causeway::cli {

// Fields keep their order.
using Json = nlohmann::ordered_json;

// A message as the command line shows it: proto field names, whole numbers as numbers, enums without their prefix ("TRAINING"), absent
// messages as null, numbers that are not finite as null, and everything else present, defaults too.
Json ToJson(const google::protobuf::Message& message);

// {"schema": schema, ...fields of `body`}, indented, with a newline at the end.
std::string JsonDocument(absl::string_view schema, const Json& body);

// Columns for people, two spaces apart, as wide as their contents. Columns that hold only numbers are flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // As many cells as the header has. An empty cell is shown as "-".
  void AddRow(std::vector<std::string> cells);
  std::string ToString() const;  // Every line ends with a newline.

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string HumanBytes(double bytes);               // "1.5 MiB"
std::string HumanRate(double bytes_per_s);          // "1.5 MiB/s"; "-" when 0
std::string HumanSeconds(double seconds);           // "0.12s", "4.1s", "2m05s", "3h07m"
std::string HumanTime(int64_t unix_ms);             // "2026-11-30 10:00:00" in UTC; "-" when 0
std::string HumanNumber(double value, int digits);  // fixed point
// "slowdown 4, down 1.0 MiB/s"; empty: not emulated.
std::string HumanEmulation(const v1::Emulation& emulation);
std::string StateName(v1::JobState state);     // "TRAINING"
std::string PhaseName(v1::WorkerPhase phase);  // "training"

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_OUTPUT_H_
