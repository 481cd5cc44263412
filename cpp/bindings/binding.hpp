// What the binding files share: views of the core's columns as NumPy arrays, and texts.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string_view>
#include <type_traits>
#include <vector>

namespace ullage::bindings {

namespace nb = nanobind;

template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>;

// The plain integer behind an enum, or T itself.
template <typename T, bool = std::is_enum_v<T>>
struct Plain {
  using type = T;
};
template <typename T>
struct Plain<T, true> {
  using type = std::underlying_type_t<T>;
};

// A read-only view of a column; `owner` keeps the column alive.
template <typename Column>
auto view(const Column& column, nb::handle owner) {
  using T = typename Column::value_type;
  using Out = typename Plain<T>::type;
  static_assert(sizeof(Out) == sizeof(T));
  return View<Out>(reinterpret_cast<const Out*>(column.data()), {column.size()}, owner);
}

// Text from a file need not be valid UTF-8: what is not is replaced, never refused.
inline nb::object text(std::string_view bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

void bind_tables(nb::module_& module);
void bind_history(nb::module_& module);
void bind_models(nb::module_& module);
void bind_placement(nb::module_& module);

}  // namespace ullage::bindings
