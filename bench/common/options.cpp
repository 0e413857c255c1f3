#include "options.hpp"

#include "../../tools/pingpong/failure.hpp"
#include "../../tools/pingpong/number_between.hpp"

#include <CLI/CLI.hpp>

namespace bench {

const option& option::between(std::int64_t least, std::int64_t most) const {
    of_.check(CLI::Range(least, most));
    return *this;
}

const option& option::within(double least, double most) const {
    of_.check(pingpong::number_between(least, most));
    return *this;
}

const option& option::separated_by(char one) const {
    of_.delimiter(one);
    return *this;
}

const option& option::type_name(const char* name) const {
    of_.type_name(name);
    return *this;
}

const option& option::show_default() const {
    of_.capture_default_str();
    return *this;
}

options::options(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}

options::~options() = default;

option options::add(const std::string& name, std::string& value, const std::string& help) {
    return option(*app_->add_option(name, value, help));
}

option options::add(const std::string& name, int& value, const std::string& help) {
    return option(*app_->add_option(name, value, help));
}

option options::add(const std::string& name, unsigned& value, const std::string& help) {
    return option(*app_->add_option(name, value, help));
}

option options::add(const std::string& name, std::uint64_t& value, const std::string& help) {
    return option(*app_->add_option(name, value, help));
}

option options::add(const std::string& name, double& value, const std::string& help) {
    return option(*app_->add_option(name, value, help));
}

option options::add(const std::string& name, std::vector<std::string>& values, const std::string& help) {
    return option(*app_->add_option(name, values, help));
}

option options::add(const std::string& name, std::vector<unsigned>& values, const std::string& help) {
    return option(*app_->add_option(name, values, help));
}

void options::add_flag(const std::string& name, bool& value, const std::string& help) {
    app_->add_flag(name, value, help);
}

bool options::parse(int argc, char** argv) {
    try {
        app_->parse(argc, argv);
        return true;
    } catch (const CLI::Success& answered) {
        app_->exit(answered);
        return false;
    } catch (const CLI::Error& wrong) {
        throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
    }
}

}  // namespace bench
