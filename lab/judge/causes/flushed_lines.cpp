// case: output that is flushed after each line
// build: -O2
// finds: flush|print_line
// Each line ends with std::endl.
#include <fstream>

static std::ofstream out("/dev/null");

__attribute__((noinline)) static void print_line(int number) {
    out << number << std::endl;
}

int main() {
    for (int number = 0; number < 8000; number++) print_line(number);
}
