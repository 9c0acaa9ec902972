#include "base/metrics.h"

#include <civetweb.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/fakes/status_matchers.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(MetricRegistry, ExposesEveryKindWithHelpAndLabels) {
  auto registry = MetricRegistry::Create();
  registry->GetCounter("causeway_rounds_total", "Rounds committed.", {{"job", "fashion"}})->Increment();
  registry->GetCounter("causeway_rounds_total", "Rounds committed.", {{"job", "fashion"}})->Increment(2);
  registry->GetGauge("causeway_workers", "Workers.")->Set(4);
  Histogram* histogram = registry->GetHistogram("causeway_round_seconds", "Time.", {0.5, 2});
  histogram->Observe(0.1);
  histogram->Observe(1);
  histogram->Observe(9);
  EXPECT_THAT(
      registry->Expose(),
      AllOf(HasSubstr("# HELP causeway_rounds_total Rounds committed.\n# TYPE causeway_rounds_total counter\n"
                      "causeway_rounds_total{job=\"fashion\"} 3\n"),
            HasSubstr("# TYPE causeway_workers gauge\ncauseway_workers 4\n"),
            HasSubstr("causeway_round_seconds_count 3\n"), HasSubstr("causeway_round_seconds_bucket{le=\"0.5\"} 1\n"),
            HasSubstr("causeway_round_seconds_bucket{le=\"2\"} 2\n"),
            HasSubstr("causeway_round_seconds_bucket{le=\"+Inf\"} 3\n")));
}

TEST(MetricRegistry, TheSameNameAndLabelsGiveTheSameHandle) {
  auto registry = MetricRegistry::Create();
  EXPECT_EQ(registry->GetGauge("g", "h", {{"a", "1"}, {"b", "2"}}),
            registry->GetGauge("g", "h", {{"b", "2"}, {"a", "1"}}));
  EXPECT_NE(registry->GetGauge("g", "h", {{"a", "1"}}), registry->GetGauge("g", "h", {{"a", "2"}}));
}

TEST(MetricRegistry, LabelValuesAreEscaped) {
  auto registry = MetricRegistry::Create();
  registry->GetGauge("g", "h", {{"a", "x\"y\nz"}})->Set(1);
  EXPECT_THAT(registry->Expose(), HasSubstr("g{a=\"x\\\"y\\nz\"} 1\n"));
}

TEST(MetricRegistry, RemoveWhereDropsTheSeriesOfAllKinds) {
  auto registry = MetricRegistry::Create();
  for (const char* job : {"old", "new"}) {
    registry->GetCounter("c", "h", {{"job", job}, {"worker", "w"}})->Increment();
    registry->GetGauge("g", "h", {{"job", job}})->Set(1);
    registry->GetHistogram("h", "h", {1}, {{"job", job}})->Observe(1);
  }
  registry->GetGauge("plain", "h")->Set(1);
  registry->RemoveWhere("job", "old");
  registry->RemoveWhere("worker", "old");
  EXPECT_THAT(registry->Expose(), AllOf(Not(HasSubstr("old")), HasSubstr("c{job=\"new\""), HasSubstr("g{job=\"new\""),
                                        HasSubstr("h_count{job=\"new\""), HasSubstr("plain 1")));
  // A job of the same name begins again from zero.
  registry->GetCounter("c", "h", {{"job", "old"}, {"worker", "w"}})->Increment(5);
  EXPECT_THAT(registry->Expose(), HasSubstr("c{job=\"old\",worker=\"w\"} 5\n"));
}

TEST(MetricRegistry, CollectorsRunBeforeEachExposition) {
  auto registry = MetricRegistry::Create();
  int scrapes = 0;
  registry->AddCollector([&] { registry->GetGauge("age", "h")->Set(++scrapes); });
  EXPECT_THAT(registry->Expose(), HasSubstr("age 1\n"));
  EXPECT_THAT(registry->Expose(), HasSubstr("age 2\n"));
}

TEST(MetricRegistry, ThreadsMayShareIt) {
  auto registry = MetricRegistry::Create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        registry->GetCounter("c", "h")->Increment();
        registry->GetGauge("g", "h", {{"t", absl::StrCat(t)}})->Set(i);
        if (i % 25 == 0) registry->RemoveWhere("t", absl::StrCat(t));
        if (i % 25 == 0) registry->Expose();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(registry->Expose(), HasSubstr("c 400\n"));
}

TEST(MetricRegistryDeathTest, ANameHasOneMeaning) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto registry = MetricRegistry::Create();
  registry->GetCounter("c", "h");
  registry->GetHistogram("hist", "h", {1, 2});
  EXPECT_DEATH(registry->GetCounter("c", "other help"), "check_failed.*help");
  EXPECT_DEATH(registry->GetGauge("c", "h"), "check_failed");
  EXPECT_DEATH(registry->GetHistogram("hist", "h", {1, 3}), "check_failed.*bounds");
  EXPECT_DEATH(registry->GetHistogram("hist2", "h", {2, 1}), "check_failed.*is_sorted");
  EXPECT_DEATH(registry->GetGauge("not a name", "h"), "check_failed.*CheckMetricName");
  EXPECT_DEATH(registry->GetGauge("g", "h", {{"not a label", "x"}}), "check_failed.*CheckLabelName");
}

struct Answer {
  int code = 0;
  std::string content_type;
  std::string body;
};

Answer Fetch(int port, const std::string& path, const std::string& method = "GET") {
  char error[256] = "";
  mg_connection* connection = mg_download("127.0.0.1", port, 0, error, sizeof(error),
                                          "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method.c_str(), path.c_str());
  if (connection == nullptr) return {0, "", error};
  const mg_response_info* response = mg_get_response_info(connection);
  Answer answer{response->status_code};
  for (int i = 0; i < response->num_headers; ++i) {
    if (absl::string_view(response->http_headers[i].name) == "Content-Type")
      answer.content_type = response->http_headers[i].value;
  }
  char buffer[4096];
  for (int got; (got = mg_read(connection, buffer, sizeof(buffer))) > 0;) answer.body.append(buffer, got);
  mg_close_connection(connection);
  return answer;
}

class HttpServerTest : public testing::Test {
 protected:
  void Serve(std::vector<HttpServer::Options::Page> pages = {}) {
    absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Create({
        .registry = registry_.get(),
        .ready = [this] { return ready_ ? absl::OkStatus() : absl::UnavailableError("journal not replayed"); },
        .pages = std::move(pages),
    });
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    ASSERT_GT(server_->port(), 0);
  }

  std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  std::atomic<bool> ready_ = true;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesMetrics) {
  registry_->GetGauge("causeway_workers", "Workers.")->Set(4);
  Serve();
  Answer answer = Fetch(server_->port(), "/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(answer.body, registry_->Expose());
  EXPECT_THAT(answer.body, HasSubstr("causeway_workers 4\n"));
}

TEST_F(HttpServerTest, ServesPagesLargerThanABuffer) {
  for (int i = 0; i < 5000; ++i) registry_->GetGauge("g", "h", {{"i", absl::StrCat(i)}})->Set(i);
  Serve();
  EXPECT_EQ(Fetch(server_->port(), "/metrics").body, registry_->Expose());
}

TEST_F(HttpServerTest, HealthAndReadiness) {
  Serve();
  EXPECT_EQ(Fetch(server_->port(), "/healthz").code, 200);
  EXPECT_EQ(Fetch(server_->port(), "/readyz").code, 200);
  ready_ = false;
  Answer not_ready = Fetch(server_->port(), "/readyz");
  EXPECT_EQ(not_ready.code, 503);
  EXPECT_EQ(not_ready.body, "journal not replayed\n");
  EXPECT_EQ(Fetch(server_->port(), "/healthz").code, 200);
}

TEST_F(HttpServerTest, ServesExtraPagesAndNothingElse) {
  Serve({{"/status", "text/html; charset=utf-8", [] { return "<p>50% fine</p>"; }}});
  Answer page = Fetch(server_->port(), "/status");
  EXPECT_EQ(page.code, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.body, "<p>50% fine</p>");
  EXPECT_EQ(Fetch(server_->port(), "/status?refresh=1").code, 200);
  for (const char* path : {"/", "/status/x", "/metricsx", "/../etc/passwd", "/etc/passwd"}) {
    EXPECT_EQ(Fetch(server_->port(), path).code, 404) << path;
  }
  EXPECT_EQ(Fetch(server_->port(), "/status", "POST").code, 405);
  Answer head = Fetch(server_->port(), "/status", "HEAD");
  EXPECT_EQ(head.code, 200);
  EXPECT_EQ(head.body, "");
}

// Who sends half a request and waits holds nobody else up, nor the end.
TEST_F(HttpServerTest, HalfOpenRequestsDelayNobody) {
  Serve();
  std::vector<mg_connection*> half_open;
  for (int i = 0; i < 24; ++i) {
    char error[256] = "";
    mg_connection* connection = mg_connect_client("127.0.0.1", server_->port(), 0, error, sizeof(error));
    ASSERT_NE(connection, nullptr) << error;
    mg_printf(connection, "GET /healthz HTTP/1.1\r\nHost: lo");
    half_open.push_back(connection);
  }
  const absl::Time begin = RealClock()->Now();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Fetch(server_->port(), "/healthz").code, 200);
  server_->Stop();
  EXPECT_LT(RealClock()->Now() - begin, absl::Seconds(5));
  for (mg_connection* connection : half_open) mg_close_connection(connection);
}

TEST_F(HttpServerTest, APortInUseIsUnavailable) {
  Serve();
  const std::string address = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_THAT(HttpServer::Create({.port = server_->port(), .registry = registry_.get()}),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr(address), HasSubstr("in use"))));
}

TEST_F(HttpServerTest, RefusesWhatIsNoAddress) {
  EXPECT_THAT(HttpServer::Create({.bind_address = "local host", .registry = registry_.get()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("local host")));
  EXPECT_THAT(HttpServer::Create({.port = 65536, .registry = registry_.get()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65536")));
}

TEST_F(HttpServerTest, StopFreesThePort) {
  Serve();
  const int port = server_->port();
  server_->Stop();
  server_->Stop();
  EXPECT_EQ(Fetch(port, "/healthz").code, 0);
  EXPECT_THAT(HttpServer::Create({.port = port, .registry = registry_.get()}), IsOk());
}

}  // namespace
}  // namespace causeway
