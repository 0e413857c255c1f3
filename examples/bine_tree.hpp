// A broadcast of one's own: the Bine tree, for powers of two of ranks. Its partners are at most a third of the ranks away, a binomial
// tree's half, so that fewer messages cross the network's bottlenecks. Source: De Sensi et al., "Bine Trees: Enhancing Collective Operations
// by Optimizing Communication Locality", SC'25.
#pragma once

#include <rdmacoro/service/group.hpp>

#include <bit>

struct bine_tree {
    static constexpr std::string_view name = "bine_tree";
    static bool admits(const rdmacoro::collective_shape& shape) { return std::has_single_bit(shape.ranks); }

    /// Ranks are numbered from the root on, in base -2. In step k those that have the data have their last digits alike, all but k, and
    /// send to the rank with these flipped. So a rank gets it in the step that the lowest difference between two of its digits tells.
    static rdmacoro::task<> run(rdmacoro::collective& c) {
        const unsigned size = c.size();
        const unsigned mine = digits((c.rank() + size - c.root()) % size) & (size - 1);
        const unsigned differs = mine ^ (mine >> 1);
        const unsigned joins = 2 * (differs & (0 - differs)) - 1;  // the root: above all
        for (unsigned flipped = size - 1; flipped != 0; flipped /= 2) {
            const unsigned with = (number(mine ^ flipped) + c.root()) % size;
            if (flipped < joins) {
                rdmacoro::collective::sending out(c, with, c.data());
                co_await out;
            } else if (flipped == joins) {
                rdmacoro::collective::receiving in(c, with, c.data());
                co_await in;
            }
            c.check();
        }
    }

private:
    /// The number with these digits in base -2, modulo 2 to the 32nd.
    static unsigned number(unsigned bits) { return (bits & 0x55555555U) - (bits & 0xaaaaaaaaU); }
    /// Its inverse.
    static unsigned digits(unsigned of) { return (of + 0xaaaaaaaaU) ^ 0xaaaaaaaaU; }
};
