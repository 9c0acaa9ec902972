#include "worker/bulk_dialer.h"

#include <utility>

namespace causeway::worker {

BulkDialer::BulkDialer(Factory factory, std::string address)
    : factory_(std::move(factory)), configured_(std::move(address)), address_(configured_) {}

void BulkDialer::Follow(const v1::RegisterResponse& response) {
  std::string address = configured_;
  for (const v1::EndpointRange& endpoint : response.endpoints()) {
    if (endpoint.has_elements() || endpoint.address().empty()) continue;
    address = endpoint.address();
    break;
  }
  MutexLock lock(&mu_);
  address_ = std::move(address);
}

void BulkDialer::Reconnect() {
  MutexLock lock(&mu_);
  for (auto& [address, dialer] : dialers_) former_.push_back(std::move(dialer));
  dialers_.clear();
}

std::string BulkDialer::address() const {
  MutexLock lock(&mu_);
  return address_;
}

absl::StatusOr<std::unique_ptr<dataplane::Link>> BulkDialer::Dial(dataplane::LinkKind kind, absl::Time deadline) {
  dataplane::LinkDialer* dialer = nullptr;
  {
    MutexLock lock(&mu_);
    std::unique_ptr<dataplane::LinkDialer>& of_address = dialers_[address_];
    if (of_address == nullptr) of_address = factory_(address_);
    dialer = of_address.get();
  }
  return dialer->Dial(kind, deadline);
}

}  // namespace causeway::worker
