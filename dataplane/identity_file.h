#ifndef CAUSEWAY_DATAPLANE_IDENTITY_FILE_H_
#define CAUSEWAY_DATAPLANE_IDENTITY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/file.h"

namespace causeway::dataplane {

// A certificate, those behind it, and its private key in one file of mode 0600, so that a renewal replaces all of it at once: who opens the
// file reads the old pair or the new one. Any thread, blocking. Errors of all: those of FileSystem.

// Whether PEM text holds a private key.
bool HoldsKey(absl::string_view pem);

// Errors: also InvalidArgument (the key is not the first certificate's).
absl::Status WriteIdentityFile(FileSystem* fs, const std::string& path, absl::string_view certificates_pem,
                               absl::string_view key_pem);

// Puts a key that still lies in a file of its own, as joining and `causeway init` leave it, into the certificate's file, and removes the
// former. A try that was broken off may be repeated; done already is OK. Errors: as above.
absl::Status MergeIdentityFile(FileSystem* fs, const std::string& certificate_path, const std::string& key_path);

}  // namespace causeway::dataplane

#endif  // CAUSEWAY_DATAPLANE_IDENTITY_FILE_H_
