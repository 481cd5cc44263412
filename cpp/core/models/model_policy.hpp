// A policy of any model, and the model that keeps it.
#pragma once

#include <memory>

#include "core/models/bin_front.hpp"
#include "core/models/caching_allocator.hpp"

namespace ullage {

struct ModelPolicy {
  CachingPolicy base;
  BinPolicy bins;  // in front of it; without sizes there is no front
};

inline std::unique_ptr<AllocatorModel> make_model(const ModelPolicy& policy) {
  auto base = std::make_unique<CachingAllocator>(policy.base);
  if (policy.bins.sizes.empty()) return base;
  return std::make_unique<BinFront>(policy.bins, std::move(base));
}

}  // namespace ullage
