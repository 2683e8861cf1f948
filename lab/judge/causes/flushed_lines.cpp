// record: kernel
// build: -O2
// case: output that is flushed after each line
// finds: small reads and writes|flushed_lines
// Each line ends with std::endl.
#include <fstream>

static std::ofstream out("lines");

__attribute__((noinline)) static void print_line(int number) {
    out << number << std::endl;
}

int main() {
    for (int number = 0; number < 200000; number++) print_line(number);
}
