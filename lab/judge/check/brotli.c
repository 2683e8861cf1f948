// crate: brotlic-sys 0.2.2
// sources: brotli/c/common/*.c brotli/c/enc/*.c brotli/c/dec/*.c
// flags: -Ibrotli/c/include -lm
#include "brotli/decode.h"
#include "brotli/encode.h"
#include "text.h"
#include <string.h>

int main(void) {
    static uint8_t packed[SIZE * 2], again[SIZE];
    make_text();
    for (int quality = 1; quality <= 9; quality += 4) {
        size_t packed_length = sizeof packed, length = SIZE;
        if (!BrotliEncoderCompress(quality, 20, BROTLI_MODE_TEXT, SIZE, (const uint8_t *)text, &packed_length, packed)) return 1;
        if (BrotliDecoderDecompress(packed_length, packed, &length, again) != BROTLI_DECODER_RESULT_SUCCESS) return 2;
        if (length != SIZE || memcmp(again, text, SIZE)) return 3;
    }
    return 0;
}
