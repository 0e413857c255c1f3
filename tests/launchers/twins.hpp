#pragma once

// Random programs of collectives, the same for whatever runs them, and what ranks have in the end as files. twins.cpp runs them with the toolkit,
// twins_mpi.cpp with an MPI, and `twins --compare` says where the results differ.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace twins {

enum class kind : std::uint8_t {
    barrier,
    broadcast,
    scatter,
    gather,
    allgather,
    alltoall,
    reduce,
    allreduce,
    reduce_scatter,
    scan,
    exscan
};
constexpr unsigned kinds = 11;
/// Of the elements.
enum class type : std::uint8_t { u8, u32, u64, f32, f64, matrix };
constexpr unsigned types = 6;
/// `product` of matrices, the others of numbers.
enum class op : std::uint8_t { sum, least, most, exclusive_or, product };

/// 2 x 2, modulo 2^32.
struct matrix {
    std::array<std::uint32_t, 4> at{1, 0, 0, 1};
};
/// Associative, not commutative.
inline matrix times(const matrix& a, const matrix& b) {
    return {{a.at[0] * b.at[0] + a.at[1] * b.at[2], a.at[0] * b.at[1] + a.at[1] * b.at[3],
             a.at[2] * b.at[0] + a.at[3] * b.at[2], a.at[2] * b.at[1] + a.at[3] * b.at[3]}};
}

/// Small, and the same everywhere. Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class random {
public:
    explicit random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::size_t below(std::size_t limit) { return next() % limit; }

private:
    std::uint64_t state_;
};

struct step {
    kind what = kind::barrier;
    type of = type::u8;
    op by = op::sum;
    std::size_t root = 0;   // modulo the number of ranks
    std::size_t count = 0;  // of the whole, or of a block
    bool in_place = false;
    bool uneven = false;
    bool of_part = false;  // by the ranks that are even, and by those that are odd, in falling order
    std::uint64_t seed = 0;

    [[nodiscard]] std::size_t block(std::size_t rank) const {
        return uneven ? (rank % 3 == 1 ? 0 : count + rank % 4) : count;
    }
    [[nodiscard]] std::size_t offset(std::size_t rank) const {
        std::size_t at = 0;
        for (std::size_t other = 0; other < rank; ++other) at += block(other);
        return at;
    }
    [[nodiscard]] bool reduces() const { return what >= kind::reduce; }
};

inline std::vector<step> program(std::uint64_t seed, std::size_t steps) {
    random from(seed);
    std::vector<step> all(steps);
    for (step& one : all) {
        one.what = static_cast<kind>(from.below(kinds));
        one.of = static_cast<type>(from.below(types));
        const bool is_float = one.of == type::f32 || one.of == type::f64;
        one.by = one.of == type::matrix ? op::product : static_cast<op>(from.below(is_float ? 3 : 4));
        one.root = from.below(1000);
        const std::size_t longest[] = {2, 20, 1000, 20'000};
        one.count = from.below(longest[from.below(4)]);
        const bool blocks = one.what >= kind::scatter && one.what <= kind::alltoall;
        one.uneven = (blocks || one.what == kind::reduce_scatter) && from.below(2) == 0;
        one.in_place = one.what >= kind::scatter && from.below(2) == 0;
        one.of_part = from.below(3) == 0;
        one.seed = from.next();
    }
    return all;
}

/// What a rank gives.
template <class T>
std::vector<T> given(const step& of, std::size_t rank, std::size_t count) {
    random from(of.seed + 0x1000 * (rank + 1));
    std::vector<T> all;
    all.reserve(count + 1);  // some place for no elements, too: MPICH takes two null pointers for one buffer
    all.resize(count);
    for (T& one : all) {
        if constexpr (std::is_same_v<T, matrix>) {
            for (std::uint32_t& number : one.at) number = static_cast<std::uint32_t>(from.next());
        } else if constexpr (std::is_floating_point_v<T>) {
            // Of different sizes and signs: sums round.
            const auto size = static_cast<T>(std::uint64_t{1} << from.below(12));
            one = static_cast<T>(static_cast<double>(from.next() >> 11) * 0x1p-53 - 0.5) * size;
        } else {
            one = static_cast<T>(from.next());
            // MPICH 4.0 compares unsigned numbers as if they had a sign, and so does Open MPI 4.1 those of MPI_UNSIGNED_LONG.
            if (of.by == op::least || of.by == op::most) one = static_cast<T>(one >> 1);
        }
    }
    return all;
}

/// Runs `body` with a value of the type.
template <class F>
void with_type(type of, F body) {
    switch (of) {
        case type::u8: return body(std::uint8_t{});
        case type::u32: return body(std::uint32_t{});
        case type::u64: return body(std::uint64_t{});
        case type::f32: return body(float{});
        case type::f64: return body(double{});
        case type::matrix: return body(matrix{});
    }
}

/// Results of a rank, step by step.
class results {
public:
    template <class T>
    void add(const std::vector<T>& row) {
        const std::uint64_t bytes = row.size() * sizeof(T);
        put(&bytes, sizeof bytes);
        put(row.data(), bytes);
    }
    void write(const std::string& path) const {
        std::FILE* const file = std::fopen(path.c_str(), "wb");
        if (file == nullptr || std::fwrite(bytes_.data(), 1, bytes_.size(), file) != bytes_.size() ||
            std::fclose(file) != 0) {
            std::perror(path.c_str());
            std::exit(2);
        }
    }
    static std::vector<std::vector<std::byte>> read(const std::string& path) {
        std::vector<std::vector<std::byte>> all;
        std::FILE* const file = std::fopen(path.c_str(), "rb");
        if (file == nullptr) {
            std::perror(path.c_str());
            std::exit(2);
        }
        for (std::uint64_t bytes = 0; std::fread(&bytes, sizeof bytes, 1, file) == 1;) {
            std::vector<std::byte> row(bytes);
            if (bytes != 0 && std::fread(row.data(), bytes, 1, file) != 1) std::exit(2);
            all.push_back(std::move(row));
        }
        std::fclose(file);
        return all;
    }

private:
    void put(const void* from, std::size_t bytes) {
        const auto* const first = static_cast<const std::byte*>(from);
        bytes_.insert(bytes_.end(), first, first + bytes);
    }
    std::vector<std::byte> bytes_;
};

/// `--seed S --steps N --out FOLDER`, or `--compare FOLDER FOLDER --ranks P --seed S --steps N`.
struct options {
    std::uint64_t seed = 1;
    std::size_t steps = 100;
    unsigned ranks = 0;
    std::string out = ".";
    std::string other;
    bool compares = false;

    options(int argc, char** argv) {
        for (int at = 1; at + 1 < argc; at += 2) {
            const std::string word = argv[at];
            const char* const value = argv[at + 1];
            if (word == "--seed") {
                seed = std::strtoull(value, nullptr, 10);
            } else if (word == "--steps") {
                steps = std::strtoull(value, nullptr, 10);
            } else if (word == "--ranks") {
                ranks = static_cast<unsigned>(std::atoi(value));
            } else if (word == "--out") {
                out = value;
            } else if (word == "--compare" && at + 2 < argc) {
                compares = true;
                out = value;
                other = argv[++at + 1];
            } else {
                std::fprintf(stderr, "twins: unknown option %s\n", argv[at]);
                std::exit(2);
            }
        }
    }
    [[nodiscard]] std::string path(const std::string& folder, unsigned rank) const {
        return folder + "/" + std::to_string(rank);
    }
};

}  // namespace twins
