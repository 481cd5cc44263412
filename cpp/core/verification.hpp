// Compares what was rebuilt with what the file says of the end.
#pragma once

#include "core/history.hpp"
#include "core/layout.hpp"
#include "core/tables.hpp"

namespace ullage {

// Counts the recorded segments and blocks of a device, and those that the rebuilt layout has just so.
void compare_with_file(const Tables& tables, std::int32_t device, const Layout& layout, Verification& out);

// The four sums over a device's recorded final segments. False if the file has no segments.
bool sum_of_file(const Tables& tables, std::int32_t device, CounterValues& out);

}  // namespace ullage
