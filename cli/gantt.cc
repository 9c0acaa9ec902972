#include "cli/gantt.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace causeway::cli {
namespace {

constexpr int kMinChart = 20;
constexpr int kMaxChart = 200;

void Draw(const GanttBar& bar, double end_s, std::string* line) {
  if (!(end_s > 0) || !(bar.end_s > bar.begin_s)) return;
  const auto width = static_cast<double>(line->size());
  const auto place = [&](double at_s) {
    return static_cast<size_t>(std::lround(std::clamp(at_s / end_s, 0.0, 1.0) * width));
  };
  const size_t begin = place(bar.begin_s);
  const size_t end = place(bar.end_s);
  if (begin == end) {
    const size_t at = std::min(begin, line->size() - 1);
    if ((*line)[at] == ' ') (*line)[at] = bar.fill;
    return;
  }
  std::fill(line->begin() + begin, line->begin() + end, bar.fill);
  // One place more than the label, so that two labels do not run together.
  if (bar.label.size() < end - begin) line->replace(begin, bar.label.size(), bar.label);
}

}  // namespace

std::string RenderGantt(const std::vector<GanttRow>& rows, double end_s, int columns) {
  size_t names = 0;
  for (const GanttRow& row : rows) names = std::max(names, row.name.size());
  const int chart = std::clamp(columns - static_cast<int>(names) - 3, kMinChart, kMaxChart);
  std::string text;
  for (const GanttRow& row : rows) {
    std::string line(static_cast<size_t>(chart), ' ');
    for (const GanttBar& bar : row.bars) Draw(bar, end_s, &line);
    absl::StrAppend(&text, row.name, std::string(names - row.name.size(), ' '), " |", line, "|\n");
  }
  return text;
}

}  // namespace causeway::cli
