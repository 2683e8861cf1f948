// crate: lz4-sys 1.11.1
// sources: liblz4/lib/lz4.c liblz4/lib/lz4hc.c liblz4/lib/lz4frame.c liblz4/lib/xxhash.c
// flags: -Iliblz4/lib
#include "lz4frame.h"
#include "text.h"
#include <string.h>

int main(void) {
    static char packed[SIZE * 2], again[SIZE];
    make_text();
    for (int level = 0; level <= 9; level += 3) {
        LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
        preferences.compressionLevel = level;
        preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
        size_t packed_length = LZ4F_compressFrame(packed, sizeof packed, text, SIZE, &preferences);
        if (LZ4F_isError(packed_length)) return 1;
        LZ4F_dctx *context;
        if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION))) return 2;
        size_t length = SIZE;
        if (LZ4F_isError(LZ4F_decompress(context, again, &length, packed, &packed_length, 0))) return 3;
        LZ4F_freeDecompressionContext(context);
        if (length != SIZE || memcmp(again, text, SIZE)) return 4;
    }
    return 0;
}
