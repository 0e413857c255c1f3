#pragma once

#include <cstdlib>
#include <string>

namespace rdmacoro::test {

/// Sets a variable of the environment until it goes, such as one that the stand-ins of libfabric's providers read.
class with_variable {
public:
    with_variable(const char* name, const std::string& value) : name_(name) {
        ::setenv(name, value.c_str(), 1);
    }
    with_variable(const with_variable&) = delete;
    with_variable& operator=(const with_variable&) = delete;
    ~with_variable() { ::unsetenv(name_); }

private:
    const char* name_;
};

}  // namespace rdmacoro::test
