// Opening connections from either side: who waits for one of them, and those that came in by a listener.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <cerrno>
#include <new>
#include <utility>

namespace rdmacoro::detail {

/// Who waits for a connection to open. Called once; when it failed the core is gone afterwards. `Outcome` says in `code` whether
/// it is open, and else why not.
template <class Core, class Outcome>
class connection_opener {
public:
    virtual void opened(Core& which, const Outcome& how) noexcept = 0;

protected:
    ~connection_opener() = default;
};

/// How one attempt to connect ended.
template <class Core, class Outcome>
struct connect_attempt {
    Outcome how{};
    Core* made = nullptr;
};

/// Connects to one address: `Core::connect` of a core that `Engine::make_core` made. Canceling it gives the connection up.
template <class Engine, class Core, class Outcome>
class connect_to final
    : public basic_operation<connect_to<Engine, Core, Outcome>, connect_attempt<Core, Outcome>>,
      private connection_opener<Core, Outcome> {
    using attempt = connect_attempt<Core, Outcome>;

public:
    connect_to(Engine& by, const inet_endpoint& to) noexcept
        : basic_operation<connect_to, attempt>(&by.owner()), engine_(by), to_(to) {}
    connect_to(const connect_to&) = delete;
    connect_to& operator=(const connect_to&) = delete;
    ~connect_to() {
        if (attempt_.made != nullptr) attempt_.made->abandon();
    }

    void start() noexcept {
        core_ = engine_.make_core();
        if (core_ == nullptr) {
            attempt_.how = {errc::no_resources, ENOMEM, "make room"};
            return this->complete();
        }
        core_->connect(to_, *this);
    }
    void cancel() noexcept {
        std::exchange(core_, nullptr)->abandon();
        finish_canceled();
        this->complete();
    }
    void finish_canceled() noexcept { attempt_.how.code = errc::canceled; }

    [[nodiscard]] result<attempt> outcome() noexcept {
        if (attempt_.how.code == errc::canceled) return errc::canceled;
        return std::exchange(attempt_, {});
    }

private:
    void opened(Core& which, const Outcome& how) noexcept override {
        core_ = nullptr;
        attempt_.how = how;
        if (how.code == errc::ok) attempt_.made = &which;
        this->complete();
    }

    Engine& engine_;
    inet_endpoint to_;
    Core* core_ = nullptr;
    attempt attempt_;
};

/// Those who came in by a listener: connections that are opening, those that are open and were not taken yet, and who waits for
/// one. All of them end with it. A peer that greets wrongly, or not at all, is dropped and troubles nobody else.
template <class Engine, class Core, class Outcome>
class guest_list {
    struct guest final : connection_opener<Core, Outcome>, list_node<guest> {
        guest_list* host = nullptr;
        Core* which = nullptr;
        void opened(Core&, const Outcome& how) noexcept override { host->opened(*this, how.code); }
    };

public:
    explicit guest_list(Engine& of) noexcept : engine_(of) {}
    guest_list(const guest_list&) = delete;
    guest_list& operator=(const guest_list&) = delete;
    ~guest_list() {
        while (guest* who = guests_.front()) forget(*who);
        while (guest* who = ready_.front()) forget(*who);
        while (auto* who = waiters_.pop_front()) who->arrived(nullptr);
    }

    [[nodiscard]] scheduler& owner() const noexcept { return engine_.owner(); }

    /// Makes a core and lets it begin: `begin(core, opener)`. False: there are as many as may wait, or there is no memory.
    template <class Function>
    [[nodiscard]] bool invite(Function begin) noexcept {
        if (waiting_ >= engine_.options().most_waiting) return false;
        auto* made = new (std::nothrow) guest;
        if (made == nullptr) return false;
        made->which = engine_.make_core();
        if (made->which == nullptr) {
            delete made;
            return false;
        }
        made->host = this;
        guests_.push_back(*made);
        ++waiting_;
        begin(*made->which, *made);  // it may be gone when this returns
        return true;
    }

    /// An open connection, or nullptr.
    [[nodiscard]] Core* take() noexcept {
        guest* first = ready_.pop_front();
        if (first == nullptr) return nullptr;
        Core* made = std::exchange(first->which, nullptr);
        forget(*first);
        return made;
    }

    /// Somebody waits for the next one.
    void wait(accept_waiter<Core>& who) noexcept { waiters_.push_back(who); }

private:
    void opened(guest& who, errc outcome) noexcept {
        if (outcome != errc::ok) {
            who.which = nullptr;
            forget(who);
        } else if (auto* first = waiters_.pop_front(); first != nullptr) {
            Core* made = std::exchange(who.which, nullptr);
            forget(who);
            first->arrived(made);
        } else {
            static_cast<list_node<guest>&>(who).unlink();
            ready_.push_back(who);
        }
    }

    void forget(guest& who) noexcept {
        static_cast<list_node<guest>&>(who).unlink();
        if (who.which != nullptr) who.which->abandon();
        delete &who;
        --waiting_;
    }

    Engine& engine_;
    unsigned waiting_ = 0;
    intrusive_list<guest> guests_;
    intrusive_list<guest> ready_;
    accept_waiters<Core> waiters_;
};

}  // namespace rdmacoro::detail
