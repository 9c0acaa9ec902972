#include "dataplane/grpc_channel.h"

#include <grpc/grpc.h>
#include <malloc.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "dataplane/pki.h"

namespace causeway::dataplane {
namespace {

constexpr int kKeepaliveTimeMs = 1000;
// Control pings have an idle connection; bulk ones queue behind data, which takes seconds on a slow line.
constexpr int kControlTimeoutMs = 2000;
constexpr int kBulkTimeoutMs = 10000;
// A connection without a call is closed after so long; its client connects again when it needs to.
constexpr int kMaxIdleMs = 300 * 1000;
constexpr int kMaxCallsPerConnection = 100;

// A server would make each connection two tickets to take its session up again by, which is half of what a handshake costs it, and no client
// of ours does. gRPC has no option for them; OpenSSL has one for all contexts of a process, in the form of its configuration file. Without
// it all works, only slower.
void SendNoSessionTickets() {
  constexpr char kConfiguration[] =
      "openssl_conf = causeway\n[causeway]\nssl_conf = contexts\n[contexts]\nsystem_default = defaults\n"
      "[defaults]\nNumTickets = 0\nCipherString = DEFAULT:@SECLEVEL=2\n";
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, nullptr);  // The machine's file first, then over it ours.
  std::unique_ptr<BIO, int (*)(BIO*)> text(BIO_new_mem_buf(kConfiguration, -1), BIO_free);
  std::unique_ptr<CONF, void (*)(CONF*)> configuration(NCONF_new(nullptr), NCONF_free);
  if (text == nullptr || configuration == nullptr) return;
  if (NCONF_load_bio(configuration.get(), text.get(), nullptr) > 0) CONF_modules_load(configuration.get(), nullptr, 0);
}

}  // namespace

void ConfigureGrpcProcess() {
  // gRPC 1.51 cannot be told a lowest version. The only TLS 1.2 suite left needs a pre-shared key, which nobody has.
  setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", /*overwrite=*/1);
  // What goes wrong is told by our own messages; gRPC's lines about it are there when they are asked for.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // Protocol Buffers' too: a line for each name from outside that is not UTF-8.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel level, const char* file, int line, const std::string& message) {
        log::Write(level == google::protobuf::LOGLEVEL_FATAL ? log::Level::kError : log::Level::kDebug, "protobuf",
                   {{"file", file}, {"line", line}, {"message", message}});
      });
  SendNoSessionTickets();
  // Debian's Abseil is built to watch every mutex, gRPC's too, for deadlocks; the thread sanitizer's runs do that for us.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Never taken back. The shutdown that would follow the last channel now and then waits 10 s for a poller of gRPC's own
  // (tcp_posix.cc, run_poller), and a program must end within 5.
  // Its threads start here, before a main has said which signals it waits for: they hear none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  grpc_init();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void TuneMalloc() {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

std::shared_ptr<grpc::Channel> MakeChannel(ChannelKind kind, const std::string& address,
                                           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  const bool control = kind == ChannelKind::kControl;
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Else channels with equal arguments share a connection.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, control ? kControlTimeoutMs : kBulkTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, control ? 1 : 0);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  args.SetSslTargetNameOverride(kCoordinatorDnsName);
  return grpc::CreateCustomChannel(address, credentials, args);
}

void ApplyServerArgs(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // Else a second server binds the same port silently.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kBulkTimeoutMs);
  // A control connection always has a call open; an idle bulk one, whose client may poll nothing, must not be dropped.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
}

}  // namespace causeway::dataplane
