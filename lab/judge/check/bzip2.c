// crate: bzip2-sys 0.1.13
// sources: bzip2-1.0.8/blocksort.c bzip2-1.0.8/huffman.c bzip2-1.0.8/crctable.c bzip2-1.0.8/randtable.c bzip2-1.0.8/compress.c bzip2-1.0.8/decompress.c bzip2-1.0.8/bzlib.c
// flags: -Ibzip2-1.0.8 -DBZ_NO_STDIO
#include "bzlib.h"
#include "text.h"
#include <string.h>

void bz_internal_error(int code) { exit(code); }

int main(void) {
    static char packed[SIZE * 2], again[SIZE];
    unsigned packed_length = sizeof packed, length = sizeof again;
    make_text();
    if (BZ2_bzBuffToBuffCompress(packed, &packed_length, text, SIZE, 9, 0, 0) != BZ_OK) return 1;
    if (BZ2_bzBuffToBuffDecompress(again, &length, packed, packed_length, 0, 0) != BZ_OK) return 2;
    return length != SIZE || memcmp(again, text, SIZE) != 0;
}
