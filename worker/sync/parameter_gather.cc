#include "worker/sync/parameter_gather.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {

ParameterGather::ParameterGather(const ShardMesh& mesh, const Layout& layout, const View& view,
                                 absl::Duration timeout, DType dtype)
    : mesh_(mesh),
      communicator_(mesh_.within()),
      layout_(layout),
      map_(MapOf(view, layout).value()),
      serves_(view.strategy.serves()),
      pull_algorithm_(view.strategy.algorithm == SyncAlgorithm::kHierarchical
                          ? Algorithm::kHierarchical
                          : Algorithm::kAuto),
      workers_(view.workers()),
      timeout_(timeout),
      dtype_(dtype),
      works_(static_cast<size_t>(layout.block_count())) {
  MUSTER_CHECK(view.strategy.sharded()) << "nothing to gather";
  MUSTER_CHECK_EQ(map_.slices.owners(), communicator_.world_size());
}

void ParameterGather::Start(Step step, int block, OwnPart own, void* parameters) {
  MUSTER_CHECK(!started(block)) << "block " << block << " is being gathered";
  const int64_t begin = layout_.RangeOfBlock(block).offset;
  const Layout::BucketRange buckets = layout_.BucketsOfBlock(block);
  for (int i = buckets.first; i < buckets.last; ++i) {
    CollectiveOptions options;
    options.timeout = timeout_;
    options.label = absl::StrCat("parameters of bucket ", i);
    options.step = step;
    const auto place = [&](int64_t element) {
      return static_cast<std::byte*>(parameters) +
             (element - begin) * static_cast<int64_t>(SizeOf(dtype_));
    };
    const Range slice = map_.slices.SliceOf(i, communicator_.rank());
    const void* mine = own(slice);
    std::byte* const into = parameters == nullptr ? nullptr : place(layout_.buckets()[i].offset);
    if (into != nullptr && slice.count > 0) {
      // It has to get there anyway, and others read it there directly where the memory is shared.
      std::byte* const at = place(slice.offset);
      if (mine != at) std::memcpy(at, mine, static_cast<size_t>(slice.count) * SizeOf(dtype_));
      mine = at;
    }
    const absl::Span<const int64_t> counts = map_.slices.CountsOf(i);
    if (serves_) options.algorithm = pull_algorithm_;
    works_[static_cast<size_t>(block)].push_back(
        serves_ ? communicator_.Pull(mine, into, counts, workers_, dtype_, options)
                : communicator_.AllGather(mine, into, counts, dtype_, options));
  }
}

absl::Status ParameterGather::WaitFor(int block) {
  MUSTER_RETURN_IF_ERROR(status_);
  const absl::Time start = absl::Now();
  for (Work& work : works_[static_cast<size_t>(block)]) {
    status_ = work.Wait();
    if (status_.ok()) continue;
    culprit_ = work.culprit();
    break;
  }
  works_[static_cast<size_t>(block)].clear();
  waited_ += absl::Now() - start;
  return status_;
}

absl::Duration ParameterGather::TakeWaited() {
  const absl::Duration waited = waited_;
  waited_ = absl::ZeroDuration();
  return waited;
}

}  // namespace muster
