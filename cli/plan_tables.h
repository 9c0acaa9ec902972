#ifndef CAUSEWAY_CLI_PLAN_TABLES_H_
#define CAUSEWAY_CLI_PLAN_TABLES_H_

#include <string>

#include "cli/plan_result.h"

namespace causeway::cli {

// Seconds with a unit that suits them: "12.3us", "4.56ms", "1.234s", "2m05s".
std::string FineSeconds(double seconds);

// A plan for people: tables, and a Gantt of one period, `columns` wide.
std::string PlanText(const PlanResult& plan, int columns);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_PLAN_TABLES_H_
