#include "base/control/digest.h"

#include <cstring>

namespace muster {
namespace {

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void AddFields(const Welcome& m, Digest& d) { d.Add(m.fleet_id); }
void AddFields(const Evicted& m, Digest& d) { d.Add(static_cast<uint64_t>(m.permanent)); }
void AddFields(const Propose& m, Digest& d) {
  d.Add(m.epoch);
  d.Add(m.job);
  d.Add(m.members.size());
  for (Incarnation member : m.members) d.Add(member);
  d.Add(m.sealed);
}
void AddFields(const Activate& m, Digest& d) {
  d.Add(m.view);
  d.Add(m.roll_forward);
  d.Add(static_cast<uint64_t>(m.fresh_start.has_value()));
  if (m.fresh_start.has_value()) d.Add(m.fresh_start->checkpoint);
  d.Add(static_cast<uint64_t>(m.move.has_value()));
  if (m.move.has_value()) {
    d.Add(m.move->view);
    for (Incarnation giver : m.move->givers) d.Add(giver);
  }
}
void AddFields(const Pause& m, Digest& d) { d.Add(m.epoch); }
void AddFields(const Learn& m, Digest& d) {
  d.Add(m.job);
  d.Add(m.epoch);
  d.Add(m.source.incarnation);
  d.Add(static_cast<uint64_t>(m.sharded));
}
void AddFields(const Seal& m, Digest& d) {
  d.Add(m.epoch);
  d.Add(m.tag);
}
void AddFields(const CommitCheckpoint& m, Digest& d) { d.Add(m.tag); }
void AddFields(const EndJob& m, Digest& d) {
  d.Add(m.job);
  d.Add(static_cast<uint64_t>(m.outcome) | static_cast<uint64_t>(m.unknown) << 8);
}
void AddFields(const Dismiss& m, Digest& d) {
  d.Add(m.job);
  d.Add(m.epoch);
}
void AddFields(const Release&, Digest&) {}

}  // namespace

void Digest::Add(absl::string_view text) {
  Add(text.size());
  while (text.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, text.data(), sizeof(word));
    Add(word);
    text.remove_prefix(sizeof(word));
  }
  uint64_t rest = 0;
  for (char c : text) rest = rest << 8 | static_cast<unsigned char>(c);
  Add(rest);
}

void Digest::Add(const StateTag& tag) {
  Add(tag.branch);
  Add(static_cast<uint64_t>(tag.step));
  Add(tag.epoch);
}

void Digest::Add(const CommitRecord& record) {
  Add(static_cast<uint64_t>(record.step));
  Add(record.epoch);
  Add(Bits(record.loss_sum));
  Add(static_cast<uint64_t>(record.samples));
  Add(static_cast<uint64_t>(record.correct));
  Add(Bits(record.gradient_norm));
  Add(static_cast<uint64_t>(record.finite | record.pause << 1));
  Add(record.tensor_factors.size());
  for (const double factor : record.tensor_factors) Add(Bits(factor));
}

void Digest::Add(const Prepared& prepared) {
  Add(static_cast<uint64_t>(prepared.step));
  Add(prepared.epoch);
}

void Digest::Add(const CheckpointReport& report) {
  Add(report.tag);
  Add(report.path);
  Add(report.checksum);
  Add(static_cast<uint64_t>(report.part));
  Add(static_cast<uint64_t>(report.parts));
}

void Digest::Add(const View& view) {
  Add(view.epoch);
  Add(view.job);
  Add(view.members.size());
  for (const Member& member : view.members) {
    Add(member.incarnation);
    Add(static_cast<uint64_t>(member.role));
  }
  Add(view.resume);
  Add(static_cast<uint64_t>(view.hold));
  Add(view.strategy);
  Add(view.leaving.size());
  for (Incarnation incarnation : view.leaving) Add(incarnation);
}

void Digest::Add(const Strategy& strategy) {
  Add(static_cast<uint64_t>(strategy.stage) << 8 | static_cast<uint64_t>(strategy.replicas) << 16 |
      static_cast<uint64_t>(strategy.algorithm) << 24 |
      static_cast<uint64_t>(strategy.transport) << 32 | static_cast<uint64_t>(strategy.sync) << 40 |
      static_cast<uint64_t>(strategy.mixed) << 47 | static_cast<uint64_t>(strategy.servers) << 48);
  Add(static_cast<uint64_t>(strategy.group_size) << 1 |
      static_cast<uint64_t>(strategy.host_groups));
}

void Digest::Add(const Directive& directive) {
  Add(directive.index());
  std::visit([this](const auto& message) { AddFields(message, *this); }, directive);
}

void Digest::Add(const WorkerStatus& status) {
  Add(static_cast<uint64_t>(status.phase));
  Add(status.job);
  Add(status.seen_epoch);
  Add(status.answered_epoch);
  Add(status.active_epoch);
  Add(static_cast<uint64_t>(status.has_state | status.caught_up << 1 | status.drain_requested << 2 |
                            status.final_report.has_value() << 3));
  Add(status.applied);
  Add(status.stable);
  Add(status.holdings.map);
  Add(status.holdings.next);
  Add(static_cast<uint64_t>(status.holdings.whole));
  Add(status.prepared);
  Add(status.record);
  Add(status.learned);
  Add(status.failure);
  Add(status.durable);
  Add(status.committed);
  Add(static_cast<uint64_t>(status.state_size.has_value() | status.links.has_value() << 1));
}

void Digest::Add(const LinkSpeeds& links) {
  Add(static_cast<uint64_t>(links.ranks));
  for (const double seconds :
       {links.latency_seconds, links.message_seconds, links.wire_seconds, links.one_way_seconds,
        links.reduce_seconds, links.meet_seconds, links.shared_seconds}) {
    Add(Bits(seconds));
  }
}

}  // namespace muster
