// SHA-256 (FIPS 180-4) over a stream of bytes.
//
// Thread-compatible. Cannot fail: a failure inside the crypto library is a check failure.
#ifndef MUSTER_BASE_SHA256_H_
#define MUSTER_BASE_SHA256_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace muster {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view bytes);

  // 64 lower-case hexadecimal digits. Ends the stream: nothing may be called afterwards.
  std::string HexDigest();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
};

// The digest of `bytes` alone.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace muster

#endif  // MUSTER_BASE_SHA256_H_
