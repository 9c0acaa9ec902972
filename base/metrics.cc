#include "base/metrics.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <prometheus/check_names.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/log.h"
#include "base/mutex.h"

namespace causeway {
namespace {

class CounterHandle : public Counter {
 public:
  explicit CounterHandle(prometheus::Counter* metric) : metric_(metric) {}
  void Increment(double by) override { metric_->Increment(by); }
  prometheus::Counter* metric() const { return metric_; }

 private:
  prometheus::Counter* const metric_;  // Owned by its family.
};

class GaugeHandle : public Gauge {
 public:
  explicit GaugeHandle(prometheus::Gauge* metric) : metric_(metric) {}
  void Set(double value) override { metric_->Set(value); }
  prometheus::Gauge* metric() const { return metric_; }

 private:
  prometheus::Gauge* const metric_;  // Owned by its family.
};

class HistogramHandle : public Histogram {
 public:
  explicit HistogramHandle(prometheus::Histogram* metric) : metric_(metric) {}
  void Observe(double value) override { metric_->Observe(value); }
  prometheus::Histogram* metric() const { return metric_; }

 private:
  prometheus::Histogram* const metric_;  // Owned by its family.
};

// All series of one name.
template <typename Metric, typename Handle>
struct Family {
  prometheus::Family<Metric>* family = nullptr;  // Owned by prometheus::Registry.
  std::string help;
  std::vector<double> bounds;  // Of histograms.
  std::map<MetricLabels, std::unique_ptr<Handle>> series;
};
template <typename Metric, typename Handle>
using Families = std::map<std::string, Family<Metric, Handle>>;

template <typename Metric, typename Handle>
void RemoveFrom(Families<Metric, Handle>& families, const std::string& label, const std::string& value) {
  for (auto& [name, family] : families) {
    for (auto it = family.series.begin(); it != family.series.end();) {
      auto found = it->first.find(label);
      if (found == it->first.end() || found->second != value) {
        ++it;
        continue;
      }
      family.family->Remove(it->second->metric());
      it = family.series.erase(it);
    }
  }
}

class PrometheusRegistry : public MetricRegistry {
 public:
  Counter* GetCounter(const std::string& name, const std::string& help, const MetricLabels& labels) override {
    MutexLock lock(&mu_);
    return GetLocked(
        counters_, prometheus::BuildCounter(), name, help, {},
        labels, [&](auto& family) -> auto& { return family.Add(labels); });
  }

  Gauge* GetGauge(const std::string& name, const std::string& help, const MetricLabels& labels) override {
    MutexLock lock(&mu_);
    return GetLocked(
        gauges_, prometheus::BuildGauge(), name, help, {},
        labels, [&](auto& family) -> auto& { return family.Add(labels); });
  }

  Histogram* GetHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                          const MetricLabels& labels) override {
    CAUSEWAY_CHECK(std::is_sorted(bounds.begin(), bounds.end()));
    MutexLock lock(&mu_);
    return GetLocked(
        histograms_, prometheus::BuildHistogram(), name, help, bounds,
        labels, [&](auto& family) -> auto& { return family.Add(labels, bounds); });
  }

  void RemoveWhere(const std::string& label, const std::string& value) override {
    MutexLock lock(&mu_);
    RemoveFrom(counters_, label, value);
    RemoveFrom(gauges_, label, value);
    RemoveFrom(histograms_, label, value);
  }

  void AddCollector(std::function<void()> collector) override {
    MutexLock lock(&mu_);
    collectors_.push_back(std::move(collector));
  }

  std::string Expose() override {
    std::vector<std::function<void()>> collectors;
    {
      MutexLock lock(&mu_);
      collectors = collectors_;
    }
    for (const std::function<void()>& collector : collectors) collector();
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

 private:
  template <typename Metric, typename Handle, typename Builder, typename AddSeries>
  Handle* GetLocked(Families<Metric, Handle>& families, Builder builder, const std::string& name,
                    const std::string& help, const std::vector<double>& bounds, const MetricLabels& labels,
                    AddSeries add) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Family<Metric, Handle>& family = families[name];
    if (family.family == nullptr) {
      CAUSEWAY_CHECK(prometheus::CheckMetricName(name));
      CAUSEWAY_CHECK(counters_.count(name) + gauges_.count(name) + histograms_.count(name) == 1);
      family.family = &builder.Name(name).Help(help).Register(registry_);
      family.help = help;
      family.bounds = bounds;
    }
    CAUSEWAY_CHECK(family.help == help);
    CAUSEWAY_CHECK(family.bounds == bounds);
    std::unique_ptr<Handle>& handle = family.series[labels];
    if (handle == nullptr) {
      for (const auto& [label, value] : labels) CAUSEWAY_CHECK(prometheus::CheckLabelName(label));
      handle = std::make_unique<Handle>(&add(*family.family));
    }
    return handle.get();
  }

  prometheus::Registry registry_;
  Mutex mu_;
  Families<prometheus::Counter, CounterHandle> counters_ ABSL_GUARDED_BY(mu_);
  Families<prometheus::Gauge, GaugeHandle> gauges_ ABSL_GUARDED_BY(mu_);
  Families<prometheus::Histogram, HistogramHandle> histograms_ ABSL_GUARDED_BY(mu_);
  std::vector<std::function<void()>> collectors_ ABSL_GUARDED_BY(mu_);
};

// The address and port as civetweb and a URL spell them, or InvalidArgument.
absl::StatusOr<std::string> ListenAddress(const std::string& address, int port) {
  if (port < 0 || port > 65535)
    return absl::InvalidArgumentError(absl::StrCat("HTTP port ", port, " is not in 0..65535"));
  unsigned char parsed[sizeof(in6_addr)];
  if (inet_pton(AF_INET, address.c_str(), parsed) == 1) return absl::StrCat(address, ":", port);
  if (inet_pton(AF_INET6, address.c_str(), parsed) == 1) return absl::StrCat("[", address, "]:", port);
  return absl::InvalidArgumentError(absl::StrCat("HTTP bind address \"", address, "\" is not an IP address"));
}

struct Response {
  int code;
  std::string content_type;
  std::string body;
};
constexpr size_t kPieceBytes = 16 << 10;
constexpr char kPlainText[] = "text/plain; charset=utf-8";

class CivetHttpServer : public HttpServer {
 public:
  explicit CivetHttpServer(Options options) : options_(std::move(options)) {}
  ~CivetHttpServer() override { Stop(); }

  absl::Status Listen() {
    absl::StatusOr<std::string> address = ListenAddress(options_.bind_address, options_.port);
    if (!address.ok()) return address.status();
    mg_init_library(0);
    absl::Cleanup undo = [] { mg_exit_library(); };

    mg_callbacks callbacks{};
    callbacks.begin_request = &CivetHttpServer::OnRequest;
    callbacks.log_message = &CivetHttpServer::OnMessage;
    // A thread waits for each request that is not whole, so there are more than a few, and none waits for long.
    const char* settings[] = {"listening_ports",    address->c_str(), "num_threads", "32",
                              "request_timeout_ms", "1000",           nullptr};
    mg_init_data init{&callbacks, this, settings};
    unsigned code = 0;
    char text[256] = "";
    mg_error_data error{&code, text, sizeof(text)};
    mg_context* context = mg_start2(&init, &error);
    MutexLock lock(&mu_);
    if (context == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("cannot serve HTTP on ", *address, ": ", first_message_.empty() ? text : first_message_));
    }
    std::move(undo).Cancel();
    context_ = context;
    mg_server_port bound{};
    CAUSEWAY_CHECK(mg_get_server_ports(context, 1, &bound) == 1);
    port_ = bound.port;
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  void Stop() override ABSL_LOCKS_EXCLUDED(mu_) {
    mg_context* context;
    {
      MutexLock lock(&mu_);
      context = std::exchange(context_, nullptr);
    }
    if (context == nullptr) return;
    // mg_stop waits for the requests being answered, and for up to 2 s until the listener looks up; connections wake
    // that.
    Completion<bool> stopped;
    std::thread stopper([&] {
      mg_stop(context);
      stopped.Set(true);
    });
    Clock* clock = RealClock();
    while (!stopped.Await(clock, clock->Now() + absl::Milliseconds(10), "the HTTP server").ok()) {
      char error[256];
      mg_close_connection(mg_connect_client(options_.bind_address.c_str(), port_, 0, error, sizeof(error)));
    }
    stopper.join();
    mg_exit_library();
  }

 private:
  static CivetHttpServer* Of(const mg_connection* connection) {
    return static_cast<CivetHttpServer*>(mg_get_user_data(mg_get_context(connection)));
  }

  static int OnMessage(const mg_connection* connection, const char* message) {
    log::Debug("http server message", {{"message", message}});
    CivetHttpServer* server = Of(connection);
    MutexLock lock(&server->mu_);
    if (server->first_message_.empty()) server->first_message_ = message;
    return 1;
  }

  static int OnRequest(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const absl::string_view method = request->request_method;
    Response response = method == "GET" || method == "HEAD" ? Of(connection)->Answer(request->local_uri)
                                                            : Response{405, kPlainText, "only GET is allowed\n"};
    // Last of all, so that a scraper sees whole pages only.
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
              "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
              response.code, mg_get_response_code_text(connection, response.code), response.content_type.c_str(),
              response.body.size());
    // In pieces, each of which has the timeout for itself: a slow reader gets all of it.
    for (size_t begin = 0; method != "HEAD" && begin < response.body.size(); begin += kPieceBytes) {
      const size_t size = std::min(kPieceBytes, response.body.size() - begin);
      if (mg_write(connection, response.body.data() + begin, size) != static_cast<int>(size)) break;
    }
    return response.code;
  }

  Response Answer(absl::string_view path) const {
    if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", options_.registry->Expose()};
    if (path == "/healthz") return {200, kPlainText, "ok\n"};
    if (path == "/readyz") {
      absl::Status ready = options_.ready ? options_.ready() : absl::OkStatus();
      return ready.ok() ? Response{200, kPlainText, "ready\n"}
                        : Response{503, kPlainText, absl::StrCat(ready.message(), "\n")};
    }
    for (const Options::Page& page : options_.pages) {
      if (path == page.path) return {200, page.content_type, page.body()};
    }
    return {404, kPlainText, "no such page\n"};
  }

  const Options options_;
  int port_ = 0;  // Constant once Listen has returned.
  Mutex mu_;
  mg_context* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::string first_message_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<MetricRegistry> MetricRegistry::Create() { return std::make_unique<PrometheusRegistry>(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(Options options) {
  auto server = std::make_unique<CivetHttpServer>(std::move(options));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace causeway
