// bytes_of takes nothing whose bytes are not its value, and no temporary; the message names the type.
// expect(gcc): use of deleted function .*bytes_of.*Refused = std::(__cxx11::)?list<int>
// expect(gcc): use of deleted function .*bytes_of.*Refused = std::vector<std::(__cxx11::)?(basic_)?string
// expect(gcc): use of deleted function .*bytes_of.*Refused = std::vector<bool>
// expect(gcc): use of deleted function .*bytes_of.*Refused = int\*
// expect(gcc): use of deleted function .*bytes_of.*Temporary = std::(__cxx11::)?(basic_)?string
// expect(clang): Refused = std::list<int>\] has been explicitly deleted
// expect(clang): Refused = std::vector<std::(basic_)?string.*\] has been explicitly deleted
// expect(clang): Refused = std::vector<bool>\] has been explicitly deleted
// expect(clang): Refused = int \*\] has been explicitly deleted
// expect(clang): Temporary = std::(basic_)?string.*\] has been explicitly deleted
// expect: takes a trivially copyable value or contiguous range
// expect: takes what has a name
#include <rdmacoro/memory/bytes.hpp>

#include <list>
#include <string>
#include <vector>

int main() {
    std::list<int> list;
    std::vector<std::string> texts;
    std::vector<bool> bits;
    int* address = nullptr;
    static_cast<void>(address);
    // wrong
    static_cast<void>(rdmacoro::bytes_of(list));
    static_cast<void>(rdmacoro::bytes_of(texts));
    static_cast<void>(rdmacoro::bytes_of(bits));
    static_cast<void>(rdmacoro::bytes_of(address));
    static_cast<void>(rdmacoro::bytes_of(std::string("gone")));
    // end
    std::string text;
    static_cast<void>(rdmacoro::bytes_of(text));
}
