// Exceptions that unwind through many frames, with destructors on the way.
#include <cstdio>
#include <stdexcept>

static int destroyed;

struct Counted {
    ~Counted() { destroyed++; }
};

static int fall(int depth) {
    Counted counted;
    if (depth == 0)
        throw std::runtime_error("down");
    return fall(depth - 1) + 1;
}

int main() {
    int caught = 0;
    for (int i = 0; i < 3; i++) {
        try {
            caught += fall(100);
        } catch (const std::exception &) {
            caught++;
        }
    }
    std::printf("%d %d\n", caught, destroyed);
    return caught == 3 && destroyed == 303 ? 0 : 1;
}
