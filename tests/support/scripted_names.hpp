#pragma once

// Host names whose addresses a test chooses, in place of the system's. Others, and addresses in numbers, are the system's. A program that
// uses this has a `getaddrinfo` of its own: scripted_names.cpp.

#include <cstddef>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <netdb.h>
#include <signal.h>

namespace rdmacoro::test {

class scripted_names {
public:
    scripted_names() = default;
    scripted_names(const scripted_names&) = delete;
    scripted_names& operator=(const scripted_names&) = delete;
    ~scripted_names() {
        const std::lock_guard<std::mutex> alone(lock_);
        names_.clear();
    }

    /// From now on the name has these addresses, in numbers and in this order; none: the system does not know it.
    void set(const std::string& name, std::initializer_list<const char*> addresses) {
        const std::lock_guard<std::mutex> alone(lock_);
        names_[name].addresses.assign(addresses.begin(), addresses.end());
    }
    /// How often it was looked up.
    [[nodiscard]] std::size_t looked_up(const std::string& name) const {
        const std::lock_guard<std::mutex> alone(lock_);
        return names_[name].looked_up;
    }

    /// Whether the thread that looked it up last takes this signal. Precondition: it was looked up.
    [[nodiscard]] bool takes_signal(const std::string& name, int number) const {
        const std::lock_guard<std::mutex> alone(lock_);
        return sigismember(&names_[name].blocked, number) == 0;
    }

    /// For `getaddrinfo`.
    static int find(const char* name, const char* port, const addrinfo* wanted, addrinfo** found);

private:
    struct known_name {
        std::vector<std::string> addresses;
        std::size_t looked_up = 0;
        sigset_t blocked{};  // in the thread that looked it up last
    };
    static std::mutex lock_;
    static std::map<std::string, known_name> names_;
};

}  // namespace rdmacoro::test
