// The extension module `ullage._core`, and how the core's error becomes a Python one.
#include "bindings/binding.hpp"
#include "core/error.hpp"

namespace ullage::bindings {
namespace {

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const TraceError& error) {
    nb::object type = nb::module_::import_("ullage.errors").attr("TraceError");
    nb::object raised = type(nb::arg("offset") = error.offset(), nb::arg("expected") = text(error.expected()),
                             nb::arg("found") = text(error.found()));
    PyErr_SetObject(type.ptr(), raised.ptr());
  }
}

}  // namespace
}  // namespace ullage::bindings

NB_MODULE(_core, module) {
  nanobind::register_exception_translator(ullage::bindings::translate);
  ullage::bindings::bind_tables(module);
  ullage::bindings::bind_history(module);
  ullage::bindings::bind_models(module);
  ullage::bindings::bind_placement(module);
}
