// crate: pcre2-sys 0.2.10
// sources: upstream/src/pcre2_auto_possess.c upstream/src/pcre2_chartables.c upstream/src/pcre2_chkdint.c upstream/src/pcre2_compile.c upstream/src/pcre2_compile_class.c upstream/src/pcre2_config.c upstream/src/pcre2_context.c upstream/src/pcre2_convert.c upstream/src/pcre2_dfa_match.c upstream/src/pcre2_error.c upstream/src/pcre2_extuni.c upstream/src/pcre2_find_bracket.c upstream/src/pcre2_maketables.c upstream/src/pcre2_match.c upstream/src/pcre2_match_data.c upstream/src/pcre2_newline.c upstream/src/pcre2_ord2utf.c upstream/src/pcre2_pattern_info.c upstream/src/pcre2_script_run.c upstream/src/pcre2_string_utils.c upstream/src/pcre2_study.c upstream/src/pcre2_substitute.c upstream/src/pcre2_substring.c upstream/src/pcre2_tables.c upstream/src/pcre2_ucd.c upstream/src/pcre2_valid_utf.c upstream/src/pcre2_xclass.c
// flags: -Iupstream/src -Iupstream/include -DPCRE2_CODE_UNIT_WIDTH=8 -DHAVE_STDLIB_H=1 -DHAVE_MEMMOVE=1 -DHAVE_CONFIG_H=1 -DPCRE2_STATIC=1 -DSUPPORT_UNICODE=1
#include "pcre2.h"
#include "text.h"

int main(void) {
    static const char *patterns[] = {"clock", "(trace|packet)s?\\s+of", "b[a-z]+h\\n", "(a)\\s(\\w+)\\s\\1", "(?:ran|it) (?!to)"};
    int found = 0;
    make_text();
    for (unsigned n = 0; n < sizeof patterns / sizeof *patterns; n++) {
        int error;
        PCRE2_SIZE offset, at = 0;
        pcre2_code *code = pcre2_compile((PCRE2_SPTR)patterns[n], PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, 0);
        if (!code) return 1;
        pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, 0);
        while (found < 5000 && pcre2_match(code, (PCRE2_SPTR)text, SIZE, at, 0, data, 0) >= 0) {
            at = pcre2_get_ovector_pointer(data)[1];
            found++;
        }
        pcre2_match_data_free(data);
        pcre2_code_free(code);
    }
    return found < 100;
}
