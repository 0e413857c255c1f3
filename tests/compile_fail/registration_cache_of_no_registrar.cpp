// A registration cache over a device whose handles go without a word: the message names the concept.
// expect: registrar
// expect(gcc): constraints not satisfied|constraint failure
// expect(clang): constraints not satisfied
#include <rdmacoro/memory/registration_cache.hpp>

struct forgetful {
    struct handle {};
    std::optional<handle> register_memory(std::span<std::byte>, rdmacoro::access_rights) noexcept;
};

int main() {
    // wrong
    [[maybe_unused]] rdmacoro::registration_cache<forgetful>* cache = nullptr;
    // end
}
