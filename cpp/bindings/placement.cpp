// Placements: a recording's buffers, or any others given as columns, in one arena.
#include "core/placement/placement.hpp"

#include "bindings/binding.hpp"
#include "core/models/request_stream.hpp"
#include "core/placement/recorded_buffers.hpp"
#include "core/placement/validate.hpp"

namespace ullage::bindings {
namespace {

using Int64s = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <Bytes Buffer::* Member>
nb::object column_of(const std::vector<Buffer>& buffers) {
  auto* out = new std::vector<std::int64_t>;
  out->reserve(buffers.size());
  for (const Buffer& buffer : buffers) out->push_back(buffer.*Member);
  const nb::capsule owner(out, [](void* pointer) noexcept { delete static_cast<std::vector<std::int64_t>*>(pointer); });
  return nb::cast(View<std::int64_t>(out->data(), {out->size()}, owner));
}

std::vector<Buffer> buffers_of(const Int64s& size, const Int64s& begin, const Int64s& end) {
  if (size.shape(0) != begin.shape(0) || size.shape(0) != end.shape(0)) {
    throw nb::value_error("the columns differ in length");
  }
  std::vector<Buffer> buffers(size.shape(0));
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i] = {size(i), begin(i), end(i)};
  return buffers;
}

Plan place_columns(const Int64s& size, const Int64s& begin, const Int64s& end, Bytes alignment, Bytes enough,
                   std::int64_t max_steps) {
  const std::vector<Buffer> buffers = buffers_of(size, begin, end);
  const nb::gil_scoped_release release;
  return place(buffers, {alignment, enough, max_steps});
}

std::string problem_of(const Int64s& size, const Int64s& begin, const Int64s& end, const Int64s& offset,
                       Bytes alignment, Bytes height, Bytes largest_live) {
  Plan plan;
  plan.offset.assign(offset.data(), offset.data() + offset.shape(0));
  plan.height = height;
  plan.largest_live = largest_live;
  if (alignment < 1) return "the alignment is below 1";
  return validate(buffers_of(size, begin, end), plan, alignment);
}

}  // namespace

void bind_placement(nb::module_& module) {
  nb::class_<Plan> plan(module, "Plan");
  plan.def_ro("height", &Plan::height);
  plan.def_ro("largest_live", &Plan::largest_live);
  plan.def_prop_ro("offset", [](nb::handle self) { return view(nb::cast<const Plan&>(self).offset, self); });
  module.def("recorded_buffers", [](const RequestStream& stream) {
    const std::vector<Buffer> buffers = recorded_buffers(stream);
    return nb::make_tuple(column_of<&Buffer::size>(buffers), column_of<&Buffer::begin>(buffers),
                          column_of<&Buffer::end>(buffers));
  });
  module.def("place", place_columns, nb::arg("size"), nb::arg("begin"), nb::arg("end"), nb::arg("alignment"),
             nb::arg("enough"), nb::arg("max_steps"));
  module.def(
      "placement_problem",
      [](const Int64s& size, const Int64s& begin, const Int64s& end, const Int64s& offset, Bytes alignment,
         Bytes height, Bytes largest_live) {
        const std::string problem = problem_of(size, begin, end, offset, alignment, height, largest_live);
        return text(problem);
      },
      nb::arg("size"), nb::arg("begin"), nb::arg("end"), nb::arg("offset"), nb::arg("alignment"), nb::arg("height"),
      nb::arg("largest_live"));
}

}  // namespace ullage::bindings
