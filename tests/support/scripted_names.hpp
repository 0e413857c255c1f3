#pragma once

// Host names whose addresses a test chooses, in place of the system's. Others, and addresses in numbers, are the system's.

#include <cstddef>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <netdb.h>

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

    /// For `getaddrinfo`.
    static int find(const char* name, const char* port, const addrinfo* wanted, addrinfo** found) {
        const auto real =
            reinterpret_cast<int (*)(const char*, const char*, const addrinfo*, addrinfo**)>(  // NOLINT
                ::dlsym(RTLD_NEXT, "getaddrinfo"));
        std::vector<std::string> addresses;
        {
            const std::lock_guard<std::mutex> alone(lock_);
            const auto known = name != nullptr ? names_.find(name) : names_.end();
            if (known == names_.end() || (wanted->ai_flags & AI_NUMERICHOST) != 0)
                return real(name, port, wanted, found);
            ++known->second.looked_up;
            addresses = known->second.addresses;
        }
        // The system's `freeaddrinfo` frees a list of several of its own lists.
        *found = nullptr;
        for (const std::string& address : addresses) {
            addrinfo** end = found;
            while (*end != nullptr) end = &(*end)->ai_next;
            if (const int failed = real(address.c_str(), port, wanted, end); failed != 0) return failed;
        }
        return *found != nullptr ? 0 : EAI_NONAME;
    }

private:
    struct known_name {
        std::vector<std::string> addresses;
        std::size_t looked_up = 0;
    };
    static inline std::mutex lock_;
    static inline std::map<std::string, known_name> names_;
};

}  // namespace rdmacoro::test

/// Of all the program: the linker takes it before the system's.
extern "C" [[gnu::weak]] int getaddrinfo(const char* name, const char* port, const addrinfo* wanted,
                                         addrinfo** found) {
    return rdmacoro::test::scripted_names::find(name, port, wanted, found);
}
