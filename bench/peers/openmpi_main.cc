// bench-peer-openmpi: Open MPI's collectives as ranks that a bench commands (through mpirun, which
// hands standard input to rank 0). The variant is ignored: Open MPI's tuned component chooses. Only
// the C interface. 16-bit floats are moved, not reduced: Open MPI 4 has no such types.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>

#include "bench/collectives/rank_group.h"

namespace {

using muster::bench::BenchRank;
using muster::bench::ElementType;
using muster::bench::Kind;
using muster::bench::Redop;
using muster::bench::Trial;

MPI_Datatype TypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return MPI_FLOAT;
    case ElementType::kF64:
      return MPI_DOUBLE;
    case ElementType::kF16:
    case ElementType::kBF16:
      return MPI_UINT16_T;
    case ElementType::kI32:
      return MPI_INT32_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op OpOf(Redop redop) {
  switch (redop) {
    case Redop::kSum:
      return MPI_SUM;
    case Redop::kMin:
      return MPI_MIN;
    case Redop::kMax:
      return MPI_MAX;
    case Redop::kAverage:
      break;
  }
  return MPI_OP_NULL;
}

class MpiRank : public BenchRank {
 public:
  MpiRank(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  bool Supports(const Trial& trial) const override {
    if (!muster::bench::Reduces(trial.kind)) return true;
    // In place MPI leaves every rank's result at the start of the buffer, not in its own part.
    if (trial.kind == Kind::kReduceScatter && trial.in_place) return false;
    return muster::bench::SizeOf(trial.type) > 2 && trial.redop != Redop::kAverage;
  }

  void Run(const Trial& trial, const void* input, void* output) override {
    const int count = static_cast<int>(trial.count);
    const MPI_Datatype type = TypeOf(trial.type);
    const MPI_Op op = OpOf(trial.redop);
    const MPI_Comm all = MPI_COMM_WORLD;
    const bool root = rank_ == trial.root;
    const void* const from = trial.in_place ? MPI_IN_PLACE : input;
    switch (trial.kind) {
      case Kind::kAllReduce:
        MPI_Allreduce(from, output, count, type, op, all);
        break;
      case Kind::kReduceScatter:
        MPI_Reduce_scatter_block(input, output, count, type, op, all);
        break;
      case Kind::kAllGather:
        MPI_Allgather(from, count, type, output, count, type, all);
        break;
      case Kind::kBroadcast:
        Broadcast(count, type, trial, input, output);
        break;
      case Kind::kReduce:
        MPI_Reduce(root ? from : input, output, count, type, op, trial.root, all);
        break;
      case Kind::kGather:
        MPI_Gather(root ? from : input, count, type, output, count, type, trial.root, all);
        break;
      case Kind::kScatter:
        MPI_Scatter(input, count, type, root && trial.in_place ? MPI_IN_PLACE : output, count, type,
                    trial.root, all);
        break;
      case Kind::kAllToAll:
        MPI_Alltoall(input, count, type, output, count, type, all);
        break;
      case Kind::kSendReceive:
        MPI_Sendrecv(input, count, type, (rank_ + 1) % ranks_, 0, output, count, type,
                     (rank_ + ranks_ - 1) % ranks_, 0, all, MPI_STATUS_IGNORE);
        break;
      case Kind::kBarrier:
        MPI_Barrier(all);
        break;
    }
  }

 private:
  // MPI's has one buffer; out of place the root has to copy.
  void Broadcast(int count, MPI_Datatype type, const Trial& trial, const void* input,
                 void* output) {
    if (rank_ != trial.root) {
      MPI_Bcast(output, count, type, trial.root, MPI_COMM_WORLD);
      return;
    }
    MPI_Bcast(const_cast<void*>(input), count, type, trial.root, MPI_COMM_WORLD);
    if (output != input) {
      std::memcpy(output, input, trial.count * muster::bench::SizeOf(trial.type));
    }
  }

  const int rank_;
  const int ranks_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MpiRank mpi_rank(rank, ranks);
  muster::bench::TrialBuffers buffers;
  while (true) {
    Trial trial;
    if (rank == 0) {
      std::string line;
      std::getline(std::cin, line);
      trial = muster::bench::ParseTrial(line).value_or(Trial());
    }
    // Asleep, not spinning, while other implementations are measured.
    MPI_Request request;
    MPI_Ibcast(&trial, sizeof(trial), MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0) usleep(2000);
    }
    if (trial.iterations == 0) break;
    int64_t wrong = 0;
    const double own = muster::bench::TimeTrial(mpi_rank, buffers, rank, ranks, trial, &wrong);
    double microseconds = 0;
    MPI_Reduce(&own, &microseconds, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    long long mine = wrong, all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("%.3f %lld\n", microseconds, all);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
