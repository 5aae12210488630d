#include "client/job/config_builder.h"

#include "absl/status/statusor.h"
#include "base/check.h"

namespace muster {

void ConfigBuilder::Fail(Position position, absl::string_view text) {
  if (status_.ok()) status_ = PositionedError(position, "", text);
}

ConfigNode* ConfigBuilder::Place(Position position) {
  if (failed()) return nullptr;
  if (++count_ > kMaxConfigNodes) {
    Fail(position, absl::StrCat("more than ", kMaxConfigNodes, " values"));
    return nullptr;
  }
  if (open_.empty()) {
    MUSTER_CHECK(!has_root_);
    has_root_ = true;
    return &root_;
  }
  Open& parent = open_.back();
  if (parent.node->kind == ConfigNode::Kind::kList) return &parent.node->items.emplace_back();
  if (!parent.has_key) {
    Fail(position, "a field's name must be plain text");
    return nullptr;
  }
  parent.has_key = false;
  return &parent.node->entries.back().value;
}

void ConfigBuilder::Scalar(Position position, std::string text, bool quoted) {
  if (failed()) return;
  if (AtKey()) {
    open_.back().node->entries.push_back({std::move(text), position, {}});
    open_.back().has_key = true;
    return;
  }
  if (ConfigNode* node = Place(position)) {
    node->kind = ConfigNode::Kind::kScalar;
    node->position = position;
    node->scalar = std::move(text);
    node->quoted = quoted;
  }
}

void ConfigBuilder::Null(Position position) {
  if (ConfigNode* node = Place(position)) node->position = position;
}

void ConfigBuilder::Begin(Position position, ConfigNode::Kind kind) {
  ConfigNode* node = Place(position);
  if (node == nullptr) return;
  if (open_.size() >= kMaxConfigDepth) {
    Fail(position, absl::StrCat("nested deeper than ", kMaxConfigDepth));
    return;
  }
  node->kind = kind;
  node->position = position;
  open_.push_back({node});
}

void ConfigBuilder::BeginList(Position position) { Begin(position, ConfigNode::Kind::kList); }
void ConfigBuilder::BeginMap(Position position) { Begin(position, ConfigNode::Kind::kMap); }

void ConfigBuilder::End() {
  if (failed()) return;
  MUSTER_CHECK(!open_.empty());
  open_.pop_back();
}

absl::StatusOr<ConfigNode> ConfigBuilder::Finish() && {
  if (failed()) return status_;
  MUSTER_CHECK(open_.empty());
  return std::move(root_);
}

}  // namespace muster
