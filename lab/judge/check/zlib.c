// crate: libz-sys 1.1.33
// sources: src/zlib/adler32.c src/zlib/compress.c src/zlib/crc32.c src/zlib/deflate.c src/zlib/inffast.c src/zlib/inflate.c src/zlib/inftrees.c src/zlib/trees.c src/zlib/uncompr.c src/zlib/zutil.c
// flags: -Isrc/zlib
#include "zlib.h"
#include "text.h"
#include <string.h>

int main(void) {
    static unsigned char packed[SIZE * 2], again[SIZE];
    make_text();
    for (int level = 1; level <= 9; level += 4) {
        unsigned long packed_length = sizeof packed, length = sizeof again;
        if (compress2(packed, &packed_length, (unsigned char *)text, SIZE, level) != Z_OK) return 1;
        if (uncompress(again, &length, packed, packed_length) != Z_OK) return 2;
        if (length != SIZE || memcmp(again, text, SIZE)) return 3;
    }
    return crc32(0, (unsigned char *)text, SIZE) == 0;
}
