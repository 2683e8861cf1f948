// case: exceptions for what is not exceptional
// build: -O2
// finds: Exceptions|lookup
// Looks numbers up; most of them are missing, and each of these is an exception.
#include <cstdio>
#include <map>
#include <stdexcept>

static std::map<int, int> known;

__attribute__((noinline)) static int lookup(int key) {
    auto found = known.find(key);
    if (found == known.end()) throw std::out_of_range("no such key");
    return found->second;
}

int main() {
    for (int key = 0; key < 100; key++) known[key * 7] = key;
    int sum = 0;
    for (int key = 0; key < 3000; key++) {
        try {
            sum += lookup(key);
        } catch (const std::out_of_range &) {
            sum--;
        }
    }
    std::printf("%d\n", sum);
}
