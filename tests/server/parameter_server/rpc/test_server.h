// Parameter servers on free loopback ports, and clients of them, for tests.
#ifndef MUSTER_TESTS_SERVER_PARAMETER_SERVER_RPC_TEST_SERVER_H_
#define MUSTER_TESTS_SERVER_PARAMETER_SERVER_RPC_TEST_SERVER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/parameters/parameter_table.h"
#include "gtest/gtest.h"
#include "muster/v1/parameter_server.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "server/parameter_server/rpc/parameter_server.h"

namespace muster {

class TestServer {
 public:
  explicit TestServer(ParameterServerOptions options = {}) : logger_(MakeSilentLogger()) {
    options.listen_address = "127.0.0.1:0";
    options.tick = absl::Milliseconds(10);
    auto started = ParameterServer::Start(options, *logger_, nullptr);
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    stub_ = v1::ParameterServer::NewStub(NewChannel(server_->address()));
  }
  ParameterServer& server() { return *server_; }
  const std::string& address() const { return server_->address(); }
  v1::ParameterServer::Stub& stub() { return *stub_; }

 private:
  const std::unique_ptr<Logger> logger_;
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
};

// Plain SGD of rate 1 on one tensor of zeros.
inline v1::TableSpec DenseSpec(int64_t elements, int contributors = 1) {
  v1::TableSpec spec;
  spec.set_name("t");
  v1::DenseTensor& tensor = *spec.mutable_dense()->add_tensors();
  tensor.set_name("w");
  tensor.add_shape(elements);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_learning_rate()->set_peak(1);
  spec.set_contributors(contributors);
  return spec;
}

inline v1::TableSpec SparseSpec(int64_t rows, int64_t width, int contributors = 1) {
  v1::TableSpec spec = DenseSpec(1, contributors);
  spec.mutable_sparse()->set_rows(rows);
  spec.mutable_sparse()->set_width(width);
  return spec;
}

inline absl::StatusOr<std::unique_ptr<ParameterTable>> TryOpen(
    const std::vector<std::string>& servers, const v1::TableSpec& spec,
    std::optional<int32_t> contributor, absl::Duration timeout = absl::Seconds(30)) {
  ParameterTableOptions options;
  options.servers = servers;
  options.spec = spec;
  options.contributor = contributor;
  options.timeout = timeout;
  return ParameterTable::Open(options);
}

inline std::unique_ptr<ParameterTable> OpenTable(const std::vector<std::string>& servers,
                                                 const v1::TableSpec& spec,
                                                 std::optional<int32_t> contributor,
                                                 absl::Duration timeout = absl::Seconds(30)) {
  auto table = TryOpen(servers, spec, contributor, timeout);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : nullptr;
}

}  // namespace muster

#endif  // MUSTER_TESTS_SERVER_PARAMETER_SERVER_RPC_TEST_SERVER_H_
