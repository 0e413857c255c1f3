// pmi_launcher: a job through PMI, version 1 or 2, over PMI_FD: of mpiexec (Hydra), of srun --mpi=pmi2 and of others.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>
#include <rdmacoro/service/detail/pmi_lines.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacoro::detail {

/// Speaks version 1 first, and 2 where 1 is refused; under Slurm the other way round. The version in the launcher's answer decides. Bytes
/// travel as hexadecimal digits, in several values where they are longer than one may be.
class pmi_launcher final : public launcher {
public:
    /// Throws `errc::unsupported` where PMI_FD is no open descriptor or no socket, and as `launch_environment::number`.
    explicit pmi_launcher(const launch_environment& from);

    [[nodiscard]] RDMACORO_DECL std::string name() const override;
    RDMACORO_DECL void open(const patience& limit) override;
    [[nodiscard]] RDMACORO_DECL std::vector<blob> exchange(const blob& mine, const patience& limit) override;
    RDMACORO_DECL void leave(const patience& limit) override;

private:
    /// False: it was refused, `refusal_` says how.
    [[nodiscard]] bool offer(int version, const patience& limit);
    void open_first(const patience& limit);
    void open_second(const patience& limit);
    void see_mapping(const std::string* text);
    void put(const std::string& key, const std::string& value, const patience& limit);
    void fence(const patience& limit);
    /// As `lines_.ask`, for words that the launcher answers when all ranks have come, and maybe not before.
    [[nodiscard]] pmi_message ask_with_all(const std::string& text, std::string_view answer,
                                           const patience& limit);
    /// The next message with that command; nothing: the limit came first. `other`: where the message with another command goes that may come first;
    /// the one waited for is given up then at the limit.
    [[nodiscard]] std::optional<pmi_message> hear(std::string_view answer, const patience& limit,
                                                  std::string_view other = {},
                                                  std::optional<pmi_message>* other_came = nullptr);
    [[nodiscard]] pmi_message wait_for_all(const std::string& text, std::string_view answer,
                                           const patience& limit);
    [[nodiscard]] bool publish(std::string_view answer, const patience& limit,
                               std::optional<pmi_message>& late);
    /// The name by which a rank says that it has come.
    [[nodiscard]] std::string name_of(std::uint32_t rank) const;
    [[nodiscard]] std::string of_other_hosts(std::string_view answer, const patience& limit,
                                             std::optional<pmi_message>& late);
    /// Empty: there is none.
    [[nodiscard]] std::string get(const std::string& key, const patience& limit);
    [[nodiscard]] std::string key(std::uint32_t rank, std::size_t part) const;
    [[nodiscard]] blob collect(std::uint32_t rank, const patience& limit);

    pmi_lines lines_;
    std::string slurm_job_;
    std::vector<int> versions_;
    int version_ = 0;
    std::string refusal_;
    std::string space_;  // where the values are: the name of a key-value space, or of a job
    std::size_t most_digits_ = 0;
    std::uint32_t exchanges_ = 0;
    std::uint32_t published_ = 0;  // the exchange for which this rank's name is, and one more
    bool knows_size_ = false;
    std::vector<std::uint32_t> here_;  // the ranks on this host; none: the launcher does not say it
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/pmi_launcher.ipp>
#endif
