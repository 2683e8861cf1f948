// crate: zstd-sys 2.1.3
// sources: zstd/lib/common/*.c zstd/lib/compress/*.c zstd/lib/decompress/*.c
// flags: -Izstd/lib -DZSTD_DISABLE_ASM -DDYNAMIC_BMI2=0
#include "zstd.h"
#include "text.h"
#include <string.h>

int main(void) {
    static char packed[SIZE * 2], again[SIZE];
    make_text();
    for (int level = 1; level <= 16; level += 5) {
        size_t packed_length = ZSTD_compress(packed, sizeof packed, text, SIZE, level);
        if (ZSTD_isError(packed_length)) return 1;
        if (ZSTD_decompress(again, SIZE, packed, packed_length) != SIZE) return 2;
        if (memcmp(again, text, SIZE)) return 3;
    }
    return 0;
}
