#ifndef CAUSEWAY_BASE_METRICS_H_
#define CAUSEWAY_BASE_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

using MetricLabels = std::map<std::string, std::string>;

// Handles live as long as their registry. Thread-safe.
class Counter {
 public:
  virtual ~Counter() = default;
  virtual void Increment(double by = 1) = 0;  // by >= 0
};
class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void Set(double value) = 0;
};
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

// The process's metrics in Prometheus's data model; prometheus-cpp is hidden in metrics.cc. Thread-safe.
//
// A name is registered by its first use; using it again with other help or type is a bug of ours (CHECK). Asking twice for the same
// name and labels gives the same handle.
class MetricRegistry {
 public:
  static std::unique_ptr<MetricRegistry> Create();
  virtual ~MetricRegistry() = default;

  virtual Counter* GetCounter(const std::string& name, const std::string& help, const MetricLabels& labels = {}) = 0;
  virtual Gauge* GetGauge(const std::string& name, const std::string& help, const MetricLabels& labels = {}) = 0;
  // `bounds`: ascending upper bounds of the buckets, the same for every label set of a name.
  virtual Histogram* GetHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                                  const MetricLabels& labels = {}) = 0;

  // Drops every series of every metric whose label `label` has this value (a job that has ended, a worker that was removed).
  // Handles to them must not be used afterwards.
  virtual void RemoveWhere(const std::string& label, const std::string& value) = 0;

  // Called before each exposition, on the scraping thread: sets gauges that are computed (ages, free disk).
  virtual void AddCollector(std::function<void()> collector) = 0;

  // The text exposition format (version 0.0.4).
  virtual std::string Expose() = 0;
};

// Answers /metrics, /healthz and /readyz over plain HTTP (civetweb, which prometheus-cpp brings).
//
// Thread-safe. Listens from Create until Stop (idempotent; called by the destructor).
class HttpServer {
 public:
  struct Options {
    std::string bind_address = "127.0.0.1";
    int port = 0;                        // 0: the system chooses; see port().
    MetricRegistry* registry = nullptr;  // Not owned; outlives this.
    std::function<absl::Status()>
        ready;  // OK: /readyz answers 200, else 503 with the message. /healthz is 200 while we live.
    // Further read-only pages: path -> (content type, body). A handler runs on an HTTP thread.
    struct Page {
      std::string path;
      std::string content_type;
      std::function<std::string()> body;
    };
    std::vector<Page> pages;
  };
  // Errors: InvalidArgument (address), Unavailable (the address is in use; the message names it).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(Options options);
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  virtual void Stop() = 0;
};

}  // namespace causeway

#endif  // CAUSEWAY_BASE_METRICS_H_
