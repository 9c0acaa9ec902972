#include "cli/gantt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace causeway::cli {
namespace {

TEST(GanttTest, BarsLieWhereTheirTimesSay) {
  const std::vector<GanttRow> rows = {{"compute", {{0, 2, "forward", '>'}, {2, 4, "2", '-'}, {4, 8, "1", '-'}}},
                                      {"link", {{4, 6, "2", '='}, {8, 9, "1", '#'}, {9, 10, "", '#'}}}};
  EXPECT_EQ(RenderGantt(rows, 10, 50),
            "compute |forward>2-------1---------------        |\n"
            "link    |                2=======        1#######|\n");
}

TEST(GanttTest, ALabelThatDoesNotFitIsLeftOut) {
  EXPECT_EQ(RenderGantt({{"r", {{0, 1, "12", '='}, {1, 2, "11", '='}, {2, 5, "10", '='}}}}, 10, 24),
            "r |====10====          |\n");
  // 20 places are 10 s, so that half a second is one place.
  EXPECT_EQ(RenderGantt({{"r", {{0, 0.5, "1", '='}, {0.5, 2, "2", '='}}}}, 10, 0), "r |=2==                |\n");
}

TEST(GanttTest, ShortBarsFillWhatIsEmpty) {
  EXPECT_EQ(RenderGantt({{"r", {{0, 5, "a", '='}, {5, 5.01, "b", '#'}, {9.99, 10, "c", '#'}}}}, 10, 24),
            "r |a=========#        #|\n");
  EXPECT_EQ(RenderGantt({{"r", {{0, 10, "a", '='}, {3, 3.01, "b", '#'}}}}, 10, 24), "r |a===================|\n");
}

TEST(GanttTest, NothingToShow) {
  EXPECT_EQ(RenderGantt({{"r", {{0, 0, "a", '='}}}}, 0, 24), "r |                    |\n");
  EXPECT_EQ(RenderGantt({}, 10, 80), "");
}

TEST(GanttTest, StaysWithinTheColumns) {
  for (int columns : {1, 30, 80, 132, 1000}) {
    const std::string line = RenderGantt({{"name", {{-1, 20, "a", '='}}}}, 10, columns);
    EXPECT_EQ(line.size(), static_cast<size_t>(columns == 1      ? 4 + 3 + 20
                                               : columns == 1000 ? 4 + 3 + 200
                                                                 : columns) +
                               1);
  }
}

}  // namespace
}  // namespace causeway::cli
