// The options of a program, by CLI11: compiled here, once, and not in each program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace bench {

/// What else there is to say of an option.
class option {
public:
    explicit option(CLI::Option& of) noexcept : of_(of) {}

    const option& between(std::int64_t least, std::int64_t most) const;
    const option& within(double least, double most) const;
    const option& separated_by(char one) const;
    /// What --help calls its value.
    const option& type_name(const char* name) const;
    /// --help tells the value that the variable has now.
    const option& show_default() const;

private:
    CLI::Option& of_;
};

/// Parsing stores what is given in the variables that were added. They must outlive it.
class options {
public:
    explicit options(const std::string& description, const std::string& name = {});
    options(const options&) = delete;
    options& operator=(const options&) = delete;
    ~options();

    option add(const std::string& name, std::string& value, const std::string& help);
    option add(const std::string& name, int& value, const std::string& help);
    option add(const std::string& name, unsigned& value, const std::string& help);
    option add(const std::string& name, std::uint64_t& value, const std::string& help);
    option add(const std::string& name, double& value, const std::string& help);
    option add(const std::string& name, std::vector<std::string>& values, const std::string& help);
    option add(const std::string& name, std::vector<unsigned>& values, const std::string& help);
    void add_flag(const std::string& name, bool& value, const std::string& help);
    /// False when it was answered already (--help). Throws `usage_error`.
    [[nodiscard]] bool parse(int argc, char** argv);

private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace bench
