#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace muster {

void Sha256::Deleter::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  MUSTER_CHECK(context_ != nullptr) << "out of memory";
  MUSTER_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::string_view bytes) {
  MUSTER_CHECK(context_ != nullptr) << "the stream has ended";
  MUSTER_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::HexDigest() {
  MUSTER_CHECK(context_ != nullptr) << "the stream has ended";
  std::array<unsigned char, 32> digest;
  unsigned int size = 0;
  MUSTER_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
  MUSTER_CHECK_EQ(size, digest.size());
  context_.reset();
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.HexDigest();
}

}  // namespace muster
