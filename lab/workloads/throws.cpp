// Exceptions: thrown through frames with destructors, caught, thrown on, and thrown in a destructor's way.
#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

int cleanups = 0;

struct Guard {
    ~Guard() { cleanups++; }
};

[[gnu::noinline]] int descend(int depth, int bottom)
{
    Guard guard;
    if (depth == bottom)
        throw std::runtime_error("depth " + std::to_string(depth));
    return descend(depth + 1, bottom) + 1;
}

[[gnu::noinline]] int rethrow(int bottom)
{
    try {
        return descend(0, bottom);
    } catch (const std::runtime_error &) {
        Guard guard;
        throw;
    }
}

} // namespace

int main()
{
    int caught = 0;
    for (int bottom = 0; bottom < 200; bottom++) {
        try {
            rethrow(bottom % 20);
        } catch (const std::exception &error) {
            caught += error.what()[0] == 'd';
        }
    }
    std::printf("caught %d, cleaned up %d\n", caught, cleanups);
    return caught == 200 ? 0 : 1;
}
