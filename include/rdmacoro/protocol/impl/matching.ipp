// Bodies of matching.hpp.
#pragma once

#include <rdmacoro/protocol/matching.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL matcher::~matcher() {
    for (record* of : records_) delete of;
}

RDMACORO_DECL bool matcher::add_source(peer_id source) noexcept {
    if (!many_sources_ || record_of(source) != nullptr) return true;
    if (!records_.reach(source + 1)) return false;
    records_[source] = new (std::nothrow) record;
    return records_[source] != nullptr;
}

// ---- receives

RDMACORO_DECL void matcher::post_another(receive_request& r) noexcept {
    // A receive for high tags alone and an older one for other tags never compete, unless the older one accepts both: then it comes first.
    if (sole_ != nullptr && (takes_high_alone(*sole_) || !takes_high_alone(r)))
        list(*std::exchange(sole_, nullptr));
    if (sole_ == nullptr && listed_ == high_ && takes_low_alone(r)) {
        sole_ = &r;
    } else {
        list(r);
    }
}

RDMACORO_DECL void matcher::list(receive_request& r) noexcept {
    receives_of(r.source_).add(r);
    ++listed_;
    if (takes_high_alone(r)) ++high_;
}

[[gnu::noinline]] RDMACORO_DECL receive_request* matcher::arrived_among_many(peer_id source,
                                                                             tag_type tag) noexcept {
    if (listed_ == high_ && tag >> 63 == 0) return nullptr;
    posted_receives& own = receives_of(source);
    receive_request* first = own.first(tag);
    if (&own != &receives_) {
        receive_request* other = receives_.first(tag);
        if (first == nullptr || (other != nullptr && other->sequence_ < first->sequence_)) first = other;
    }
    if (first != nullptr) unlist(*first);
    return first;
}

RDMACORO_DECL std::optional<std::uint32_t> matcher::ahead_of(const receive_request& r,
                                                             std::uint32_t most) noexcept {
    if (sole_ == &r) return 0;
    const tag_type tag = r.wanted_.tag;
    if (sole_ != nullptr && sole_->wants(r.source_, tag)) return {};
    posted_receives& own = receives_of(r.source_);
    if (own.first_masked(tag) != nullptr) return {};
    if (&own != &receives_ && receives_.first(tag) != nullptr) return {};
    return own.before(r, most);
}

RDMACORO_DECL void matcher::end_all_of(peer_id source, std::error_code why, connection_base* from) noexcept {
    const auto end = [&](receive_request& r) noexcept {
        withdraw(r);
        r.filling_ = from;
        r.finish(why);
    };
    posted_receives& own = receives_of(source);
    if (sole_ != nullptr && sole_->source_ == source) end(*sole_);
    if (listed_ != 0) own.each(end);
    while (probe_request* p = own.probes().front()) {
        withdraw(*p);
        p->finish(why);
    }
}

// ---- messages

RDMACORO_DECL void matcher::add(unexpected_message& m) noexcept {
    m.number = ++stored_number_;
    store(m);
    if (probes_ == 0) return;
    const auto end_wanting = [&](intrusive_list<probe_request>& list) noexcept {
        for (probe_request* p = list.front(); p != nullptr;) {
            probe_request* after = list.next(*p);
            if (p->wanted_.accepts(m.tag)) {
                withdraw(*p);
                p->got_ = {m.bytes, m.tag, m.source};
                p->finish({});
            }
            p = after;
        }
    };
    if (record* const of = record_of(m.source)) end_wanting(of->receives.probes());
    end_wanting(receives_.probes());
}

RDMACORO_COLD void matcher::hide_from_any(unexpected_message& m) noexcept {
    if (record_of(m.source) != nullptr) kept_.hide(m, hidden_);
}

RDMACORO_COLD std::size_t matcher::footprint() noexcept {
    std::size_t bytes = kept_.footprint() + receives_.footprint();
    for (record* of : records_) bytes += of != nullptr ? of->kept.footprint() + of->receives.footprint() : 0;
    return bytes;
}

RDMACORO_COLD void matcher::visit_posted(peer_id source, void (*visit)(void* to, receive_request& r) noexcept,
                                         void* to) noexcept {
    const auto call = [=](receive_request& r) noexcept {
        if (r.source_ == source) visit(to, r);  // the common record may hold others
    };
    if (sole_ != nullptr) call(*sole_);
    if (listed_ != 0 && !is_nobody(source)) receives_of(source).each(call);
}

RDMACORO_COLD void matcher::visit_waiting(peer_id source,
                                          void (*visit)(void* to, receive_request& r) noexcept,
                                          void* to) noexcept {
    const auto call = [=](receive_request& r) noexcept { visit(to, r); };
    if (sole_ != nullptr && (sole_->source_ == source || sole_->source_ == any_source)) call(*sole_);
    if (listed_ != 0) {
        posted_receives& own = receives_of(source);
        own.each(call);
        if (&own != &receives_) receives_.each(call);
    }
}

}  // namespace rdmacoro::detail
