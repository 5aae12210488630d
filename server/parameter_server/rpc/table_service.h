// muster.v1.ParameterServer, on gRPC's callback API. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_SERVICE_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_SERVICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "muster/v1/parameter_server.grpc.pb.h"
#include "server/parameter_server/rpc/server_parts.h"

namespace muster {

// What moves data sees bytes, the rest messages.
using TableServiceBase = v1::ParameterServer::WithRawCallbackMethod_Transfer<
    v1::ParameterServer::WithRawCallbackMethod_Snapshot<
        v1::ParameterServer::WithRawCallbackMethod_Restore<
            v1::ParameterServer::WithCallbackMethod_CreateTable<
                v1::ParameterServer::WithCallbackMethod_DropTable<
                    v1::ParameterServer::WithCallbackMethod_ListTables<
                        v1::ParameterServer::WithCallbackMethod_Attach<
                            v1::ParameterServer::WithCallbackMethod_KeepAlive<
                                v1::ParameterServer::WithCallbackMethod_Detach<
                                    v1::ParameterServer::WithCallbackMethod_RemoveContributor<
                                        v1::ParameterServer::WithCallbackMethod_PrepareStep<
                                            v1::ParameterServer::WithCallbackMethod_CommitStep<
                                                v1::ParameterServer::Service>>>>>>>>>>>>;

class TableService final : public TableServiceBase {
 public:
  explicit TableService(const ServerParts& parts) : parts_(parts) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Unary = grpc::ServerUnaryReactor;
  using Bytes = grpc::ByteBuffer;

  Unary* CreateTable(Context* context, const v1::CreateTableRequest* request,
                     v1::CreateTableResponse* response) override;
  Unary* DropTable(Context* context, const v1::DropTableRequest* request,
                   v1::DropTableResponse* response) override;
  Unary* ListTables(Context* context, const v1::ListTablesRequest* request,
                    v1::ListTablesResponse* response) override;
  Unary* Attach(Context* context, const v1::AttachRequest* request,
                v1::AttachResponse* response) override;
  Unary* KeepAlive(Context* context, const v1::KeepAliveRequest* request,
                   v1::KeepAliveResponse* response) override;
  Unary* Detach(Context* context, const v1::DetachRequest* request,
                v1::DetachResponse* response) override;
  Unary* RemoveContributor(Context* context, const v1::RemoveContributorRequest* request,
                           v1::RemoveContributorResponse* response) override;
  Unary* PrepareStep(Context* context, const v1::PrepareStepRequest* request,
                     v1::PrepareStepResponse* response) override;
  Unary* CommitStep(Context* context, const v1::CommitStepRequest* request,
                    v1::CommitStepResponse* response) override;
  grpc::ServerBidiReactor<Bytes, Bytes>* Transfer(Context* context) override;
  grpc::ServerWriteReactor<Bytes>* Snapshot(Context* context, const Bytes* request) override;
  grpc::ServerReadReactor<Bytes>* Restore(Context* context, Bytes* response) override;

  // Ends a call with what `work` on the table of this name returns.
  Unary* OnTable(Context* context, const std::string& name,
                 std::function<absl::Status(const TableHost::Access& access)> work);

  const ServerParts parts_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_TABLE_SERVICE_H_
