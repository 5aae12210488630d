// bench-allreduce-gloo RANKS: Gloo's all-reduce over its TCP transport on loopback, as ranks that
// bench-allreduce commands. Variants: ring, bcube. Buffers are registered once and reused.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>

#include <cstdio>
#include <map>
#include <tuple>

#include "bench/allreduce/rank_group.h"

namespace {

class GlooReducer : public muster::bench::AllReducer {
 public:
  GlooReducer(int rank, int ranks, const std::string& folder) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  void Run(const float* input, float* output, size_t count, const std::string& variant) override {
    auto& options = options_[std::make_tuple(input, output, count, variant)];
    if (options == nullptr) {
      options = std::make_unique<gloo::AllreduceOptions>(context_);
      options->setAlgorithm(variant == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                               : gloo::AllreduceOptions::Algorithm::RING);
      options->setInput(const_cast<float*>(input), count);
      options->setOutput(output, count);
      void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
      options->setReduceFunction(sum);
    }
    gloo::allreduce(*options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::map<std::tuple<const float*, float*, size_t, std::string>,
           std::unique_ptr<gloo::AllreduceOptions>>
      options_;
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: bench-allreduce-gloo RANKS\n");
    return 2;
  }
  char folder[] = "/tmp/bench-gloo-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const int code =
      muster::bench::ServeRanks(ranks, /*processes=*/true, [&](int rank, muster::bench::Exchange&) {
        return std::make_unique<GlooReducer>(rank, ranks, folder);
      });
  const std::string remove = std::string("rm -rf ") + folder;
  return std::system(remove.c_str()) == 0 ? code : 1;
}
