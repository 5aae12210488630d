#include "tests/proto/convert/random_messages.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

using Random = std::mt19937_64;

bool Coin(Random& random) { return random() % 2 == 0; }
double Real(Random& random) { return std::uniform_real_distribution<double>(0, 1e6)(random); }
int64_t Below(Random& random, int64_t bound) { return static_cast<int64_t>(random() % bound); }
Epoch AnEpoch(Random& random) { return random() % kMaxEpoch; }

Incarnation AnIncarnation(Random& random) { return Incarnation{random() | 1}; }

std::string Text(Random& random, int most) {
  std::string text;
  for (int64_t i = Below(random, most + 1); i > 0; --i) {
    text += Below(random, 20) == 0 ? "\u00e9"
                                   : std::string(1, static_cast<char>(' ' + Below(random, 95)));
  }
  return text;
}

StateTag Tag(Random& random) {
  return {.branch = AnEpoch(random), .step = Below(random, kMaxJobSteps), .epoch = AnEpoch(random)};
}

CommitRecord Record(Random& random) {
  CommitRecord record;
  record.step = 1 + Below(random, kMaxJobSteps);
  record.epoch = AnEpoch(random);
  record.loss_sum = Real(random);
  record.samples = Below(random, 1'000'000);
  record.correct = Below(random, record.samples + 1);
  record.gradient_norm = Real(random);
  record.finite = Coin(random);
  if (!record.finite) record.loss_sum = std::numeric_limits<double>::infinity();
  record.pause = Coin(random);
  if (record.finite) {
    for (int64_t i = Below(random, 4); i > 0; --i) {
      record.tensor_factors.push_back(1e-3 + Real(random));
    }
  }
  return record;
}

Member AMember(Random& random, int64_t index) {
  return {.name = absl::StrCat("worker-", index),
          .incarnation = AnIncarnation(random),
          .host = Text(random, 20),
          .data_address = absl::StrCat("[::1]:", Below(random, 65'536)),
          .rpc_address = absl::StrCat("127.0.0.1:", Below(random, 65'536)),
          .device = Coin(random) ? "cpu" : ""};
}

Strategy AStrategy(Random& random) {
  Strategy strategy{.replicas = static_cast<int32_t>(Below(random, 9)),
                    .transport = static_cast<SyncTransport>(Below(random, 4))};
  if (Coin(random)) {
    strategy.stage = static_cast<int32_t>(Below(random, 4));
    strategy.algorithm = static_cast<SyncAlgorithm>(Below(random, 3));
  } else {
    strategy.sync = SyncPath::kParameterServer;
    strategy.servers = static_cast<int32_t>(Below(random, 5));
    strategy.mixed = strategy.servers > 0 && Coin(random);
  }
  return strategy;
}

View AView(Random& random) {
  View view;
  view.epoch = AnEpoch(random) | 1;
  view.job = absl::StrCat("job-", Below(random, 100));
  for (int64_t i = Below(random, 6); i >= 0; --i) view.members.push_back(AMember(random, i));
  view.resume = Tag(random);
  view.hold = Coin(random);
  const int64_t workers = 1 + Below(random, static_cast<int64_t>(view.members.size()));
  for (size_t i = static_cast<size_t>(workers); i < view.members.size(); ++i) {
    view.members[i].role = MemberRole::kParameterServer;
  }
  view.strategy = AStrategy(random);
  for (size_t i = 1; i < view.members.size(); ++i) {
    if (Below(random, 4) == 0) view.leaving.push_back(view.members[i].incarnation);
  }
  return view;
}

Progress AProgress(Random& random) {
  return {.step = Below(random, kMaxJobSteps),
          .loss = Real(random),
          .learning_rate = Real(random),
          .gradient_norm = Real(random),
          .samples_per_second = Real(random),
          .comm_wait_share = Real(random),
          .step_ms_p50 = Real(random),
          .step_ms_p99 = Real(random),
          .skipped_steps = Below(random, 1'000),
          .test_accuracy = Coin(random) ? std::nullopt : std::optional(Real(random)),
          .test_loss = Coin(random) ? std::nullopt : std::optional(Real(random))};
}

CheckpointReport Report(Random& random) {
  return {.tag = Tag(random),
          .path = "/" + Text(random, 30),
          .checksum = Text(random, 64),
          .part = 2,
          .parts = 5};
}

CommunicationPath APath(Random& random) {
  CommunicationPath path{.transport = "shm", .provider = Text(random, 10), .why = Text(random, 99)};
  for (int64_t i = Below(random, 4); i > 0; --i) {
    const int64_t least = Below(random, 1 << 20);
    path.algorithms.push_back({.collective = "all-reduce",
                               .algorithm = "ring",
                               .least_bytes = least,
                               .most_bytes = least + Below(random, 1 << 20),
                               .automatic = Coin(random),
                               .why = Text(random, 40)});
  }
  return path;
}

CollectiveWait AWait(Random& random) {
  CollectiveWait wait{.operation = "o" + Text(random, 40),
                      .label = Text(random, 10),
                      .step = Below(random, kMaxJobSteps),
                      .waited_ms = Below(random, 100'000),
                      .late = Coin(random)};
  for (int64_t i = Below(random, 5); i >= 0; --i) {
    wait.waits_for.push_back(static_cast<Rank>(Below(random, kMaxMembers)));
  }
  return wait;
}

StateSize ASize(Random& random) {
  const int64_t elements = 1 + Below(random, int64_t{1} << 40);
  return {.elements = elements,
          .largest_block = 1 + Below(random, elements),
          .gathered_blocks = 3 + static_cast<int32_t>(Below(random, 10)),
          .bucket = 1 + Below(random, 1 << 20),
          .slots = static_cast<int32_t>(Below(random, 3)),
          .parameter_bytes = Coin(random) ? 2 : 4,
          .gradient_bytes = Coin(random) ? 2 : 4,
          .micro_batches = 1 + static_cast<int32_t>(Below(random, 100)),
          .carried_bytes = Coin(random) ? 8 : 0};
}

LinkSpeeds Speeds(Random& random) {
  return {.ranks = 1 + static_cast<int32_t>(Below(random, kMaxMembers)),
          .latency_seconds = Real(random),
          .message_seconds = Real(random),
          .wire_seconds = Real(random),
          .one_way_seconds = Real(random),
          .reduce_seconds = Real(random),
          .meet_seconds = Real(random),
          .shared_seconds = Real(random)};
}

WorkerStatus Status(Random& random) {
  WorkerStatus status;
  status.sequence = random();
  status.phase = static_cast<WorkerPhase>(1 + Below(random, 9));
  status.holdings = {.map = AnEpoch(random), .next = AnEpoch(random), .whole = Coin(random)};
  status.job = Text(random, 20);
  status.seen_epoch = AnEpoch(random);
  status.answered_epoch = AnEpoch(random);
  status.active_epoch = AnEpoch(random);
  status.has_state = Coin(random);
  if (status.has_state) status.applied = Tag(random);
  if (status.has_state) status.stable = Tag(random);
  if (Coin(random)) status.prepared = Prepared{1 + Below(random, 1'000), AnEpoch(random)};
  if (Coin(random)) status.record = Record(random);
  if (Coin(random)) status.learned = Tag(random);
  status.caught_up = Coin(random);
  status.drain_requested = Coin(random);
  status.failure = Text(random, 100);
  if (Coin(random)) status.durable = Report(random);
  if (Coin(random)) status.committed = Report(random);
  if (Coin(random)) status.progress = AProgress(random);
  if (Coin(random)) {
    status.final_report = FinalReport{AProgress(random), Text(random, 50), Text(random, 64)};
  }
  if (Coin(random)) status.path = APath(random);
  if (Coin(random)) status.wait = AWait(random);
  if (Coin(random)) status.state_size = ASize(random);
  if (Coin(random)) status.links = Speeds(random);
  if (Coin(random)) status.checkpoint_failure = CheckpointFailure{Tag(random), Text(random, 99)};
  return status;
}

}  // namespace

WorkerMessage RandomWorkerMessage(Random& random) {
  switch (random() % 3) {
    case 0:
      return Hello{.self = AMember(random, 1),
                   .protocol_version = static_cast<uint32_t>(random()),
                   .software_version = Text(random, 10),
                   .fleet_id = Text(random, 20),
                   .highest_epoch = AnEpoch(random),
                   .highest_term = AnEpoch(random),
                   .memory = {.process_bytes = Below(random, INT64_MAX),
                              .host_bytes = Below(random, INT64_MAX)}};
    case 1:
      return Status(random);
    default:
      return Suspicion{.epoch = AnEpoch(random),
                       .suspect = Coin(random) ? AnIncarnation(random) : Incarnation{},
                       .reason = Text(random, 100)};
  }
}

Directive RandomDirective(Random& random) {
  switch (random() % 11) {
    case 0: {
      const int64_t heartbeat = 1 + Below(random, 10'000);
      return Welcome{.fleet_id = "f" + Text(random, 20),
                     .heartbeat_ms = heartbeat,
                     .lease_ms = heartbeat + Below(random, 10'000),
                     .orphan_timeout_ms = 1 + Below(random, 10'000)};
    }
    case 1:
      return Evicted{.reason = Text(random, 100), .permanent = Coin(random)};
    case 2: {
      Propose propose{.epoch = AnEpoch(random) | 1, .job = "j" + Text(random, 20)};
      for (int64_t i = Below(random, 6); i >= 0; --i) {
        propose.members.push_back(AnIncarnation(random));
      }
      if (Coin(random)) propose.sealed = Tag(random);
      return propose;
    }
    case 3: {
      Activate activate{.view = AView(random)};
      if (Coin(random)) activate.roll_forward = Record(random);
      if (Coin(random)) activate.fresh_start = FreshStart{Text(random, 30)};
      return activate;
    }
    case 4:
      return Pause{.epoch = AnEpoch(random) | 1};
    case 5:
      return Learn{.job = "j" + Text(random, 20),
                   .epoch = AnEpoch(random) | 1,
                   .source = AMember(random, 3),
                   .sharded = Coin(random)};
    case 6:
      return Seal{.epoch = AnEpoch(random) | 1, .tag = Tag(random)};
    case 7:
      return CommitCheckpoint{.tag = Tag(random)};
    case 8:
      return EndJob{.job = "j" + Text(random, 20),
                    .outcome = static_cast<JobState>(5 + Below(random, 3)),
                    .reason = Text(random, 100),
                    .unknown = Below(random, 2) == 1};
    case 9:
      return Dismiss{.job = "j" + Text(random, 20), .epoch = AnEpoch(random) | 1};
    default:
      return Release{.reason = Text(random, 100)};
  }
}

}  // namespace muster
