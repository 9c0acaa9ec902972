#include "dataplane/pki.h"

#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::dataplane {
namespace {

constexpr size_t kMaxPemBytes = 64 << 10;
constexpr char kScheme[] = "causeway://";
constexpr char kPinPrefix[] = "sha256:";

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using BigNumber = std::unique_ptr<BIGNUM, Free<BN_free>>;

std::string LastError() {
  char text[256] = "unknown error";
  if (unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return text;
}

absl::Status Failed(absl::string_view doing) {
  return absl::InternalError(absl::StrCat("OpenSSL: cannot ", doing, ": ", LastError()));
}

Bio ReadBio(absl::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string Content(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  return std::string(data, size);
}

// Never asks a terminal for a pass phrase.
int NoPassPhrase(char*, int, int, void*) { return -1; }

absl::StatusOr<Key> ParseKey(absl::string_view pem) {
  if (pem.size() > kMaxPemBytes) return absl::InvalidArgumentError("the key is too long");
  Key key(PEM_read_bio_PrivateKey(ReadBio(pem).get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) return absl::InvalidArgumentError(absl::StrCat("not a private key in PEM: ", LastError()));
  return key;
}

absl::StatusOr<Certificate> ParsePem(absl::string_view pem) {
  if (pem.size() > kMaxPemBytes) return absl::InvalidArgumentError("the certificate is too long");
  Certificate certificate(PEM_read_bio_X509(ReadBio(pem).get(), nullptr, NoPassPhrase, nullptr));
  if (certificate == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("not a certificate in PEM: ", LastError()));
  return certificate;
}

bool IsP256(const EVP_PKEY* key) {
  char group[64] = "";
  return EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) == 1 &&
         absl::string_view(group) == SN_X9_62_prime256v1;
}

// A request of a key of our kind, with its proof of possession checked.
absl::StatusOr<Request> ParseCsr(absl::string_view pem) {
  if (pem.size() > kMaxPemBytes) return absl::InvalidArgumentError("the certificate request is too long");
  Request request(PEM_read_bio_X509_REQ(ReadBio(pem).get(), nullptr, NoPassPhrase, nullptr));
  if (request == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("not a certificate request in PEM: ", LastError()));
  EVP_PKEY* public_key = X509_REQ_get0_pubkey(request.get());
  if (public_key == nullptr || !IsP256(public_key))
    return absl::InvalidArgumentError("the request's key is no EC key on P-256");
  if (X509_REQ_verify(request.get(), public_key) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the request is not signed by its key");
  }
  return request;
}

absl::StatusOr<std::string> ToPem(X509* certificate) {
  Bio bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return Failed("write a certificate");
  return Content(bio.get());
}

absl::StatusOr<std::string> Pin(X509* certificate) {
  unsigned char* der = nullptr;
  const int size = i2d_X509(certificate, &der);
  if (size < 0) return Failed("encode a certificate");
  std::string pin = absl::StrCat(kPinPrefix, ToHex(Sha256Of(absl::MakeConstSpan(der, size))));
  OPENSSL_free(der);
  return pin;
}

absl::Status AddExtension(X509* certificate, X509V3_CTX* context, int nid, const std::string& value) {
  Extension extension(X509V3_EXT_conf_nid(nullptr, context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return Failed(absl::StrCat("add the extension ", OBJ_nid2sn(nid)));
  }
  return absl::OkStatus();
}

// A certificate without extensions and signature.
absl::StatusOr<Certificate> StartCertificate(EVP_PKEY* public_key, absl::string_view common_name,
                                             const Validity& validity) {
  if (validity.not_after <= validity.not_before)
    return absl::InvalidArgumentError("the certificate would end before it begins");
  Certificate certificate(X509_new());
  // 127 random bits: positive, unique, at most 20 bytes.
  std::string serial = RandomBytes(16);
  serial[0] &= 0x7f;
  BigNumber number(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()), static_cast<int>(serial.size()), nullptr));
  const std::string name(common_name);
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  auto add_name = [&](const char* field, const std::string& value) {
    return X509_NAME_add_entry_by_txt(subject, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  if (X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) == nullptr ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.not_before)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.not_after)) == nullptr ||
      X509_set_pubkey(certificate.get(), public_key) != 1 || !add_name("O", "Causeway") || !add_name("CN", name)) {
    return Failed("make a certificate");
  }
  return certificate;
}

absl::Status Sign(X509* certificate, X509* issuer, EVP_PKEY* issuer_key) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      X509_sign(certificate, issuer_key, EVP_sha256()) <= 0) {
    return Failed("sign a certificate");
  }
  return absl::OkStatus();
}

bool IsIpAddress(const std::string& host) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

absl::StatusOr<std::string> SubjectAlternativeNames(const LeafOptions& options) {
  std::vector<std::string> names = {absl::StrCat("URI:", IdentityUri(options.identity))};
  if (options.identity.role != PeerIdentity::Role::kCoordinator) {
    if (!options.hosts.empty()) return absl::InvalidArgumentError("only a coordinator's certificate has host names");
    return names[0];
  }
  names.push_back(absl::StrCat("DNS:", kCoordinatorDnsName));
  for (const std::string& host : options.hosts) {
    if (IsIpAddress(host)) {
      names.push_back(absl::StrCat("IP:", host));
      continue;
    }
    // OpenSSL parses the whole list as text: a comma would smuggle in another name.
    const bool plain =
        !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](unsigned char c) {
          return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
        });
    if (!plain)
      return absl::InvalidArgumentError(absl::StrCat("\"", host, "\" is neither a host name nor an IP address"));
    names.push_back(absl::StrCat("DNS:", host));
  }
  return absl::StrJoin(names, ",");
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::StatusOr<std::string> SerialOf(X509* certificate) {
  BigNumber number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  char* hex = number == nullptr ? nullptr : BN_bn2hex(number.get());
  if (hex == nullptr) return Failed("read a serial number");
  std::string serial = absl::AsciiStrToLower(hex);
  OPENSSL_free(hex);
  return serial;
}

absl::StatusOr<PeerIdentity> IdentityOf(X509* certificate) {
  Names names(static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<absl::string_view> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), ASN1_STRING_length(uri));
  }
  if (uris.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat("a certificate has one identity, this one ", uris.size()));
  ASSIGN_OR_RETURN(PeerIdentity identity, ParseIdentityUri(uris[0]));
  ASSIGN_OR_RETURN(identity.serial, SerialOf(certificate));
  identity.not_after = ToTime(X509_get0_notAfter(certificate));
  return identity;
}

// ---- A handshake that only looks.

absl::StatusOr<int> Poll(int fd, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - RealClock()->Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd waiting = {.fd = fd, .events = events, .revents = 0};
    const int ready =
        poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1, 60'000)));
    if (ready > 0) return ready;
    if (ready < 0 && errno != EINTR) return absl::UnavailableError(std::generic_category().message(errno));
  }
}

absl::Status ConnectTo(const addrinfo& address, absl::Time deadline, int fd) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return absl::UnavailableError(std::generic_category().message(errno));
  RETURN_IF_ERROR(Poll(fd, POLLOUT, deadline).status());
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::generic_category().message(error));
}

absl::StatusOr<std::vector<std::string>> Handshake(int fd, absl::Time deadline) {
  std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1)
    return Failed("set up TLS");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  std::unique_ptr<SSL, Free<SSL_free>> ssl(SSL_new(context.get()));
  static constexpr unsigned char kAlpn[] = {2, 'h', '2'};
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1 || SSL_set_alpn_protos(ssl.get(), kAlpn, sizeof(kAlpn)) != 0 ||
      SSL_set_tlsext_host_name(ssl.get(), kCoordinatorDnsName) != 1) {
    return Failed("set up TLS");
  }
  ERR_clear_error();
  for (int result; (result = SSL_connect(ssl.get())) != 1;) {
    switch (SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ: RETURN_IF_ERROR(Poll(fd, POLLIN, deadline).status()); break;
      case SSL_ERROR_WANT_WRITE: RETURN_IF_ERROR(Poll(fd, POLLOUT, deadline).status()); break;
      case SSL_ERROR_SSL: return absl::FailedPreconditionError(absl::StrCat("no TLS 1.3 there: ", LastError()));
      default: return absl::UnavailableError("the connection broke during the TLS handshake");
    }
  }
  std::vector<std::string> chain;
  STACK_OF(X509)* certificates = SSL_get_peer_cert_chain(ssl.get());
  for (int i = 0; i < sk_X509_num(certificates); ++i) {
    ASSIGN_OR_RETURN(std::string pem, ToPem(sk_X509_value(certificates, i)));
    chain.push_back(std::move(pem));
  }
  return chain;
}

}  // namespace

Validity ValidityFrom(absl::Time wall_now, absl::Duration lifetime) {
  return {.not_before = wall_now - std::min(absl::Hours(1), lifetime / 10), .not_after = wall_now + lifetime};
}

absl::Time RenewalTime(const Validity& validity) {
  return validity.not_before + (validity.not_after - validity.not_before) * 2 / 3;
}

absl::StatusOr<std::string> GenerateKeyPem() {
  Key key(EVP_EC_gen(SN_X9_62_prime256v1));
  Bio bio(BIO_new(BIO_s_mem()));
  if (key == nullptr ||
      PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("make a key");
  }
  return Content(bio.get());
}

absl::StatusOr<std::string> CreateCaCertificate(absl::string_view key_pem, absl::string_view common_name,
                                                const Validity& validity) {
  ASSIGN_OR_RETURN(Key key, ParseKey(key_pem));
  ASSIGN_OR_RETURN(Certificate certificate, StartCertificate(key.get(), common_name, validity));
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate.get(), certificate.get(), nullptr, nullptr, 0);
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(Sign(certificate.get(), certificate.get(), key.get()));
  return ToPem(certificate.get());
}

absl::StatusOr<std::string> CreateCsr(absl::string_view key_pem) {
  ASSIGN_OR_RETURN(Key key, ParseKey(key_pem));
  Request request(X509_REQ_new());
  Bio bio(BIO_new(BIO_s_mem()));
  if (X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) <= 0 ||
      PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) {
    return Failed("make a certificate request");
  }
  return Content(bio.get());
}

absl::StatusOr<std::string> SignCsr(absl::string_view csr_pem, absl::string_view ca_pem, absl::string_view ca_key_pem,
                                    const LeafOptions& options) {
  ASSIGN_OR_RETURN(Request request, ParseCsr(csr_pem));
  RETURN_IF_ERROR(CheckKeyMatches(ca_pem, ca_key_pem), "the CA");
  ASSIGN_OR_RETURN(Certificate ca, ParsePem(ca_pem), "the CA");
  ASSIGN_OR_RETURN(Key ca_key, ParseKey(ca_key_pem), "the CA");
  // The URI that is made below must be one that we accept ourselves.
  RETURN_IF_ERROR(ParseIdentityUri(IdentityUri(options.identity)).status());
  const bool server = options.identity.role == PeerIdentity::Role::kCoordinator;
  ASSIGN_OR_RETURN(std::string names, SubjectAlternativeNames(options));
  ASSIGN_OR_RETURN(Certificate certificate,
                   StartCertificate(X509_REQ_get0_pubkey(request.get()), server ? "coordinator" : options.identity.name,
                                    options.validity));
  X509V3_CTX context;
  X509V3_set_ctx(&context, ca.get(), certificate.get(), nullptr, nullptr, 0);
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_basic_constraints, "critical,CA:FALSE"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_key_usage, "critical,digitalSignature"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_ext_key_usage, server ? "serverAuth" : "clientAuth"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_authority_key_identifier, "keyid:always"));
  RETURN_IF_ERROR(AddExtension(certificate.get(), &context, NID_subject_alt_name, names));
  RETURN_IF_ERROR(Sign(certificate.get(), ca.get(), ca_key.get()));
  return ToPem(certificate.get());
}

absl::StatusOr<std::string> CsrKeySha256(absl::string_view csr_pem) {
  ASSIGN_OR_RETURN(Request request, ParseCsr(csr_pem));
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(X509_REQ_get0_pubkey(request.get()), &der);
  if (size < 0) return Failed("encode a public key");
  std::string sha256 = Sha256Of(absl::MakeConstSpan(der, size));
  OPENSSL_free(der);
  return sha256;
}

std::string IdentityUri(const PeerIdentity& identity) {
  switch (identity.role) {
    case PeerIdentity::Role::kAnonymous: break;
    case PeerIdentity::Role::kWorker: return absl::StrCat(kScheme, "worker/", identity.site, "/", identity.name);
    case PeerIdentity::Role::kOperator: return absl::StrCat(kScheme, "operator/", identity.name);
    case PeerIdentity::Role::kCoordinator: return absl::StrCat(kScheme, "coordinator");
  }
  return "";
}

absl::StatusOr<PeerIdentity> ParseIdentityUri(absl::string_view uri) {
  PeerIdentity identity;
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, kScheme))
    return absl::InvalidArgumentError("the certificate's identity does not begin with causeway://");
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  if (parts[0] == "coordinator" && parts.size() == 1) {
    identity.role = PeerIdentity::Role::kCoordinator;
    identity.name = "coordinator";
    return identity;
  }
  if (parts[0] == "operator" && parts.size() == 2) {
    identity.role = PeerIdentity::Role::kOperator;
    identity.name = parts[1];
    RETURN_IF_ERROR(ValidateName("operator", identity.name));
    return identity;
  }
  if (parts[0] == "worker" && parts.size() == 3) {
    identity.role = PeerIdentity::Role::kWorker;
    identity.site = parts[1];
    identity.name = parts[2];
    RETURN_IF_ERROR(ValidateName("site", identity.site));
    RETURN_IF_ERROR(ValidateName("worker", identity.name));
    return identity;
  }
  return absl::InvalidArgumentError(
      "the certificate's identity is none of coordinator, operator/NAME, worker/SITE/NAME");
}

absl::StatusOr<PeerIdentity> ParseCertificate(absl::string_view pem) {
  ASSIGN_OR_RETURN(Certificate certificate, ParsePem(pem));
  return IdentityOf(certificate.get());
}

absl::Status CheckKeyMatches(absl::string_view certificate_pem, absl::string_view key_pem) {
  ASSIGN_OR_RETURN(Certificate certificate, ParsePem(certificate_pem));
  ASSIGN_OR_RETURN(Key key, ParseKey(key_pem));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the key does not belong to the certificate");
  }
  return absl::OkStatus();
}

absl::StatusOr<CertificateInfo> DescribeCertificate(absl::string_view pem) {
  ASSIGN_OR_RETURN(Certificate certificate, ParsePem(pem));
  CertificateInfo info;
  ASSIGN_OR_RETURN(info.serial, SerialOf(certificate.get()));
  ASSIGN_OR_RETURN(info.sha256, Pin(certificate.get()));
  info.validity = {.not_before = ToTime(X509_get0_notBefore(certificate.get())),
                   .not_after = ToTime(X509_get0_notAfter(certificate.get()))};
  return info;
}

absl::StatusOr<std::string> CaPin(absl::string_view ca_pem) {
  ASSIGN_OR_RETURN(Certificate certificate, ParsePem(ca_pem));
  return Pin(certificate.get());
}

absl::StatusOr<std::vector<std::string>> FetchServerChain(const std::string& host, int port, absl::Time deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  const std::string where = absl::StrCat(host, ":", port);
  if (int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &addresses); error != 0) {
    return absl::UnavailableError(absl::StrCat(where, ": ", gai_strerror(error)));
  }
  absl::Cleanup free_addresses = [&] { freeaddrinfo(addresses); };
  absl::Status status = absl::UnavailableError(absl::StrCat(where, ": no address"));
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    absl::Cleanup close_fd = [&] { close(fd); };
    status = Annotate(ConnectTo(*address, deadline, fd), where);
    if (!status.ok()) continue;
    ASSIGN_OR_RETURN(std::vector<std::string> chain, Handshake(fd, deadline), where);
    return chain;
  }
  return status;
}

absl::StatusOr<std::string> VerifyChainAgainstPin(const std::vector<std::string>& chain, absl::string_view pin,
                                                  absl::Time wall_now) {
  absl::string_view digits = pin;
  if (!absl::ConsumePrefix(&digits, kPinPrefix) || !FromHex(digits).ok() || digits.size() != 2 * kSha256Bytes) {
    return absl::InvalidArgumentError("a pin is sha256: and 64 hexadecimal digits");
  }
  const std::string wanted = absl::AsciiStrToLower(pin);
  Certificate leaf;
  Certificate ca;
  std::vector<std::string> found;
  for (const std::string& pem : chain) {
    absl::StatusOr<Certificate> certificate = ParsePem(pem);
    if (!certificate.ok()) return absl::PermissionDeniedError(certificate.status().message());
    ASSIGN_OR_RETURN(std::string its_pin, Pin(certificate->get()));
    found.push_back(its_pin);
    if (leaf == nullptr) {
      leaf = *std::move(certificate);
    } else if (its_pin == wanted) {
      ca = *std::move(certificate);
    }
  }
  if (ca == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat("the server's CA is not the one of the pin ", wanted,
                                                    "; the server presents ", absl::StrJoin(found, ", ")));
  }
  std::unique_ptr<X509_STORE, Free<X509_STORE_free>> store(X509_STORE_new());
  std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>> check(X509_STORE_CTX_new());
  if (X509_STORE_add_cert(store.get(), ca.get()) != 1 ||
      X509_STORE_CTX_init(check.get(), store.get(), leaf.get(), nullptr) != 1) {
    return Failed("check a certificate");
  }
  X509_VERIFY_PARAM* parameters = X509_STORE_CTX_get0_param(check.get());
  X509_VERIFY_PARAM_set_purpose(parameters, X509_PURPOSE_SSL_SERVER);
  X509_VERIFY_PARAM_set_time(parameters, absl::ToTimeT(wall_now));
  X509_VERIFY_PARAM_set1_host(parameters, kCoordinatorDnsName, 0);
  if (X509_verify_cert(check.get()) != 1) {
    ERR_clear_error();
    return absl::PermissionDeniedError(
        absl::StrCat("the server's certificate does not verify: ",
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get()))));
  }
  absl::StatusOr<PeerIdentity> identity = IdentityOf(leaf.get());
  if (!identity.ok() || identity->role != PeerIdentity::Role::kCoordinator) {
    return absl::PermissionDeniedError("the server is no coordinator");
  }
  return ToPem(ca.get());
}

}  // namespace causeway::dataplane
