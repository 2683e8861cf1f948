// case: a pattern that is tried in every way
// build: -O2
// finds: match
// A matcher of patterns with stars; one of the lines has no match, which takes it long to see.
#include <cstdio>
#include <string>
#include <vector>

__attribute__((noinline)) static bool match(const char *pattern, const char *text) {
    if (!*pattern) return !*text;
    if (*pattern == '*') return match(pattern + 1, text) || (*text && match(pattern, text + 1));
    return *pattern == *text && match(pattern + 1, text + 1);
}

int main() {
    std::vector<std::string> lines(400, "aab");
    lines[250] = std::string(26, 'a');
    int found = 0;
    for (const auto &line : lines) found += match("*a*a*a*a*b", line.c_str());
    std::printf("%d\n", found);
}
