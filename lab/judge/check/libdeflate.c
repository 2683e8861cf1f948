// crate: libdeflate-sys 1.26.1
// sources: libdeflate/lib/adler32.c libdeflate/lib/crc32.c libdeflate/lib/deflate_compress.c libdeflate/lib/deflate_decompress.c libdeflate/lib/gzip_compress.c libdeflate/lib/gzip_decompress.c libdeflate/lib/utils.c libdeflate/lib/x86/cpu_features.c
// flags: -Ilibdeflate
#include "libdeflate.h"
#include "text.h"
#include <string.h>

int main(void) {
    static char packed[SIZE * 2], again[SIZE];
    make_text();
    for (int level = 1; level <= 12; level += 5) {
        struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(level);
        struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
        size_t length, packed_length = libdeflate_gzip_compress(compressor, text, SIZE, packed, sizeof packed);
        if (!packed_length) return 1;
        if (libdeflate_gzip_decompress(decompressor, packed, packed_length, again, SIZE, &length)) return 2;
        if (length != SIZE || memcmp(again, text, SIZE)) return 3;
        libdeflate_free_compressor(compressor);
        libdeflate_free_decompressor(decompressor);
    }
    return 0;
}
