#include "tests/sim/data_plane.h"

#include <limits>

namespace muster::sim {

Mesh& DataPlane::Open(const View& view) {
  Mesh& mesh = meshes_[view.epoch];
  if (mesh.ends.empty()) {
    mesh.view = view;
    mesh.ends.resize(view.members.size());
  }
  return mesh;
}

Mesh* DataPlane::Find(Epoch epoch) {
  auto it = meshes_.find(epoch);
  return it == meshes_.end() ? nullptr : &it->second;
}

const Mesh* DataPlane::Find(Epoch epoch) const { return const_cast<DataPlane*>(this)->Find(epoch); }

void DataPlane::Close(Incarnation incarnation, Epoch before) {
  for (auto& [epoch, mesh] : meshes_) {
    const Rank rank = mesh.view.RankOf(incarnation);
    if (epoch < before && rank >= 0) mesh.ends[static_cast<size_t>(rank)].closed = true;
  }
}

void DataPlane::Die(Incarnation incarnation) {
  Close(incarnation, std::numeric_limits<Epoch>::max());
  dead_.insert(incarnation);
}

Rank DataPlane::BrokenRank(const Mesh& mesh, Rank self) const {
  for (size_t i = 0; i < mesh.ends.size(); ++i) {
    if (static_cast<Rank>(i) == self) continue;
    if (mesh.ends[i].closed || IsDead(mesh.view.members[i].incarnation)) {
      return static_cast<Rank>(i);
    }
  }
  return -1;
}

void DataPlane::Forget(Epoch epoch) { meshes_.erase(meshes_.begin(), meshes_.lower_bound(epoch)); }

void DataPlane::Keep(const std::set<Epoch>& epochs, const std::set<Incarnation>& met) {
  std::set<Incarnation> keep = met;
  for (auto it = meshes_.begin(); it != meshes_.end();) {
    if (!epochs.contains(it->first)) {
      it = meshes_.erase(it);
      continue;
    }
    for (const Member& member : it->second.view.members) keep.insert(member.incarnation);
    ++it;
  }
  std::erase_if(dead_, [&keep](Incarnation incarnation) { return !keep.contains(incarnation); });
}

void DataPlane::AppendTo(Digest* digest) const {
  digest->Add(meshes_.size());
  for (const auto& [epoch, mesh] : meshes_) {
    digest->Add(epoch);
    for (const MeshEnd& end : mesh.ends) {
      digest->Add(static_cast<uint64_t>(end.open | end.closed << 1 | end.pause << 2 |
                                        end.resting << 3 | end.moving << 4 | end.moved << 5));
      digest->Add(static_cast<uint64_t>(end.entered));
      digest->Add(static_cast<uint64_t>(end.contributed));
      digest->Add(end.entered_chain);
      digest->Add(end.gift.has_value() ? end.gift->chain : 0);
      for (size_t shard : end.gift_shards) digest->Add(shard);
    }
  }
  for (Incarnation incarnation : dead_) digest->Add(incarnation);
}

}  // namespace muster::sim
