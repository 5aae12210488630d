// bench-peer-gloo RANKS: Gloo's collectives of f32 over its TCP transport on loopback, as ranks
// that a bench commands. Variants: ring, bcube for all-reduce; others have one way and go by the
// name ring. Buffers are registered once and reused. Gloo's reduce-scatter rounds the count up to a
// multiple of its own and has no such options: left out.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bench/collectives/rank_group.h"

namespace {

using muster::bench::BenchRank;
using muster::bench::ElementType;
using muster::bench::Kind;
using muster::bench::Redop;
using muster::bench::Trial;

class GlooRank : public BenchRank {
 public:
  GlooRank(int rank, int ranks, const std::string& folder) : rank_(rank), ranks_(ranks) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  bool Supports(const Trial& trial) const override {
    if (trial.type != ElementType::kF32 || trial.kind == Kind::kReduceScatter) return false;
    if (trial.kind != Kind::kAllReduce && std::string(trial.variant) == "bcube") return false;
    // Its options take parts from and to memory of their own.
    const bool in_parts = trial.kind == Kind::kAllGather || trial.kind == Kind::kGather ||
                          trial.kind == Kind::kScatter;
    if (trial.in_place && in_parts) return false;
    return !muster::bench::Reduces(trial.kind) || trial.redop == Redop::kSum;
  }

  void Run(const Trial& trial, const void* input, void* output) override {
    auto& run = runs_[std::make_tuple(trial.kind, trial.count, trial.root, input, output,
                                      std::string(trial.variant))];
    if (!run) {
      run = Prepare(trial, const_cast<float*>(static_cast<const float*>(input)),
                    static_cast<float*>(output));
    }
    run();
  }

 private:
  using Sum = void (*)(void*, const void*, const void*, size_t);

  // Options that are made once, and a call with them.
  std::function<void()> Prepare(const Trial& trial, float* input, float* output) {
    const size_t count = trial.count;
    const size_t whole = count * static_cast<size_t>(ranks_);
    const bool root = rank_ == trial.root;
    const Sum sum = &gloo::sum<float>;
    switch (trial.kind) {
      case Kind::kAllReduce: {
        auto options = std::make_shared<gloo::AllreduceOptions>(context_);
        options->setAlgorithm(std::string(trial.variant) == "bcube"
                                  ? gloo::AllreduceOptions::Algorithm::BCUBE
                                  : gloo::AllreduceOptions::Algorithm::RING);
        options->setInput(input, count);
        options->setOutput(output, count);
        options->setReduceFunction(sum);
        return [options] { gloo::allreduce(*options); };
      }
      case Kind::kAllGather: {
        auto options = std::make_shared<gloo::AllgatherOptions>(context_);
        options->setInput(input, count);
        options->setOutput(output, whole);
        return [options] { gloo::allgather(*options); };
      }
      case Kind::kBroadcast: {
        auto options = std::make_shared<gloo::BroadcastOptions>(context_);
        if (root && input != output) options->setInput(input, count);
        options->setOutput(output, count);
        options->setRoot(trial.root);
        return [options] { gloo::broadcast(*options); };
      }
      case Kind::kReduce: {
        auto options = std::make_shared<gloo::ReduceOptions>(context_);
        // Every rank needs an output there.
        if (output == nullptr) output = static_cast<float*>(Allocate(count * sizeof(float)));
        if (input != output) options->setInput(input, count);
        options->setOutput(output, count);
        options->setRoot(trial.root);
        options->setReduceFunction(sum);
        return [options] { gloo::reduce(*options); };
      }
      case Kind::kGather: {
        auto options = std::make_shared<gloo::GatherOptions>(context_);
        options->setInput(input, count);
        if (root) options->setOutput(output, whole);
        options->setRoot(trial.root);
        return [options] { gloo::gather(*options); };
      }
      case Kind::kScatter: {
        auto options = std::make_shared<gloo::ScatterOptions>(context_);
        if (root) {
          std::vector<float*> parts;
          for (int r = 0; r < ranks_; ++r) parts.push_back(input + static_cast<size_t>(r) * count);
          options->setInputs(parts, count);
        }
        options->setOutput(output, count);
        options->setRoot(trial.root);
        return [options] { gloo::scatter(*options); };
      }
      case Kind::kAllToAll: {
        auto options = std::make_shared<gloo::AlltoallOptions>(context_);
        options->setInput(input, whole);
        options->setOutput(output, whole);
        return [options] { gloo::alltoall(*options); };
      }
      case Kind::kSendReceive: {
        std::shared_ptr<gloo::transport::UnboundBuffer> from =
            context_->createUnboundBuffer(input, count * sizeof(float));
        std::shared_ptr<gloo::transport::UnboundBuffer> to =
            context_->createUnboundBuffer(output, count * sizeof(float));
        const int next = (rank_ + 1) % ranks_;
        const int before = (rank_ + ranks_ - 1) % ranks_;
        return [from, to, next, before] {
          from->send(next, 1);
          to->recv(before, 1);
          to->waitRecv();
          from->waitSend();
        };
      }
      case Kind::kBarrier: {
        auto options = std::make_shared<gloo::BarrierOptions>(context_);
        return [options] { gloo::barrier(*options); };
      }
      case Kind::kReduceScatter:
        break;
    }
    std::abort();  // Supports() said no.
  }

  const int rank_;
  const int ranks_;
  std::shared_ptr<gloo::Context> context_;
  std::map<std::tuple<Kind, uint64_t, int, const void*, void*, std::string>, std::function<void()>>
      runs_;
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: bench-peer-gloo RANKS\n");
    return 2;
  }
  char folder[] = "/tmp/bench-gloo-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const int code =
      muster::bench::ServeRanks(ranks, /*processes=*/true, [&](int rank, muster::bench::Exchange&) {
        return std::make_unique<GlooRank>(rank, ranks, folder);
      });
  const std::string remove = std::string("rm -rf ") + folder;
  return std::system(remove.c_str()) == 0 ? code : 1;
}
