// crate: onig_sys 69.9.3
// sources: oniguruma/src/reg*.c oniguruma/src/st.c oniguruma/src/onig_init.c oniguruma/src/ascii.c oniguruma/src/utf8.c oniguruma/src/unicode.c oniguruma/src/unicode_fold*_key.c oniguruma/src/unicode_unfold_key.c !regposix.c !regposerr.c !reggnu.c
// flags: -Ioniguruma/src -DHAVE_CONFIG_H
// config: #define SIZEOF_INT 4\n#define SIZEOF_LONG 8\n#define SIZEOF_LONG_LONG 8\n#define SIZEOF_VOIDP 8\n#define HAVE_STDINT_H 1\n#define HAVE_INTTYPES_H 1\n#define HAVE_ALLOCA_H 1\n#define HAVE_SYS_TYPES_H 1\n#define HAVE_SYS_TIME_H 1\n#define HAVE_UNISTD_H 1\n#define HAVE_ALLOCA 1\n#define PACKAGE_VERSION \"6\"
#include "oniguruma.h"
#include "text.h"
#include <string.h>

int main(void) {
    static const char *patterns[] = {"clock", "(trace|packet)s?\\s+of", "b[a-z]+h\\n", "(?<x>a)\\s(\\w+)\\s\\k<x>", "(?:ran|it) (?!to)"};
    int found = 0;
    make_text();
    for (unsigned n = 0; n < sizeof patterns / sizeof *patterns; n++) {
        regex_t *regex;
        OnigErrorInfo error;
        const UChar *pattern = (const UChar *)patterns[n], *begin = (const UChar *)text, *end = begin + SIZE;
        if (onig_new(&regex, pattern, pattern + strlen(patterns[n]), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &error)) return 1;
        OnigRegion *region = onig_region_new();
        for (const UChar *at = begin; onig_search(regex, begin, end, at, end, region, ONIG_OPTION_NONE) >= 0 && found < 5000; found++) at = begin + region->end[0] + (region->end[0] == region->beg[0]);
        onig_region_free(region, 1);
        onig_free(regex);
    }
    onig_end();
    return found < 100;
}
