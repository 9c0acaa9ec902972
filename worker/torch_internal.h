#ifndef CAUSEWAY_WORKER_TORCH_INTERNAL_H_
#define CAUSEWAY_WORKER_TORCH_INTERNAL_H_

// The only header of ours that includes libtorch's. Those define LOG and CHECK, and their folder has an old protobuf in
// it: a file that includes this one includes no generated code and no gRPC.

#include <new>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "torch/csrc/autograd/functions/accumulate_grad.h"
#include "torch/csrc/autograd/utils/lambda_post_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/torch.h"

namespace causeway::worker::internal {

// Runs `body`, which returns Status or StatusOr, and turns what it throws into a status, so that no exception leaves a
// file.
template <typename Body>
auto CatchTorch(absl::string_view what, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    // The CPU allocator has no class of its own for this.
    const absl::string_view message = error.what_without_backtrace();
    if (message.find("not enough memory") != absl::string_view::npos ||
        message.find("can't allocate memory") != absl::string_view::npos) {
      return absl::ResourceExhaustedError(absl::StrCat(what, ": ", message));
    }
    return absl::InternalError(absl::StrCat(what, ": ", message));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  }
}

// A tensor over memory that somebody else keeps alive and, when T is const, that is only read.
template <typename T>
torch::Tensor View(absl::Span<T> values, const std::vector<int64_t>& shape) {
  using Value = std::remove_const_t<T>;
  return torch::from_blob(const_cast<Value*>(values.data()), shape,
                          torch::TensorOptions().dtype(c10::CppTypeToScalarType<Value>::value));
}

// The elements of a contiguous CPU tensor, which must outlive the span.
template <typename T>
absl::Span<T> Elements(const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), "not contiguous or not on the CPU");
  return absl::MakeSpan(tensor.data_ptr<T>(), tensor.numel());
}

}  // namespace causeway::worker::internal

#endif  // CAUSEWAY_WORKER_TORCH_INTERNAL_H_
