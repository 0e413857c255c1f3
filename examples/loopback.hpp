// loopback: a whole transport. Both ends are in one scheduler; messages wait in a ring of slots between them.
#pragma once

#include <rdmacoro/rdmacoro.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace rc = rdmacoro;

struct loopback {
    static constexpr std::string_view name = "loopback";
    static constexpr std::string_view description = "two ends in one scheduler";
    static constexpr rc::capabilities static_capabilities{
        .max_message = 4096, .eager_bytes = 4096, .segment_bytes = 4096};

    struct slot {
        rc::message_header header;
        std::size_t bytes;
        std::byte payload[static_capabilities.max_message];
    };
    struct direction {
        slot slots[16];
        std::size_t written = 0, read = 0;  // these only grow
        [[nodiscard]] slot& operator[](std::size_t at) noexcept { return slots[at % 16]; }
        [[nodiscard]] bool full() const noexcept { return written - read == 16; }
    };
    struct wire {
        direction ways[2];
    };

    class domain;
    /// An end without a sink yet; messages wait in the wire. The other end is closed when this is the
    /// wire's only owner.
    struct connection {
        domain* home = nullptr;
        std::shared_ptr<wire> both;
        unsigned side = 0;
    };
    using waiting_room = rc::channel<connection>;

    class listener {
    public:
        listener(std::string address, std::shared_ptr<waiting_room> room)
            : address_(std::move(address)), room_(std::move(room)) {}
        [[nodiscard]] rc::task<connection> accept() { return take(room_); }
        [[nodiscard]] std::string address() const { return address_; }

    private:
        static rc::task<connection> take(std::shared_ptr<waiting_room> room) {
            co_return co_await room->receive();
        }
        std::string address_;
        std::shared_ptr<waiting_room> room_;
    };

    struct pollable {
        virtual unsigned poll(unsigned budget) noexcept = 0;

    protected:
        ~pollable() = default;
    };

    /// Has the listeners by name, and polls the links whenever its scheduler polls it.
    class domain : public rc::progress_source {
    public:
        explicit domain(rc::scheduler& owner) : owner_(owner) { owner.add_source(*this); }
        [[nodiscard]] rc::scheduler& owner() noexcept { return owner_; }

        [[nodiscard]] rc::task<listener> listen(std::string_view address) {
            return listen_at(*this, std::string(address));
        }
        [[nodiscard]] rc::task<connection> connect(std::string_view address) {
            return connect_to(*this, std::string(address));
        }
        [[nodiscard]] rc::region register_memory(std::span<std::byte>, rc::access_rights) {
            throw rc::error(rc::errc::unsupported, "loopback has no get and put");
        }

        bool poll() noexcept override {
            bool any = false;
            // From the back: a link may leave while it is polled.
            for (std::size_t i = links.size(); i-- > 0;) any |= links[i]->poll(64) != 0;
            return any;
        }
        std::vector<pollable*> links;

    private:
        static rc::task<listener> listen_at(domain& self, std::string address) {
            std::weak_ptr<waiting_room>& place = self.listening_[address];
            if (!place.expired()) throw rc::error(rc::errc::address_in_use, "loopback " + address);
            auto room = std::make_shared<waiting_room>(16);
            place = room;
            co_return listener(std::move(address), std::move(room));
        }
        static rc::task<connection> connect_to(domain& self, std::string address) {
            const std::shared_ptr<waiting_room> room = self.listening_[address].lock();
            auto both = std::make_shared<wire>();
            if (!room || !room->try_send(connection{&self, both, 1}))
                throw rc::error(rc::errc::connection_refused, "loopback " + address + ": listen first");
            co_return connection{&self, std::move(both), 0};
        }

        rc::scheduler& owner_;
        std::map<std::string, std::weak_ptr<waiting_room>> listening_;
    };

    template <class Sink>
    class link : public pollable {
    public:
        link(connection made, Sink& sink) : end_(std::move(made)), sink_(sink) {
            end_.home->links.push_back(this);
        }
        link(const link&) = delete;
        link& operator=(const link&) = delete;
        ~link() { leave(); }

        [[nodiscard]] rc::post_result post(const rc::message_header& header, const rc::const_buffers& payload,
                                           rc::completion&) noexcept {
            return post_copied(header, payload);  // always copied at once, so never `posted`
        }
        [[nodiscard]] rc::post_result post_copied(const rc::message_header& header,
                                                  const rc::const_buffers& payload) noexcept {
            if (!end_.both || other_is_gone()) return rc::post_result::failed;
            direction& out = end_.both->ways[end_.side];
            if (out.full()) {
                wants_room_ = true;
                return rc::post_result::retry;
            }
            slot& to = out[out.written];
            to.header = header;
            to.bytes = 0;
            for (std::size_t i = 0; i < payload.pieces(); ++i) {
                if (payload[i].empty()) continue;
                std::memcpy(to.payload + to.bytes, payload[i].data(), payload[i].size());
                to.bytes += payload[i].size();
            }
            ++out.written;
            return rc::post_result::done;
        }
        [[nodiscard]] bool revoke(rc::completion&) noexcept { return true; }  // nothing is ever posted

        unsigned poll(unsigned budget) noexcept override {
            unsigned moved = 0;
            while (end_.both && moved < budget) {
                direction& in = end_.both->ways[1 - end_.side];
                if (in.read == in.written) break;
                const slot& from = in[in.read];
                if (sink_.deliver(from.header, {from.payload, from.bytes}) == rc::delivery::defer)
                    return moved;
                ++moved;
                if (end_.both) ++in.read;  // else the sink closed this link
            }
            if (end_.both && wants_room_ && !end_.both->ways[end_.side].full()) {
                wants_room_ = false;
                sink_.writable();
                ++moved;
            }
            if (end_.both && other_is_gone() && moved == 0) {  // all that it had sent was handed up
                close(make_error_code(rc::errc::peer_lost));
                ++moved;
            }
            return moved;
        }
        /// Slots can't be spared: the sink copies.
        [[nodiscard]] rc::lent_buffer keep() noexcept { return {}; }

        void close(std::error_code reason) noexcept {
            if (leave()) sink_.link_down(reason);
        }
        [[nodiscard]] const rc::capabilities& capabilities() const noexcept { return static_capabilities; }
        [[nodiscard]] rc::scheduler& owner() noexcept { return end_.home->owner(); }
        [[nodiscard]] std::string peer_name() const { return "loopback"; }

    private:
        [[nodiscard]] bool other_is_gone() const noexcept { return end_.both.use_count() == 1; }
        bool leave() noexcept {
            if (!end_.both) return false;
            std::erase(end_.home->links, this);
            end_.both.reset();
            return true;
        }

        connection end_;
        Sink& sink_;
        bool wants_room_ = false;
    };
};

static_assert(rc::transport<loopback>);
