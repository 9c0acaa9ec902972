#ifndef CAUSEWAY_CLI_GANTT_H_
#define CAUSEWAY_CLI_GANTT_H_

#include <string>
#include <vector>

namespace causeway::cli {

// What goes on from `begin_s` to `end_s`, which lie in the chart's time. The label is shown where there is room for it.
struct GanttBar {
  double begin_s = 0;
  double end_s = 0;
  std::string label;  // ASCII
  char fill = '=';
};

struct GanttRow {
  std::string name;
  std::vector<GanttBar> bars;  // In order of time, none over another.
};

// One line per row, `columns` wide at most (but no less than what the names and a chart of some size need), every line
// ending with a newline. All rows have the same axis, from 0 to `end_s`. A bar that is too short for a place of its own is
// drawn only where nothing else is.
std::string RenderGantt(const std::vector<GanttRow>& rows, double end_s, int columns);

}  // namespace causeway::cli

#endif  // CAUSEWAY_CLI_GANTT_H_
