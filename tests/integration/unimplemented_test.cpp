// docs/unimplemented.md against the daemon: each method in its table answers UNIMPLEMENTED, and no other
// does.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <regex>
#include <set>

#include "base/os/files.h"
#include "base/os/subprocess.h"
#include "base/reason.h"
#include "rumbo/v1/admin.pb.h"
#include "rumbo/v1/device.pb.h"
#include "rumbo/v1/errors.pb.h"
#include "rumbo/v1/inference.pb.h"
#include "rumbo/v1/instance.pb.h"
#include "rumbo/v1/model.pb.h"
#include "rumbo/v1/plan.pb.h"

namespace rumbo {
namespace {

class DaemonProcess {
 public:
  DaemonProcess() {
    char name[] = "/tmp/rumbo-unimplemented-XXXXXX";
    dir_ = ::mkdtemp(name);
    SpawnSpec spec;
    spec.argv = {std::string(RUMBO_BIN_DIR) + "/rumbod",
                 "--socket",
                 socket(),
                 "--http",
                 "off",
                 "--state-dir",
                 dir_ + "/state",
                 "--cache-dir",
                 dir_ + "/cache"};
    spec.env = CleanEnvironment();
    spec.isolate = false;
    auto child = Spawn(spec);
    EXPECT_TRUE(child.ok()) << child.status();
    if (child.ok()) child_ = std::move(*child);
    channel_ = grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials());
    EXPECT_TRUE(channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20)));
  }
  ~DaemonProcess() {
    KillTree(child_);
    Reap(child_);
    std::filesystem::remove_all(dir_);
  }
  std::string socket() const { return dir_ + "/s"; }

  // The code that an empty request gets.
  grpc::StatusCode Call(const std::string& method) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice nothing;
    call->Write(grpc::ByteBuffer(&nothing, 1), nullptr);
    queue.Next(&tag, &ok);
    call->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
    if (ok) return grpc::StatusCode::OK;  // it has something to say
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return status.error_code();
  }

 private:
  std::string dir_;
  Child child_;
  std::shared_ptr<grpc::Channel> channel_;
};

std::set<std::string> MethodsInTheTable() {
  const auto text = ReadFile(std::string(RUMBO_SOURCE_DIR) + "/docs/unimplemented.md", 1 << 20);
  EXPECT_TRUE(text.ok());
  std::set<std::string> out;
  const std::regex cell("`([A-Za-z]+Service)\\.([A-Za-z]+)`( with)?");
  for (std::sregex_iterator it(text->begin(), text->end(), cell), end; it != end; ++it) {
    if (!(*it)[3].matched) out.insert("/rumbo.v1." + (*it)[1].str() + "/" + (*it)[2].str());
  }
  return out;
}

TEST(UnimplementedTest, TheTableIsTheTruth) {
  DaemonProcess daemon;
  const std::set<std::string> table = MethodsInTheTable();
  EXPECT_FALSE(table.empty());
  std::set<std::string> seen;
  for (const auto* message : {v1::GenerateRequest::descriptor(), v1::ListModelsRequest::descriptor(),
                              v1::MakePlanRequest::descriptor(), v1::ListDevicesRequest::descriptor(),
                              v1::ListInstancesRequest::descriptor(), v1::GetStatusRequest::descriptor()}) {
    ASSERT_EQ(message->file()->service_count(), 1);
    const auto* service = message->file()->service(0);
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = "/" + service->full_name() + "/" + service->method(i)->name();
      if (method == "/rumbo.v1.AdminService/Drain") continue;  // it would end the daemon
      if (daemon.Call(method) == grpc::StatusCode::UNIMPLEMENTED) seen.insert(method);
    }
  }
  EXPECT_EQ(seen, table);
}

// The reasons of base/reason.h are those of the wire, by name and number.
TEST(ReasonsTest, AreThoseOfTheWire) {
  const auto* values = v1::Reason_descriptor();
  std::set<std::string> wire, ours;
  for (int i = 0; i < values->value_count(); ++i) {
    wire.insert(values->value(i)->name() + "=" + std::to_string(values->value(i)->number()));
  }
#define RUMBO_X(name, number) \
  ours.insert("REASON_" + std::string(ReasonCode(Reason::k##name)) + "=" + std::to_string(number));
  RUMBO_REASONS(RUMBO_X)
#undef RUMBO_X
  EXPECT_EQ(wire, ours);
}

}  // namespace
}  // namespace rumbo
