#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace rumbo {

// A shared library opened at run time, never closed: vendor libraries do not survive that.
class Library {
 public:
  // The first of `names` that loads.
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
      // "X: cannot open shared object file" says little; a missing dependency says what to install.
      const char* why = dlerror();
      if (error_.empty() && why != nullptr) error_ = why;
    }
  }

  bool ok() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  const std::string& error() const { return error_; }

  // False where the symbol is missing.
  template <typename F>
  bool Load(F& function, const char* symbol) const {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;
  std::string name_;
  std::string error_;
};

}  // namespace rumbo
