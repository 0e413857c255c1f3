#include "support/scripted_names.hpp"

#include <dlfcn.h>

namespace rdmacoro::test {

std::mutex scripted_names::lock_;
std::map<std::string, scripted_names::known_name> scripted_names::names_;

int scripted_names::find(const char* name, const char* port, const addrinfo* wanted, addrinfo** found) {
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
        ::pthread_sigmask(SIG_SETMASK, nullptr, &known->second.blocked);
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

}  // namespace rdmacoro::test

/// Taken before the system's and before that of a sanitizer, whose definition is a weak one.
extern "C" int getaddrinfo(const char* name, const char* port, const addrinfo* wanted, addrinfo** found) {
    return rdmacoro::test::scripted_names::find(name, port, wanted, found);
}
