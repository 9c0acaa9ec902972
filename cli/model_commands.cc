#include "cli/model_commands.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/output.h"
#include "dataplane/digest.h"
#include "dataplane/safetensors.h"

namespace causeway::cli {
namespace {

absl::Status WriteModel(const dataplane::PulledModel& model, const std::string& job, const std::string& path,
                        FileSystem* files) {
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->Create(path));
  // "format": readers of the ecosystem look for it.
  dataplane::SafetensorsMetadata metadata = {
      {"format", "pt"}, {"causeway.job", job}, {"causeway.version", absl::StrCat(model.version)}};
  RETURN_IF_ERROR(dataplane::WriteSafetensors(model.layout, model.bytes, metadata, file.get()));
  RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace

absl::Status ModelList(Session& session, const std::string& job) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  v1::ListModelsRequest request;
  request.set_job(job);
  ASSIGN_OR_RETURN(v1::ListModelsResponse response, client->ListModels(request, session.timeout()));
  Table table({"VERSION", "SIZE", "ACCURACY", "LOSS", "COMMITTED (UTC)", "FINAL", "FILE ON THE COORDINATOR"});
  for (const v1::ModelVersion& model : response.models()) {
    bool evaluated = model.has_evaluation();
    table.AddRow({absl::StrCat(model.version()), HumanBytes(static_cast<double>(model.bytes())),
                  evaluated ? HumanNumber(model.evaluation().accuracy(), 4) : "",
                  evaluated ? HumanNumber(model.evaluation().loss(), 4) : "", HumanTime(model.committed_ms()),
                  model.final() ? "yes" : "no", model.path()});
  }
  Json json = {{"job", job}};
  json.update(ToJson(response));
  session.Print("causeway.models/1", json, table.ToString());
  return absl::OkStatus();
}

absl::Status ModelFetch(Session& session, const FetchOptions& options) {
  ASSIGN_OR_RETURN(OperatorClient * client, session.Client());
  int64_t version = options.version;
  if (version < 0) {
    v1::ListModelsRequest request;
    request.set_job(options.job);
    ASSIGN_OR_RETURN(v1::ListModelsResponse models, client->ListModels(request, session.timeout()));
    // Without a final one the newest is taken when the transfer begins.
    for (const v1::ModelVersion& model : models.models()) {
      if (model.final()) version = model.version();
    }
  }
  ASSIGN_OR_RETURN(dataplane::PulledModel model,
                   client->PullModel(options.job, version, session.timeout(absl::InfiniteDuration())));
  FileSystem* files = session.env().files;
  std::string partial = options.out + ".partial";
  absl::Status written = WriteModel(model, options.job, partial, files);
  if (written.ok()) written = files->Rename(partial, options.out);
  if (!written.ok()) {
    files->Remove(partial).IgnoreError();
    return written;
  }
  ASSIGN_OR_RETURN(int64_t bytes, files->FileSize(options.out));
  session.Print(
      "causeway.model-fetched/1",
      {{"job", options.job},
       {"version", model.version},
       {"file", options.out},
       {"bytes", bytes},
       {"tensors", model.layout.tensors().size()},
       {"tensor_bytes", model.layout.total_bytes()},
       {"tensor_sha256", dataplane::ToHex(model.sha256)}},
      absl::StrCat(options.out, ": version ", model.version, " of ", options.job, ", ", model.layout.tensors().size(),
                   " tensors, ", HumanBytes(static_cast<double>(bytes)), "\n"));
  return absl::OkStatus();
}

}  // namespace causeway::cli
