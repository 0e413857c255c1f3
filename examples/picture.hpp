// A picture of gray points, as a file that image viewers open (portable graymap).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

/// The points along an edge, as a user writes them.
inline std::size_t edge_of_picture(const char* text) {
    char* rest = nullptr;
    const unsigned long points = std::strtoul(text, &rest, 10);
    if (*rest != '\0' || points < 1 || points > 20'000)
        throw std::invalid_argument(std::string(text) + " is no number of points from 1 to 20000");
    return points;
}

/// Throws where the file does not take all of it.
inline void write_picture(const std::string& file, std::size_t edge, const std::vector<float>& points) {
    std::ofstream picture(file, std::ios::binary);
    picture << "P5\n" << edge << ' ' << edge << "\n255\n";
    for (const float gray : points) picture.put(static_cast<char>(static_cast<unsigned char>(gray)));
    picture.close();
    if (!picture) throw std::runtime_error("cannot write " + file);
}
