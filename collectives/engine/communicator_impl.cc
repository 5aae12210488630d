#include "collectives/engine/communicator_impl.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "collectives/engine/resolve_options.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

// Calls of different kinds whose plans are kept.
constexpr size_t kMaxPlans = 1024;
// How often an idle communicator looks at its data connections, where only a mismatched call of a
// peer can have arrived.
constexpr absl::Duration kIdleLook = absl::Milliseconds(100);

template <typename Integer>
absl::string_view BytesOf(const std::vector<Integer>& values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(Integer));
}

uint64_t HashParts(const ScheduleRequest& request) {
  uint64_t hash = request.counts.empty() ? 0 : StableHash(BytesOf(request.counts));
  if (!request.order_counts.empty()) hash = hash * 31 + StableHash(BytesOf(request.order_counts));
  if (!request.hosts.empty()) hash = hash * 31 + StableHash(BytesOf(request.hosts));
  return hash;
}

uint64_t ScopeOf(const Call& call, absl::Span<const Rank> members) {
  const ScheduleRequest& request = call.request;
  if (request.collective != Collective::kSendReceive) {
    return call.group == nullptr ? 0 : call.group->scope;
  }
  if (members.empty()) return ScopeOfPair(request.root, request.destination);
  return ScopeOfPair(members[request.root], members[request.destination]);
}

}  // namespace

CommunicatorImpl::CommunicatorImpl(std::unique_ptr<Transport> transport,
                                   CommunicatorOptions options)
    : transport_(std::move(transport)),
      options_(ResolveOptions(std::move(options), *transport_)),
      engine_(*transport_, options_.spin),
      wait_watch_(options_.wait_report_interval),
      window_sizes_(WindowSizesOf(*transport_, options_)),
      chooser_(options_, WindowChoiceOf(*transport_, options_)),
      background_([this] { Background(); }) {}

CommunicatorImpl::~CommunicatorImpl() {
  Shut(absl::CancelledError("the communicator is closed"), std::nullopt, /*goodbye=*/true);
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  transport_->WakeWatcher();
  background_.join();
}

void CommunicatorImpl::SetModel(std::shared_ptr<const LinkModel> model) {
  MutexLock lock(&mu_);
  chooser_.SetModel(std::move(model));
  // What is in use is told anew: until now it was the measuring's.
  plans_.clear();
  last_.reset();
  uses_ = AlgorithmUses();
}

ChoiceRequest CommunicatorImpl::ChoiceRequestFor(Collective collective, int64_t count, DType dtype,
                                                 int size) const {
  MutexLock lock(&mu_);
  return chooser_.RequestFor(collective, count, dtype, size);
}

AlgorithmExplanation CommunicatorImpl::ExplainChoice(const ChoiceRequest& request) {
  MutexLock lock(&mu_);
  return chooser_.Explain(request);
}

absl::StatusOr<int64_t> CommunicatorImpl::ResolveAlgorithm(Call& call, int64_t total,
                                                           absl::string_view* why) {
  ScheduleRequest& request = call.request;
  if (request.algorithm == Algorithm::kWindow) {
    const bool possible = transport_->window() != nullptr && call.group == nullptr &&
                          WindowSchedule::Supports(request.collective);
    if (possible) return options_.segment_bytes;
    return absl::InvalidArgumentError(
        absl::StrCat("the window algorithm needs ranks that share memory (transport shm) and a "
                     "collective that has it; this is ",
                     Name(request.collective), " over ", std::string(transport_->name())));
  }
  if (request.algorithm != Algorithm::kAuto) return options_.segment_bytes;
  if (request.collective == Collective::kAllToAll) {
    // What one rank sends: blocks are given once for all, or for all pairs.
    total = request.counts.empty() ? total * request.size : total / request.size;
  }
  ChoiceRequest question = chooser_.RequestFor(request.collective, total, call.dtype, request.size);
  question.root = request.root;
  question.contributors = request.contributors;
  question.hosts = call.hosts;
  if (call.group != nullptr) question.window.reset();
  const AlgorithmChooser::Chosen& chosen = chooser_.Choose(question);
  request.algorithm = chosen.algorithm;
  if (chosen.algorithm == Algorithm::kHierarchical) request.hosts = call.hosts;
  *why = chosen.why;
  return chosen.segment_bytes;
}

absl::Status CommunicatorImpl::Prepare(Call& call) {
  if (last_.has_value() && last_->IsOf(call)) {
    MUSTER_RETURN_IF_ERROR(CheckBuffers(call));
    if (call.request.in_place == last_->in_place) return absl::OkStatus();
    call.request.in_place = false;
  }
  Prepared prepared = {call.request, call.group, call.dtype, call.op, false, {}, {}};
  MUSTER_RETURN_IF_ERROR(CheckCall(call));
  ScheduleRequest& request = call.request;
  prepared.in_place = request.in_place;
  const Algorithm asked = request.algorithm;
  int64_t total = request.count;
  for (int64_t count : request.counts) total += count;
  absl::string_view why;  // the chooser's, until its next choice
  MUSTER_ASSIGN_OR_RETURN(const int64_t segment_bytes, ResolveAlgorithm(call, total, &why));
  absl::Span<const Rank> members;
  if (call.group != nullptr) members = call.group->members;
  PlanKey key = {request.collective,   request.algorithm,
                 call.dtype,           request.in_place,
                 request.root,         request.destination,
                 request.contributors, call.group == nullptr ? 0 : call.group->scope,
                 segment_bytes,        request.count,
                 request.counts,       request.order_counts};
  auto it = plans_.find(key);
  if (it == plans_.end()) {
    AnyPlan plan;
    if (request.algorithm == Algorithm::kWindow) {
      plan.in_window = MakeWindowPlan(request, call.dtype, window_sizes_, segment_bytes);
    } else {
      MUSTER_ASSIGN_OR_RETURN(plan.by_messages,
                              MakePlan(request, members, call.dtype, segment_bytes));
    }
    const int64_t bytes = total * static_cast<int64_t>(SizeOf(call.dtype));
    uses_.Note(request.collective, asked, request.algorithm, bytes, std::string(why));
    if (plans_.size() >= kMaxPlans) plans_.clear();
    it = plans_.emplace(std::move(key), std::move(plan)).first;
  }
  prepared.plan = it->second;
  Fingerprint& fingerprint = prepared.fingerprint;
  fingerprint.scope = ScopeOf(call, members);
  fingerprint.collective = static_cast<uint8_t>(request.collective);
  fingerprint.algorithm = static_cast<uint8_t>(request.algorithm);
  fingerprint.dtype = static_cast<uint8_t>(call.dtype);
  fingerprint.op = call.op.has_value() ? static_cast<uint8_t>(*call.op) : 0;
  // Those that have contributors have no root.
  fingerprint.root = request.contributors > 0 ? request.contributors : request.root;
  fingerprint.count = total;
  fingerprint.counts_hash = HashParts(request);
  fingerprint.segment_bytes = segment_bytes;
  last_ = std::move(prepared);
  return absl::OkStatus();
}

std::shared_ptr<Operation> CommunicatorImpl::Issue(Call call, const CollectiveOptions& options) {
  auto operation = std::make_shared<Operation>();
  operation->label = options.label;
  operation->step = options.step;
  absl::Status status;
  bool wake_driver = false;
  bool wake_background = false;
  {
    MutexLock lock(&mu_);
    if (failure_.has_value()) {
      operation->status = failure_->status;
      operation->culprit = failure_->culprit;
      operation->done = true;
      return operation;
    }
    status = Prepare(call);
    uint64_t* last_sequence = nullptr;
    if (status.ok()) {
      last_sequence = &last_sequences_[last_->fingerprint.scope];
      operation->plan = last_->plan.by_messages;
      operation->window_plan = last_->plan.in_window;
      operation->fingerprint = last_->fingerprint;
      operation->fingerprint.sequence = *last_sequence + 1;
      operation->op = call.op.value_or(ReduceOp::kSum);
      operation->input = static_cast<const std::byte*>(call.input);
      operation->output = static_cast<std::byte*>(call.output);
    }
    if (status.ok() && static_cast<int>(outstanding_.size()) >= options_.max_outstanding) {
      status = absl::ResourceExhaustedError(
          absl::StrCat(outstanding_.size(), " operations are outstanding; wait for some"));
    }
    if (status.ok()) ++*last_sequence;
    const bool starts = status.ok() && MayStartAtOnce(*operation, options);
    // First of all: its peers see it that much earlier, and come while the rest is noted.
    if (starts) status = engine_.Start(operation);
    operation->issued_at = absl::Now();
    operation->deadline =
        operation->issued_at +
        (options.timeout > absl::ZeroDuration() ? options.timeout : options_.default_timeout);
    outstanding_.push_back(operation);  // Also so that a failure reaches it.
    recorder_.Add(operation);
    if (starts) {
      operation->started_at = operation->issued_at;
    } else if (status.ok()) {
      queued_.push_back(operation);
      has_queued_ = true;
      // A driver busy with more than one operation comes for this one by itself.
      wake_driver = driven_ && outstanding_.size() <= Engine::kMostActive;
      wake_background = !driven_ && !options.caller_waits && waiting_ == 0;
    }
  }
  if (!status.ok()) {
    const std::string label = options.label.empty() ? "" : absl::StrCat(" '", options.label, "'");
    Shut(Annotate(status, absl::StrCat(Name(call.request.collective), label)), std::nullopt,
         /*goodbye=*/false);
  }
  if (wake_driver) transport_->Wake();
  if (wake_background) transport_->WakeWatcher();
  return operation;
}

bool CommunicatorImpl::MayStartAtOnce(const Operation& operation,
                                      const CollectiveOptions& options) const {
  // Without a driver the engine belongs to whoever holds mu_. In the window a start is short.
  return options.caller_waits && operation.window_plan != nullptr && !driven_ &&
         outstanding_.empty();
}

absl::Status CommunicatorImpl::Wait(Operation& operation) {
  const auto is_done = [&operation] { return operation.done.load(); };
  const auto may_go_on = [this, &operation]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return operation.done.load() || !driven_;
  };
  while (!operation.done) {
    {
      MutexLock lock(&mu_);
      if (driven_) {
        ++waiting_;
        ++waiting_hint_;
        mu_.Await(Condition(&may_go_on));
        --waiting_;
        --waiting_hint_;
      }
      if (operation.done) break;
      MUSTER_CHECK(!driven_);
      if (failure_.has_value()) {
        if (!says_goodbye_) FailOutstanding();
        mu_.Await(Condition(&is_done));  // Else Shut() fails it, once nothing touches its buffers.
        break;
      }
      driven_ = true;
    }
    Drive(&operation);
  }
  return operation.status;
}

bool CommunicatorImpl::StartQueued() {
  while (has_queued_ && engine_.HasRoom()) {
    std::shared_ptr<Operation> next;
    {
      MutexLock lock(&mu_);
      if (queued_.empty() || failure_.has_value()) return !failure_.has_value();
      next = std::move(queued_.front());
      queued_.pop_front();
      has_queued_ = !queued_.empty();
      next->started_at = absl::Now();
    }
    const absl::Status status = engine_.Start(std::move(next));
    if (!status.ok()) {
      MutexLock lock(&mu_);
      Record(status, std::nullopt);
      return false;
    }
  }
  return !failed_;
}

absl::Time CommunicatorImpl::WatchWait() {
  TellWait(wait_watch_.Look(engine_.moves(), absl::Now()));
  return wait_watch_.next_look();
}

// What was told of is over where the operation has moved, or nothing will any more.
void CommunicatorImpl::EndWait(bool failed) {
  if (!wait_watch_.reported()) return;
  if (wait_watch_.moves() == engine_.moves() && !failed) return;
  TellWait(wait_watch_.End(absl::Now()));
}

void CommunicatorImpl::TellWait(WaitWatch::Verdict verdict) {
  if (verdict == WaitWatch::Verdict::kNothing) return;
  wait_.over = verdict == WaitWatch::Verdict::kOver;
  wait_.waited = wait_watch_.waited();
  if (!wait_.over) {
    const Operation& operation = engine_.FrontOperation();
    wait_.what = Describe(operation.fingerprint);
    wait_.label = operation.label;
    wait_.step = operation.step;
    wait_.waits_for = engine_.FrontWaitsFor();
  }
  options_.on_wait(wait_);
}

void CommunicatorImpl::Drive(const Operation* own) {
  absl::Status status;
  const auto idle = [this] {
    return engine_.active() == 0 && !has_queued_ && !transport_->has_backlog();
  };
  const bool only_look = own == nullptr && idle();
  while (StartQueued()) {
    // Nobody waits for what the background thread does: then it leaves the cores to others.
    const bool awaited = own != nullptr || waiting_hint_ > 0;
    finished_.clear();
    absl::Time until = only_look ? absl::InfinitePast() : absl::InfiniteFuture();
    if (options_.on_wait && engine_.active() > 0) until = std::min(until, WatchWait());
    status = engine_.Progress(until, awaited, &finished_);
    if (!finished_.empty()) {
      const absl::Time now = absl::Now();
      MutexLock lock(&mu_);
      for (const auto& operation : finished_) {
        MUSTER_CHECK(!outstanding_.empty() && outstanding_.front() == operation);
        outstanding_.pop_front();
        operation->ended_at = now;
        operation->done = true;
      }
      if (status.ok() && own != nullptr && own->done && outstanding_.empty() &&
          !failure_.has_value() && !wait_watch_.reported()) {
        driven_ = false;  // The usual end, without another lock.
        if (transport_->has_backlog()) transport_->WakeWatcher();
        return;
      }
    }
    if (!status.ok() || only_look) break;
    if (own != nullptr ? own->done.load() : idle()) break;
  }
  EndWait(/*failed=*/!status.ok() || failed_);
  bool first = false;
  std::optional<MeshFailure> failure;
  bool says_goodbye = false;
  {
    MutexLock lock(&mu_);
    if (!status.ok()) first = Record(status, CulpritOf(status));
    failure = failure_;
    says_goodbye = says_goodbye_;
    if (!failure.has_value() || says_goodbye) {
      driven_ = false;
      // Whoever waits takes over by itself; otherwise the background thread does.
      if (says_goodbye || waiting_ > 0 || own == nullptr) return;
      if (outstanding_.empty() && !transport_->has_backlog()) return;
    }
  }
  if (!failure.has_value()) {
    transport_->WakeWatcher();
    return;
  }
  transport_->Close(failure->status, failure->culprit);
  {
    MutexLock lock(&mu_);
    driven_ = false;
    FailOutstanding();
  }
  if (first && options_.on_failure) options_.on_failure(*failure);
}

bool CommunicatorImpl::Record(const absl::Status& status, std::optional<Rank> culprit) {
  if (failure_.has_value()) return false;
  failure_ = MeshFailure{status, culprit};
  failed_ = true;
  return true;
}

void CommunicatorImpl::FailOutstanding() {
  const absl::Time now = absl::Now();
  for (const auto& operation : outstanding_) {
    operation->status = failure_->status;
    operation->culprit = failure_->culprit;
    operation->ended_at = now;
    operation->done = true;
  }
  outstanding_.clear();
  queued_.clear();
  has_queued_ = false;
}

void CommunicatorImpl::Shut(const absl::Status& reason, std::optional<Rank> culprit, bool goodbye) {
  bool first = false;
  {
    MutexLock lock(&mu_);
    first = Record(reason, culprit);
    // From here on the driver leaves it to this thread to close: its own word would be an abort.
    if (first) says_goodbye_ = goodbye;
  }
  transport_->Close(goodbye ? absl::OkStatus() : reason, culprit);
  std::optional<MeshFailure> failure;
  {
    MutexLock lock(&mu_);
    mu_.Await(Condition(this, &CommunicatorImpl::NoDriver));
    FailOutstanding();
    failure = failure_;
  }
  transport_->WakeWatcher();
  if (first && !goodbye && options_.on_failure) options_.on_failure(*failure);
}

std::optional<MeshFailure> CommunicatorImpl::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

std::vector<OperationRecord> CommunicatorImpl::RecentOperations() const {
  MutexLock lock(&mu_);
  return recorder_.Records();
}

std::vector<AlgorithmUse> CommunicatorImpl::AlgorithmsInUse() const {
  MutexLock lock(&mu_);
  return uses_.List();
}

void CommunicatorImpl::Background() {
  const auto may_go_on = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !driven_ || stopping_ || failure_.has_value();
  };
  while (true) {
    {
      MutexLock lock(&mu_);
      if (failure_.has_value()) {
        mu_.Await(Condition(&stopping_));
      }
      if (stopping_) return;
    }
    bool wanted = false;
    {
      MutexLock lock(&mu_);
      wanted = !driven_ && waiting_ == 0 && (!outstanding_.empty() || transport_->has_backlog());
    }
    if (!wanted) transport_->Watch(absl::Now() + kIdleLook);
    {
      MutexLock lock(&mu_);
      // While another drives, that one serves whatever the watch has seen.
      if (driven_) mu_.AwaitWithTimeout(Condition(&may_go_on), kIdleLook);
      if (driven_ || stopping_ || failure_.has_value() || waiting_ > 0) continue;
      driven_ = true;
    }
    Drive(nullptr);
  }
}

}  // namespace muster
