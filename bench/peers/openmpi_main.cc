// bench-allreduce-openmpi: MPI_Allreduce as ranks that bench-allreduce commands (through mpirun,
// which hands standard input to rank 0). The variant is ignored: Open MPI's tuned component
// chooses. Only the C interface.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <sstream>

#include "bench/allreduce/rank_group.h"

namespace {

class MpiReducer : public muster::bench::AllReducer {
 public:
  void Run(const float* input, float* output, size_t count, const std::string&) override {
    MPI_Allreduce(input, output, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MpiReducer reducer;
  while (true) {
    long long command[2] = {0, 0};
    if (rank == 0) {
      std::string line;
      std::getline(std::cin, line);
      std::istringstream words(line);
      words >> command[0] >> command[1];
    }
    // Asleep, not spinning, while other implementations are measured.
    MPI_Request request;
    MPI_Ibcast(command, 2, MPI_LONG_LONG, 0, MPI_COMM_WORLD, &request);
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0) usleep(2000);
    }
    if (command[0] == 0) break;
    int64_t errors = 0;
    const double microseconds =
        muster::bench::TimeAllReduce(reducer, rank, ranks, static_cast<size_t>(command[0]),
                                     static_cast<int>(command[1]), "", &errors);
    long long mine = errors, all = 0;
    MPI_Reduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("%.3f %lld\n", microseconds, all);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
