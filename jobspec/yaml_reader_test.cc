#include "jobspec/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/random.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::unique_ptr<YamlDocument> MustParse(absl::string_view text) {
  absl::StatusOr<std::unique_ptr<YamlDocument>> document = YamlDocument::Parse(text, "f.yaml");
  EXPECT_THAT(document, IsOk());
  return document.ok() ? *std::move(document) : nullptr;
}

TEST(YamlReaderTest, ReadsEveryType) {
  auto document = MustParse(
      "text: hello\nnumber: 7\nreal: 2.5e-1\nwait: 1h30m\nsize: 8GiB\nrate: 1MiB/s\nwords: [a, b]\nreals: [1, 0.5]\n"
      "map: {inner: \"quoted: text\"}\nlist:\n- {n: 1}\n- n: 2\n");
  YamlMap root = document->root();
  EXPECT_EQ(root.String("text"), "hello");
  EXPECT_EQ(root.Int("number", std::nullopt, 0, 10), 7);
  EXPECT_EQ(root.Double("real", std::nullopt, {}), 0.25);
  EXPECT_EQ(root.Duration("wait", std::nullopt, absl::ZeroDuration(), absl::Hours(2)), absl::Minutes(90));
  EXPECT_EQ(root.Bytes("size", std::nullopt, 0), int64_t{8} << 30);
  EXPECT_EQ(root.BytesPerSecond("rate", std::nullopt), 1048576.0);
  EXPECT_THAT(root.Strings("words"), ElementsAre("a", "b"));
  EXPECT_THAT(root.Doubles("reals", {}), ElementsAre(1, 0.5));
  EXPECT_EQ(root.Map("map").String("inner"), "quoted: text");
  std::vector<YamlMap> list = root.Maps("list");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].Int("n", std::nullopt, 0, 10), 1);
  EXPECT_EQ(list[1].Int("n", std::nullopt, 0, 10), 2);
  EXPECT_THAT(document->Finish(), IsOk());
}

TEST(YamlReaderTest, AbsentKeysGiveTheirFallback) {
  auto document = MustParse("{}");
  YamlMap root = document->root();
  EXPECT_EQ(root.String("text", "x"), "x");
  EXPECT_EQ(root.Choice("choice", "b", {"a", "b"}), "b");
  EXPECT_EQ(root.Int("number", 3, 0, 10), 3);
  EXPECT_EQ(root.Map("map").Double("real", 1.5, {}), 1.5);
  EXPECT_FALSE(root.Map("map").present());
  EXPECT_THAT(root.Strings("words"), IsEmpty());
  EXPECT_THAT(root.Maps("maps"), IsEmpty());
  EXPECT_THAT(document->Finish(), IsOk());
}

TEST(YamlReaderTest, ErrorsCarryFileLineFieldFoundAndAllowed) {
  auto document = MustParse("a:\n  b: lots\n");
  document->root().Map("a").Int("b", std::nullopt, 1, 9);
  EXPECT_THAT(document->Finish(),
              StatusIs(kInvalid, "f.yaml:2: a.b: found \"lots\"; allowed: a whole number from 1 to 9"));
}

TEST(YamlReaderTest, AllErrorsAreCollectedInOrderOfLines) {
  auto document = MustParse("first: x\nsecond: [1]\nthird: 5\n");
  YamlMap root = document->root();
  root.Int("third", std::nullopt, 6, 9);
  root.String("second");
  root.Double("first", std::nullopt, {});
  root.RequiredMap("gone").String("inner");
  EXPECT_THAT(document->Finish(), StatusIs(kInvalid,
                                           "f.yaml:1: first: found \"x\"; allowed: a number\n"
                                           "f.yaml:1: gone: missing; allowed: a map of keys and values\n"
                                           "f.yaml:2: second: found a list; allowed: a text\n"
                                           "f.yaml:3: third: found \"5\"; allowed: a whole number from 6 to 9"));
}

TEST(YamlReaderTest, OnlyTheFirstTwentyErrorsAreShown) {
  std::string text;
  for (int i = 0; i < 25; ++i) text += "key" + std::to_string(i) + ": 1\n";
  auto document = MustParse(text);
  document->root();
  absl::Status status = document->Finish();
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("f.yaml:20:")));
  EXPECT_THAT(status, StatusIs(kInvalid, testing::Not(HasSubstr("f.yaml:21:"))));
  EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("and 5 errors more")));
}

TEST(YamlReaderTest, UnknownKeysProposeTheNearestKnownOne) {
  auto document = MustParse("a: {learning_rat: 1, zzzzzz: 2}\n");
  YamlMap a = document->root().Map("a");
  a.Double("learning_rate", 1, {});
  a.Double("momentum", 1, {});
  EXPECT_THAT(document->Finish(),
              StatusIs(kInvalid,
                       "f.yaml:1: a.learning_rat: unknown key; did you mean learning_rate?; allowed: learning_rate, "
                       "momentum\nf.yaml:1: a.zzzzzz: unknown key; allowed: learning_rate, momentum"));
}

TEST(YamlReaderTest, UnknownKeysInsideListsAreFound) {
  auto document = MustParse("list: [{n: 1}, {m: 1}]\n");
  for (YamlMap map : document->root().Maps("list")) map.Int("n", 0, 0, 9);
  EXPECT_THAT(document->Finish(), StatusIs(kInvalid, HasSubstr("list[1].m: unknown key")));
}

TEST(YamlReaderTest, WrongTypes) {
  struct Case {
    const char* yaml;
    const char* found;
  };
  for (const Case& c :
       {Case{"v: '5'", "found the text \"5\""}, Case{"v: [5]", "found a list"}, Case{"v: {a: 5}", "found a map"},
        Case{"v:", "found nothing"}, Case{"v: null", "found nothing"}, Case{"v: 5.5", "found \"5.5\""},
        Case{"v: true", "found \"true\""}, Case{"v: 99999999999999999999", "found \"9999"},
        Case{"v: 11", "found \"11\""}, Case{"v: -1", "found \"-1\""}}) {
    auto document = MustParse(c.yaml);
    document->root().Int("v", 1, 0, 10);
    EXPECT_THAT(document->Finish(), StatusIs(kInvalid, HasSubstr(c.found))) << c.yaml;
  }
  for (const char* yaml : {"v: nan", "v: .nan", "v: inf", "v: .inf", "v: '1'", "v: 0", "v: 2", "v: 1e999"}) {
    auto document = MustParse(yaml);
    document->root().Double("v", 1, {.min = 0, .max = 1, .min_excluded = true});
    EXPECT_THAT(document->Finish(), StatusIs(kInvalid, HasSubstr("allowed: a number above 0 and at most 1"))) << yaml;
  }
  auto document = MustParse("text: null\nwords: a\nreals: [x]\nmaps: [a]\nmap: a\n");
  YamlMap root = document->root();
  root.String("text", "");
  root.Strings("words");
  root.Doubles("reals", {});
  root.Maps("maps");
  root.Map("map").String("inner");  // Not missed on top of the wrong type.
  absl::Status status = document->Finish();
  for (const char* message : {"f.yaml:1: text: found nothing", "f.yaml:2: words: found \"a\"; allowed: a list of texts",
                              "f.yaml:3: reals: found \"x\"; allowed: a number in each place",
                              "f.yaml:4: maps: found \"a\"", "f.yaml:5: map: found \"a\"; allowed: a map"}) {
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(message)));
  }
  EXPECT_THAT(status, StatusIs(kInvalid, testing::Not(HasSubstr("inner"))));
}

TEST(YamlReaderTest, ChoicesNotSupportedYetAreSaidToBeSo) {
  auto document = MustParse("a: adam\nb: adagrad\n");
  YamlMap root = document->root();
  root.Choice("a", "sgd", {"sgd"}, {"adam"});
  root.Choice("b", "sgd", {"sgd"}, {"adam"});
  EXPECT_THAT(document->Finish(), StatusIs(kInvalid,
                                           "f.yaml:1: a: found adam, which is not supported yet; allowed: sgd\n"
                                           "f.yaml:2: b: found \"adagrad\"; allowed: sgd"));
}

TEST(YamlReaderTest, UnsupportedKeysMayOnlyHaveTheirDefault) {
  for (const char* yaml : {"k: 1", "k: 1.0", "k: 1e0", "{}"}) {
    auto document = MustParse(yaml);
    document->root().Unsupported("k", "1");
    EXPECT_THAT(document->Finish(), IsOk()) << yaml;
  }
  for (const char* yaml : {"k: 600s", "k: 10m"}) {
    auto document = MustParse(yaml);
    document->root().Unsupported("k", "10m");
    EXPECT_THAT(document->Finish(), IsOk()) << yaml;
  }
  for (const char* yaml : {"k: null", "k: ~", "k:"}) {
    auto document = MustParse(yaml);
    document->root().Unsupported("k", "null");
    EXPECT_THAT(document->Finish(), IsOk()) << yaml;
  }
  for (const char* yaml : {"k: 2", "k: [1]", "k: null", "k: {}"}) {
    auto document = MustParse(yaml);
    document->root().Unsupported("k", "1");
    EXPECT_THAT(document->Finish(), StatusIs(kInvalid, HasSubstr("only 1 (k is not supported yet)"))) << yaml;
  }
}

TEST(YamlReaderTest, WhatIsNotPlainYamlIsRefused) {
  struct Case {
    std::string yaml;
    const char* message;
  };
  std::string deep = "a: " + std::string(40, '[') + std::string(40, ']');
  for (const Case& c : {
           Case{"", "found nothing; allowed: a map"},
           Case{"# only a comment\n", "found nothing; allowed: a map"},
           Case{"just words", "found a single value"},
           Case{"- 1\n", "found a list; allowed: a map"},
           Case{"a: 1\nb: 2\na: 3\n", "f.yaml:3: found the key \"a\" again; it was set in line 1"},
           Case{"a: &x 1\nb: *x\n", "f.yaml:1: found the anchor \"&x\""},
           Case{"a: !!int 1\n", "found the tag"},
           Case{"a: 1\n---\nb: 2\n", "found a second document"},
           Case{"? [a]\n: 1\n", "found a list or a map as a key"},
           Case{"a: [1, 2\n", "not valid YAML"},
           Case{"a: 1\n b: 2\n", "f.yaml:2: not valid YAML"},
           Case{"a:\n\t- 1\n", "not valid YAML"},
           Case{"a: *nowhere\n", "not valid YAML"},
           Case{deep, "found more than 32 levels"},
           Case{std::string(YamlDocument::kMaxBytes + 1, ' '), "allowed: at most 1048576"},
       }) {
    EXPECT_THAT(YamlDocument::Parse(c.yaml, "f.yaml"), StatusIs(kInvalid, HasSubstr(c.message)))
        << c.yaml.substr(0, 60);
  }
}

// "Billion laughs" stops at its first anchor.
TEST(YamlReaderTest, AliasBombIsRefused) {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'k'; ++c) {
    std::string previous(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [*" + previous + ", *" + previous + ", *" + previous + "]\n";
  }
  EXPECT_THAT(YamlDocument::Parse(bomb, "f.yaml"),
              StatusIs(kInvalid, HasSubstr("anchors and aliases are not allowed")));
}

TEST(YamlReaderTest, ManyValuesAreRefused) {
  std::string text = "a: [";
  for (int i = 0; i < 200000; ++i) text += "1,";
  EXPECT_THAT(YamlDocument::Parse(text + "1]", "f.yaml"), StatusIs(kInvalid, HasSubstr("more than 100000 values")));
  text.clear();
  for (int i = 0; i < 2000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(YamlDocument::Parse(text, "f.yaml"), StatusIs(kInvalid, HasSubstr("more than 1000 keys")));
}

// Whatever the bytes, Parse answers.
TEST(YamlReaderTest, GarbageNeverCrashes) {
  Random random(7);
  constexpr char kAlphabet[] = "{}[]:,-?&*!|>'\"%@`# \n\tab01\\~\xff\xc3\xa9\x00";
  const std::string seed_text = "name: x\nlist: [1, 2, {a: b}]\nmap: {k: 'v', w: \"z\"}\ntext: |\n  lines\n  more\n";
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    if (i % 2 == 0) {
      for (uint64_t n = random.Below(60); n > 0; --n) text += kAlphabet[random.Below(sizeof(kAlphabet))];
    } else {
      text = seed_text;
      for (int n = 0; n < 4; ++n) text[random.Below(text.size())] = kAlphabet[random.Below(sizeof(kAlphabet))];
    }
    absl::StatusOr<std::unique_ptr<YamlDocument>> document = YamlDocument::Parse(text, "f.yaml");
    if (!document.ok()) continue;
    YamlMap root = (*document)->root();
    root.String("name", "");
    root.Maps("list");
    root.Map("map").Int("k", 0, 0, 1);
    (*document)->Finish().IgnoreError();
  }
}

TEST(YamlReaderTest, NestingThatTheParserWouldRecurseInto) {
  for (const char* part : {"[", "{", "- ", "? ", "{a: ", "[["}) {
    std::string text = "a: ";
    if (part[0] == '-' || part[0] == '?') text = "";
    for (int i = 0; i < 20000; ++i) text += part;
    EXPECT_THAT(YamlDocument::Parse(text, "f.yaml"), StatusIs(kInvalid, HasSubstr("f.yaml:"))) << part;
  }
}

TEST(YamlReaderTest, LimitsOfTheReader) {
  const YamlLimits limits = {.max_bytes = 1000, .max_values = 12};
  EXPECT_THAT(YamlDocument::Parse("a: [{b: 1}, {b: 2}]", "f.yaml", limits), IsOk());
  EXPECT_THAT(YamlDocument::Parse(std::string(1001, ' '), "f.yaml", limits),
              StatusIs(kInvalid, HasSubstr("allowed: at most 1000")));
  // What is being read is named, the place in a list included, and the rest of the file is not looked at.
  EXPECT_THAT(YamlDocument::Parse("a:\n  x: [{b: 1}, {b: 2}, {b: 3}]\nb: [", "f.yaml", limits),
              StatusIs(kInvalid, "f.yaml:2: a.x[2]: found more than 12 values in the file"));
  EXPECT_THAT(YamlDocument::Parse("a: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "f.yaml", limits),
              StatusIs(kInvalid, HasSubstr("a[9]: found more than 12 values")));
}

TEST(YamlReaderTest, NumbersThatMayBeAbsent) {
  auto document = MustParse("a: null\nb: 0.5\nc: 7\nd: -1\ne: true\nf: yes\ng: \"true\"\n");
  YamlMap root = document->root();
  EXPECT_EQ(root.OptionalDouble("a", {}), std::nullopt);
  EXPECT_EQ(root.OptionalDouble("absent", {}), std::nullopt);
  EXPECT_EQ(root.OptionalDouble("b", {}), 0.5);
  EXPECT_EQ(root.OptionalInt("a", 0, 9), std::nullopt);
  EXPECT_EQ(root.OptionalInt("c", 0, 9), 7);
  root.OptionalInt("d", 0, 9);
  EXPECT_TRUE(root.Bool("e", false));
  EXPECT_TRUE(root.Bool("absent", true));
  root.Bool("f", false);
  root.Bool("g", false);
  EXPECT_THAT(document->Finish(),
              StatusIs(kInvalid, AllOf(HasSubstr("d: found \"-1\"; allowed: a whole number from 0 to 9"),
                                       HasSubstr("f: found \"yes\"; allowed: true, false"),
                                       HasSubstr("g: found the text \"true\""))));
}

TEST(YamlReaderTest, ReadsJson) {
  auto document = MustParse("{\"a\":{\"b\":[1,2.5],\"c\":\"x\\u0041\"},\n \"d\":null}");
  YamlMap root = document->root();
  EXPECT_THAT(root.Map("a").Doubles("b", {}), ElementsAre(1, 2.5));
  EXPECT_EQ(root.Map("a").String("c"), "xA");
  root.Ignore("d");
  EXPECT_THAT(document->Finish(), IsOk());
}

TEST(UnitsTest, Durations) {
  EXPECT_THAT(ParseDuration("250ms"), IsOkAndHolds(absl::Milliseconds(250)));
  EXPECT_THAT(ParseDuration("1.5h"), IsOkAndHolds(absl::Minutes(90)));
  for (const char* bad : {"", "10", "-1s", "inf", "1 s", "ten", "1d"}) {
    EXPECT_THAT(ParseDuration(bad), StatusIs(kInvalid, HasSubstr("allowed: a duration such as"))) << bad;
  }
}

TEST(UnitsTest, Bytes) {
  EXPECT_THAT(ParseBytes("785"), IsOkAndHolds(785));
  EXPECT_THAT(ParseBytes("0"), IsOkAndHolds(0));
  EXPECT_THAT(ParseBytes("10MB"), IsOkAndHolds(10000000));
  EXPECT_THAT(ParseBytes("1.5kB"), IsOkAndHolds(1500));
  EXPECT_THAT(ParseBytes("2 MiB"), IsOkAndHolds(2 << 20));
  EXPECT_THAT(ParseBytes("7B"), IsOkAndHolds(7));
  EXPECT_THAT(ParseBytes("9007199254740993"), IsOkAndHolds(9007199254740993));  // 2^53 + 1: not through a double.
  for (const char* bad : {"", "B", "-1", "1Mbit", "10 apples", "9e18KiB", "nan", "1e400"}) {
    EXPECT_THAT(ParseBytes(bad), StatusIs(kInvalid, HasSubstr("allowed: bytes such as"))) << bad;
  }
}

TEST(UnitsTest, BytesPerSecond) {
  EXPECT_THAT(ParseBytesPerSecond("1MiB/s"), IsOkAndHolds(1048576.0));
  EXPECT_THAT(ParseBytesPerSecond("10MB"), IsOkAndHolds(1e7));
  EXPECT_THAT(ParseBytesPerSecond("125000"), IsOkAndHolds(125000.0));
  EXPECT_THAT(ParseBytesPerSecond("1MiB/h"), StatusIs(kInvalid, HasSubstr("allowed: bytes per second")));
  auto document = MustParse("r: 0\n");
  document->root().BytesPerSecond("r", std::nullopt);
  EXPECT_THAT(document->Finish(), StatusIs(kInvalid, HasSubstr("found \"0\"; allowed: bytes per second")));
}

TEST(UnitsTest, FormattedBytesReadBack) {
  EXPECT_EQ(FormatBytes(int64_t{8} << 30), "8GiB");
  for (int64_t bytes :
       {int64_t{0}, int64_t{1500}, int64_t{1024}, int64_t{3} << 20, (int64_t{1} << 40) + 1, int64_t{1} << 50}) {
    EXPECT_THAT(ParseBytes(FormatBytes(bytes)), IsOkAndHolds(bytes));
  }
}

}  // namespace
}  // namespace causeway::jobspec
