#ifndef CAUSEWAY_SCHEDULER_MODEL_H_
#define CAUSEWAY_SCHEDULER_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>

namespace causeway::scheduler {

// What was measured on one worker's device, under the load that training has.
struct DeviceProfile {
  std::string name;  // The worker's; unique in a problem.
  std::string site;
  double bandwidth_bytes_per_s = 0;          // > 0; coordinator to device.
  std::optional<double> uplink_bytes_per_s;  // > 0; device to coordinator, where it differs.
  double batch_time_s = 0;                   // > 0; forward and backward of one batch of `batch_size` samples.
  int64_t batch_size = 0;                    // 1..max_parallel
  int64_t max_parallel = 0;                  // Most samples that the device processes at once.
  std::optional<int64_t> capacity_samples;   // >= 0; most samples that the device can store.
  bool reads_data_locally = false;           // Nothing is sent before training.
};

// What was measured of one layer of a model, in the job as it trains. A model is a sequence of them in forward order.
struct LayerProfile {
  std::string name;     // Unique in a model.
  double t_fp_s = 0;    // >= 0; forward.
  double t_bp_s = 0;    // >= 0; backward.
  double t_comm_s = 0;  // >= 0; averaging the layer's parameters, or its gradients, over the group.
};

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_MODEL_H_
