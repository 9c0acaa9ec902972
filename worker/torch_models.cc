#include "worker/torch_models.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "worker/torch_internal.h"

namespace causeway::worker {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Network : nn::Module {
  virtual torch::Tensor Forward(torch::Tensor x) = 0;  // [n, channels, height, width] -> [n, classes]
};

struct Mlp : Network {
  Mlp(int64_t inputs, int64_t classes)
      : fc1(register_module("fc1", nn::Linear(inputs, 256))),
        fc2(register_module("fc2", nn::Linear(256, 128))),
        fc3(register_module("fc3", nn::Linear(128, classes))) {}
  torch::Tensor Forward(torch::Tensor x) override {
    x = torch::relu(fc1(x.flatten(1)));
    x = torch::relu(fc2(x));
    return fc3(x);
  }

  nn::Linear fc1, fc2, fc3;
};

struct LeNet : Network {
  LeNet(int64_t channels, int64_t height, int64_t width, int64_t classes)
      : conv1(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(channels, 16, 3).padding(1)))),
        conv2(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)))),
        fc1(register_module("fc1", nn::Linear(32 * (height / 4) * (width / 4), 128))),
        fc2(register_module("fc2", nn::Linear(128, classes))) {}
  torch::Tensor Forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    x = torch::relu(fc1(x.flatten(1)));
    return fc2(x);
  }

  nn::Conv2d conv1, conv2;
  nn::Linear fc1, fc2;
};

nn::Conv2d ConvWithoutBias(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(false));
}

struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(int64_t in, int64_t out, int64_t stride)
      : conv1(register_module("conv1", ConvWithoutBias(in, out, 3, stride, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(out))),
        conv2(register_module("conv2", ConvWithoutBias(out, out, 3, 1, 1))),
        bn2(register_module("bn2", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out) {
      downsample =
          register_module("downsample", nn::Sequential(ConvWithoutBias(in, out, 1, stride, 0), nn::BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    torch::Tensor y = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(y + (downsample ? downsample->forward(x) : x));
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(BasicBlock);

struct ResNet18 : Network {
  explicit ResNet18(int64_t classes)
      : conv1(register_module("conv1", ConvWithoutBias(3, 64, 7, 2, 3))),
        bn1(register_module("bn1", nn::BatchNorm2d(64))),
        layer1(register_module("layer1", nn::Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1)))),
        layer2(register_module("layer2", nn::Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1)))),
        layer3(register_module("layer3", nn::Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1)))),
        layer4(register_module("layer4", nn::Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1)))),
        fc(register_module("fc", nn::Linear(512, classes))) {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2d>())
        nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
  torch::Tensor Forward(torch::Tensor x) override {
    if (x.size(1) == 1) x = x.expand({-1, 3, -1, -1});
    x = torch::max_pool2d(torch::relu(bn1(conv1(x))), 3, 2, 1);
    x = layer4->forward(layer3->forward(layer2->forward(layer1->forward(x))));
    return fc(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layer1, layer2, layer3, layer4;
  nn::Linear fc;
};

absl::StatusOr<std::shared_ptr<Network>> MakeNetwork(const ModelOptions& options) {
  const std::vector<int64_t>& shape = options.sample_shape;
  if (shape.size() != 3 || *std::min_element(shape.begin(), shape.end()) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples of shape [", absl::StrJoin(shape, ", "), "]; expected channels, height and width"));
  }
  if (options.classes < 2)
    return absl::InvalidArgumentError(absl::StrCat("a model of ", options.classes, " classes; at least 2 are needed"));
  if (options.builtin == "mlp") return std::make_shared<Mlp>(shape[0] * shape[1] * shape[2], options.classes);
  if (options.builtin == "lenet") {
    if (shape[1] < 4 || shape[2] < 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("lenet needs images of 4 x 4 or more; these are ", shape[1], " x ", shape[2]));
    }
    return std::make_shared<LeNet>(shape[0], shape[1], shape[2], options.classes);
  }
  if (options.builtin == "resnet18") {
    if (shape[0] != 1 && shape[0] != 3) {
      return absl::InvalidArgumentError(absl::StrCat("resnet18 takes 1 or 3 channels; these samples have ", shape[0]));
    }
    return std::make_shared<ResNet18>(options.classes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown model \"", options.builtin, "\"; allowed: mlp, lenet, resnet18"));
}

// A leaf module with what it owns, all of it views into two buffers but the integers.
struct Layer {
  torch::Tensor values;     // [parameters, float buffers] f32
  torch::Tensor gradients;  // [parameters] f32
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradient_views;                         // One a parameter, in its shape.
  std::vector<torch::Tensor> integers;                               // i64
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;  // Kept alive for their hooks.
  size_t pending = 0;  // Parameters whose gradient this backward still owes.
};

class TorchModel : public Model {
 public:
  TorchModel(std::shared_ptr<Network> network, const ModelOptions& options)
      : network_(std::move(network)), sample_shape_(options.sample_shape), classes_(options.classes) {}

  // Makes the layers out of the network's leaf modules. Call it once, first.
  absl::Status Init() {
    std::vector<dataplane::TensorSpec> tensors;
    for (const auto& module : network_->named_modules()) {
      if (!module.value()->children().empty()) continue;
      if (module.value()->as<nn::BatchNorm2d>() != nullptr) min_train_batch_ = 2;
      if (module.value()->parameters(false).empty() && module.value()->buffers(false).empty()) continue;
      AddLayer(module.key(), *module.value(), &tensors);
    }
    ASSIGN_OR_RETURN(layout_, dataplane::Layout::Create(std::move(tensors)));
    for (int l = 1; l <= static_cast<int>(layers_.size()); ++l) HookGradients(l);
    return absl::OkStatus();
  }

  const dataplane::Layout& layout() const override { return layout_; }
  absl::Span<const LayerView> layers() const override { return views_; }
  int64_t min_train_batch() const override { return min_train_batch_; }

  absl::StatusOr<BatchResult> TrainBatch(const Batch& batch, const GradientListener& on_gradient) override {
    if (batch.size < min_train_batch_) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", batch.size, "; this model needs at least ", min_train_batch_));
    }
    RETURN_IF_ERROR(CheckBatch(batch));
    return internal::CatchTorch("training", [&]() -> absl::StatusOr<BatchResult> {
      network_->train();
      on_gradient_ = &on_gradient;
      for (Layer& layer : layers_) {
        layer.gradients.zero_();
        layer.pending = layer.parameters.size();
      }
      const torch::Tensor labels = internal::View(batch.labels, {batch.size});
      const torch::Tensor outputs = network_->Forward(Inputs(batch));
      const torch::Tensor loss = F::cross_entropy(outputs, labels);
      loss.backward();
      for (Layer& layer : layers_) {
        for (size_t i = 0; i < layer.parameters.size(); ++i) {
          if (!layer.parameters[i].grad().is_same(layer.gradient_views[i]))
            return absl::InternalError("libtorch moved a gradient");
        }
      }
      return BatchResult{.loss_sum = loss.item<float>() * static_cast<double>(batch.size),
                         .correct = CountCorrect(outputs, labels),
                         .samples = batch.size};
    });
  }

  absl::StatusOr<BatchResult> EvaluateBatch(const Batch& batch) override {
    RETURN_IF_ERROR(CheckBatch(batch));
    return internal::CatchTorch("evaluation", [&]() -> absl::StatusOr<BatchResult> {
      torch::NoGradGuard no_grad;
      network_->eval();
      const torch::Tensor labels = internal::View(batch.labels, {batch.size});
      const torch::Tensor outputs = network_->Forward(Inputs(batch));
      const torch::Tensor loss = F::cross_entropy(outputs, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum));
      return BatchResult{
          .loss_sum = loss.item<float>(), .correct = CountCorrect(outputs, labels), .samples = batch.size};
    });
  }

  absl::Status Load(absl::Span<const uint8_t> bytes) override {
    RETURN_IF_ERROR(CheckSize(bytes.size()));
    const uint8_t* from = bytes.data();
    ForEachPiece([&](void* memory, size_t size) {
      std::memcpy(memory, from, size);
      from += size;
    });
    return absl::OkStatus();
  }

  absl::Status Save(absl::Span<uint8_t> bytes) const override {
    RETURN_IF_ERROR(CheckSize(bytes.size()));
    uint8_t* to = bytes.data();
    ForEachPiece([&](const void* memory, size_t size) {
      std::memcpy(to, memory, size);
      to += size;
    });
    return absl::OkStatus();
  }

 private:
  void AddLayer(const std::string& name, nn::Module& module, std::vector<dataplane::TensorSpec>* tensors) {
    const int32_t number = static_cast<int32_t>(layers_.size()) + 1;
    auto describe = [&](const std::string& tensor_name, const torch::Tensor& tensor, dataplane::TensorKind kind) {
      tensors->push_back({.name = absl::StrCat(name, ".", tensor_name),
                          .dtype = kind == dataplane::TensorKind::kIntegerBuffer ? dataplane::DataType::kInt64
                                                                                 : dataplane::DataType::kFloat32,
                          .shape = tensor.sizes().vec(),
                          .kind = kind,
                          .layer = number});
    };
    Layer layer;
    std::vector<torch::Tensor> floats;  // Parameters, then buffers.
    int64_t parameter_elements = 0;
    int64_t elements = 0;
    for (const auto& parameter : module.named_parameters(false)) {
      describe(parameter.key(), parameter.value(), dataplane::TensorKind::kParameter);
      layer.parameters.push_back(parameter.value());
      floats.push_back(parameter.value());
      parameter_elements += parameter.value().numel();
    }
    elements = parameter_elements;
    for (const auto& buffer : module.named_buffers(false)) {
      if (!buffer.value().is_floating_point()) continue;
      describe(buffer.key(), buffer.value(), dataplane::TensorKind::kFloatBuffer);
      floats.push_back(buffer.value());
      elements += buffer.value().numel();
    }
    for (const auto& buffer : module.named_buffers(false)) {
      if (buffer.value().is_floating_point()) continue;
      describe(buffer.key(), buffer.value(), dataplane::TensorKind::kIntegerBuffer);
      layer.integers.push_back(buffer.value());
    }

    torch::NoGradGuard no_grad;
    layer.values = torch::empty({elements}, torch::kFloat32);
    layer.gradients = torch::zeros({parameter_elements}, torch::kFloat32);
    int64_t offset = 0;
    for (size_t i = 0; i < floats.size(); ++i) {
      torch::Tensor view = layer.values.narrow(0, offset, floats[i].numel()).view(floats[i].sizes());
      view.copy_(floats[i]);
      floats[i].set_data(view);
      if (i < layer.parameters.size()) {
        layer.gradient_views.push_back(layer.gradients.narrow(0, offset, floats[i].numel()).view(floats[i].sizes()));
        floats[i].mutable_grad() = layer.gradient_views.back();
      }
      offset += floats[i].numel();
    }
    const absl::Span<float> values = internal::Elements<float>(layer.values);
    views_.push_back({.name = name,
                      .parameters = values.first(parameter_elements),
                      .float_buffers = values.subspan(parameter_elements),
                      .gradients = internal::Elements<float>(layer.gradients)});
    layers_.push_back(std::move(layer));
  }

  void HookGradients(int number) {
    Layer* layer = &layers_[number - 1];  // layers_ does not grow any more.
    for (const torch::Tensor& parameter : layer->parameters) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, layer, number](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
            if (--layer->pending == 0 && *on_gradient_) (*on_gradient_)(number);
            return outputs;
          }));
      layer->accumulators.push_back(std::move(accumulator));
    }
  }

  torch::Tensor Inputs(const Batch& batch) const {
    return internal::View(batch.inputs, {batch.size, sample_shape_[0], sample_shape_[1], sample_shape_[2]});
  }

  static int64_t CountCorrect(const torch::Tensor& outputs, const torch::Tensor& labels) {
    return outputs.argmax(1).eq(labels).sum().item<int64_t>();
  }

  absl::Status CheckBatch(const Batch& batch) const {
    const int64_t elements = sample_shape_[0] * sample_shape_[1] * sample_shape_[2];
    if (batch.size < 1 || static_cast<int64_t>(batch.inputs.size()) / elements != batch.size ||
        static_cast<int64_t>(batch.inputs.size()) % elements != 0 ||
        static_cast<int64_t>(batch.labels.size()) != batch.size) {
      return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.size, " with ", batch.inputs.size(),
                                                     " inputs and ", batch.labels.size(), " labels; a sample has ",
                                                     elements));
    }
    for (int64_t label : batch.labels) {
      if (label < 0 || label >= classes_)
        return absl::InvalidArgumentError(absl::StrCat("label ", label, " of ", classes_, " classes"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSize(size_t size) const {
    if (static_cast<int64_t>(size) == layout_.total_bytes()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a model of ", size, " bytes; this one has ", layout_.total_bytes()));
  }

  // The model's memory in layout order.
  template <typename Function>
  void ForEachPiece(Function function) const {
    for (const Layer& layer : layers_) {
      function(layer.values.data_ptr(), layer.values.nbytes());
      for (const torch::Tensor& integer : layer.integers) function(integer.data_ptr(), integer.nbytes());
    }
  }

  const std::shared_ptr<Network> network_;
  const std::vector<int64_t> sample_shape_;
  const int32_t classes_;
  int64_t min_train_batch_ = 1;
  dataplane::Layout layout_;
  std::vector<Layer> layers_;
  std::vector<LayerView> views_;
  const GradientListener* on_gradient_ = nullptr;  // Of the TrainBatch that runs.
};

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "model name"))
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "cpu";
}

class TorchModelFactory : public ModelFactory {
 public:
  explicit TorchModelFactory(const TorchOptions& options) {
    at::set_num_threads(options.threads);
    at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
    // Costs a pass over every new tensor and finds only reads of memory that nobody has written.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }

  absl::StatusOr<std::unique_ptr<Model>> Create(const ModelOptions& options) override {
    MutexLock lock(&mu_);
    return internal::CatchTorch("building the model", [&]() -> absl::StatusOr<std::unique_ptr<Model>> {
      torch::manual_seed(options.seed);
      ASSIGN_OR_RETURN(auto network, MakeNetwork(options));
      auto model = std::make_unique<TorchModel>(std::move(network), options);
      RETURN_IF_ERROR(model->Init());
      return model;
    });
  }

  std::string device_kind() const override { return "cpu"; }
  std::string device_name() const override { return ProcessorName(); }
  std::string library_version() const override { return TORCH_VERSION; }

 private:
  Mutex mu_;  // The generator that models are initialized from is one for all.
};

}  // namespace

std::unique_ptr<ModelFactory> MakeTorchModelFactory(const TorchOptions& options) {
  return std::make_unique<TorchModelFactory>(options);
}

}  // namespace causeway::worker
