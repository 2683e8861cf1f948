/* The digest of an instruction stream, with which the judges compare billions of instructions: records of
 * three little-endian 64-bit words, `tid << 2 | kind`, `at` and `value`.
 *
 *     TIME   from instruction `at` of the thread on, the time is `value`
 *     BLOCK  block `at` of the thread's instructions has the hash `value`
 *     END    the thread has `at` instructions
 *
 * A block is 65,536 instructions; the last one may be shorter. lab/judge/src/streams.rs computes the same
 * digest of our stream.
 */

#include <stdint.h>
#include <stdio.h>

enum kind { TIME, BLOCK, END };

struct digest {
    uint32_t tid;
    uint64_t instructions, hash;
};

static inline int put(FILE *output, uint32_t tid, enum kind kind, uint64_t at, uint64_t value)
{
    uint64_t record[3] = {(uint64_t)tid << 2 | kind, at, value};
    return fwrite(record, sizeof record, 1, output) == 1 ? 0 : -1;
}

static inline int end_block(FILE *output, const struct digest *digest)
{
    return put(output, digest->tid, BLOCK, (digest->instructions - 1) >> 16, digest->hash);
}

static inline int add(FILE *output, struct digest *digest, uint64_t address)
{
    digest->hash = ((digest->hash << 5 | digest->hash >> 59) ^ address) * UINT64_C(0x9e3779b97f4a7c15);
    if (++digest->instructions & 0xffff)
        return 0;
    int status = end_block(output, digest);
    digest->hash = 0;
    return status;
}

static inline int end(FILE *output, const struct digest *digest)
{
    if (digest->instructions & 0xffff && end_block(output, digest) < 0)
        return -1;
    return put(output, digest->tid, END, digest->instructions, 0);
}
