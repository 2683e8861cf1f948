/* Parts of libipt_transcript.c: the encoder, arguments that are null or too small, section caches and images. */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void encode(struct pt_encoder *encoder, const struct pt_packet *packet, const uint8_t *begin)
{
    uint64_t before = 0, after = 0;
    pt_enc_get_offset(encoder, &before);
    int status = pt_enc_next(encoder, packet);
    pt_enc_get_offset(encoder, &after);
    printf("encode %d: %d to %" PRIu64 " ", packet->type, status, after);
    print_raw(begin + before, (unsigned)(after - before));
    puts("");
}

/* Encodes the packets of a trace, and made-up ones. */
static void encoder(const struct pt_config *of_trace, uint64_t seed)
{
    uint8_t buffer[256];
    struct pt_config config = *of_trace;
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(of_trace);
    config.begin = buffer;
    config.end = buffer + sizeof buffer;
    struct pt_encoder *encoder = pt_alloc_encoder(&config);
    memset(buffer, 0, sizeof buffer);
    pt_pkt_sync_forward(decoder);
    for (int count = 0; count < 200; count++) {
        struct pt_packet packet;
        memset(&packet, 0, sizeof packet);
        if (pt_pkt_next(decoder, &packet, sizeof packet) < 0)
            break;
        encode(encoder, &packet, buffer);
        if (count % 16 == 15)
            printf("set %d\n", pt_enc_sync_set(encoder, (uint64_t)(count % 260)));
    }
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 3;
    for (int count = 0; count < 100; count++) {
        struct pt_packet packet;
        uint64_t words[2] = {next_random(&state), next_random(&state)};
        if (count & 1)
            words[0] &= 0xff;
        if (count & 2)
            words[1] &= 0x103;
        memset(&packet, 0, sizeof packet);
        packet.type = (enum pt_packet_type)(next_random(&state) % 30);
        memcpy(&packet.payload, words, sizeof words);
        if (packet.type >= ppt_fup && packet.type <= ppt_tip_pgd)
            packet.payload.ip.ipc &= 7;
        /* libipt shifts by what it is given. */
        if (packet.type == ppt_tnt_64 && packet.payload.tnt.bit_size > 60)
            packet.payload.tnt.bit_size = 60;
        encode(encoder, &packet, buffer);
        if (count % 8 == 7)
            pt_enc_sync_set(encoder, 0);
    }
    pt_free_encoder(encoder);
    pt_pkt_free_decoder(decoder);
}

#define SAY(call) printf(#call " %d\n", call)
#define SAY_NULL(call) printf(#call " %d\n", (call) == NULL)

/* Null, and structures of unusual sizes. */
static void null_arguments(const struct pt_config *config)
{
    uint64_t word = 0;
    struct pt_asid asid = {.size = sizeof asid};
    struct pt_config small = *config;
    struct pt_event event;
    union {
        struct pt_insn insn;
        struct pt_block block;
        struct pt_packet packet;
        uint8_t bytes[128];
    } big;
    SAY_NULL(pt_alloc_encoder(NULL));
    SAY_NULL(pt_pkt_alloc_decoder(NULL));
    SAY_NULL(pt_qry_alloc_decoder(NULL));
    SAY_NULL(pt_insn_alloc_decoder(NULL));
    SAY_NULL(pt_blk_alloc_decoder(NULL));
    small.size = 8;
    SAY_NULL(pt_qry_alloc_decoder(&small));
    small.size = 24;
    struct pt_query_decoder *query = pt_qry_alloc_decoder(&small);
    SAY_NULL(query);
    struct pt_insn_decoder *insn = pt_insn_alloc_decoder(config);
    struct pt_block_decoder *block = pt_blk_alloc_decoder(config);
    struct pt_packet_decoder *packet = pt_pkt_alloc_decoder(config);
    SAY(pt_qry_sync_forward(NULL, NULL));
    SAY(pt_qry_sync_set(NULL, NULL, 0));
    SAY(pt_qry_get_offset(query, &word));
    SAY(pt_qry_get_offset(query, NULL));
    SAY(pt_qry_get_sync_offset(query, &word));
    SAY(pt_qry_cond_branch(query, NULL));
    SAY(pt_qry_indirect_branch(query, NULL));
    SAY(pt_qry_event(query, NULL, sizeof event));
    SAY(pt_qry_event(query, &event, 8));
    SAY(pt_qry_event(query, &event, sizeof event));
    SAY(pt_qry_indirect_branch(query, &word));
    SAY(pt_qry_time(query, NULL, NULL, NULL));
    SAY(pt_qry_time(query, &word, NULL, NULL));
    SAY(pt_qry_core_bus_ratio(query, NULL));
    SAY(pt_insn_next(NULL, &big.insn, sizeof big.insn));
    SAY(pt_insn_next(insn, NULL, sizeof big.insn));
    SAY(pt_insn_next(insn, &big.insn, sizeof big.insn));
    SAY(pt_insn_event(insn, &event, sizeof event));
    SAY(pt_insn_event(insn, NULL, sizeof event));
    SAY(pt_insn_asid(insn, NULL, 0));
    SAY(pt_insn_asid(insn, &asid, 4));
    SAY(pt_insn_asid(insn, &asid, 16));
    printf("%zu %" PRIx64 "\n", asid.size, asid.cr3);
    SAY(pt_insn_set_image(NULL, NULL));
    SAY(pt_insn_set_image(insn, NULL));
    SAY_NULL(pt_insn_get_image(NULL));
    SAY_NULL(pt_insn_get_image(insn));
    SAY(pt_insn_sync_set(insn, UINT64_MAX));
    SAY(pt_blk_next(NULL, &big.block, sizeof big.block));
    SAY(pt_blk_next(block, NULL, sizeof big.block));
    SAY(pt_blk_next(block, &big.block, sizeof big.block));
    SAY(pt_blk_event(block, &event, sizeof event));
    SAY(pt_blk_sync_backward(NULL));
    SAY(pt_blk_get_sync_offset(block, &word));
    SAY(pt_pkt_next(packet, &big.packet, sizeof big.packet));
    SAY(pt_pkt_sync_set(packet, UINT64_MAX));
    SAY(pt_pkt_sync_set(packet, 0));
    memset(&big, 0x77, sizeof big);
    SAY(pt_pkt_next(packet, &big.packet, 8));
    SAY(big.bytes[8]);
    SAY_NULL(pt_qry_get_config(NULL));
    SAY((int)pt_qry_get_config(query)->size);
    SAY((int)pt_qry_get_config(query)->mtc_freq);
    pt_qry_free_decoder(query);
    pt_insn_free_decoder(insn);
    pt_blk_free_decoder(block);
    pt_pkt_free_decoder(packet);
    pt_pkt_free_decoder(NULL);
    pt_blk_free_decoder(NULL);
}

/* The errata of the processors that libipt 2.0.5 knows. Ours knows later ones too. */
static void errata(void)
{
    static const uint8_t models[] = {0x3d, 0x47, 0x4e, 0x4f, 0x55, 0x56, 0x5c, 0x5e, 0x5f, 0x66, 0x6a, 0x6c, 0x7a, 0x7d, 0x7e,
                                     0x86, 0x8c, 0x8d, 0x8e, 0x8f, 0x96, 0x97, 0x9a, 0x9c, 0x9e, 0xa5, 0xa6, 0xa7, 0xa8, 0xbf,
                                     0x01, 0x2a, 0xff};
    for (unsigned index = 0; index < sizeof models; index++) {
        struct pt_cpu cpu = {pcv_intel, 6, models[index], 0};
        struct pt_errata found;
        uint32_t bits;
        int status = pt_cpu_errata(&found, &cpu);
        memcpy(&bits, &found, sizeof bits);
        printf("errata of %x: %d %x\n", models[index], status, bits);
    }
    struct pt_cpu cpu = {pcv_unknown, 6, 0x3d, 0};
    struct pt_errata found;
    SAY(pt_cpu_errata(&found, &cpu));
    SAY(pt_cpu_errata(NULL, &cpu));
    SAY(pt_cpu_errata(&found, NULL));
    for (int code = -1; code < 30; code++)
        puts(pt_errstr((enum pt_error_code)code));
    struct pt_version version = pt_library_version();
    printf("version %u.%u.%u\n", version.major, version.minor, version.patch);
}

/* Sections added, cut, copied and removed. */
static void images(const struct section *section)
{
    struct pt_image_section_cache *cache = pt_iscache_alloc("name");
    struct pt_image *image = pt_image_alloc(NULL), *copy = pt_image_alloc("copy");
    struct pt_asid one = {sizeof one, 0x1000, pt_asid_no_vmcs}, two = {sizeof two, 0x2000, pt_asid_no_vmcs};
    uint8_t buffer[16] = {0};
    printf("%s %d %s\n", pt_iscache_name(cache), pt_image_name(image) == NULL, pt_image_name(copy));
    SAY(pt_iscache_add_file(NULL, "x", 0, 1, 0));
    SAY(pt_iscache_add_file(cache, NULL, 0, 1, 0));
    SAY(pt_iscache_add_file(cache, "/nonexistent", 0, 1, 0));
    SAY(pt_iscache_add_file(cache, section->file, UINT64_MAX, 1, 0));
    SAY(pt_iscache_add_file(cache, section->file, 0, UINT64_MAX, 0x1000));
    SAY(pt_iscache_add_file(cache, section->file, 0, UINT64_MAX, 0x1000));
    SAY(pt_iscache_add_file(cache, section->file, 0, UINT64_MAX, 0x2000));
    SAY(pt_iscache_add_file(cache, section->file, 0, 2, 0x1000));
    SAY(pt_iscache_add_file(cache, section->file, 0, 2, 0x1000));
    SAY(pt_iscache_read(cache, buffer, 4, 3, 0x1001));
    print_raw(buffer, 4);
    SAY(pt_iscache_read(cache, buffer, 4, 3, 0x1002));
    SAY(pt_iscache_read(cache, buffer, 4, 3, 0xfff));
    SAY(pt_iscache_read(cache, buffer, 0, 3, 0x1000));
    SAY(pt_iscache_read(cache, buffer, 4, 9, 0x1000));
    SAY(pt_iscache_read(cache, buffer, 4, -1, 0x1000));
    SAY(pt_iscache_set_limit(cache, 0));
    SAY(pt_iscache_set_limit(NULL, 0));
    SAY(pt_image_add_file(image, section->file, 0, 2, &one, 0x1000));
    SAY(pt_image_add_file(image, section->file, 0, 2, &two, 0x1000));
    SAY(pt_image_add_file(image, section->file, 1, 1, NULL, 0x1001));
    SAY(pt_image_add_file(image, "/nonexistent", 1, 1, NULL, 0x1001));
    SAY(pt_image_add_cached(image, cache, 3, &one));
    SAY(pt_image_add_cached(image, cache, 99, &one));
    SAY(pt_image_add_cached(image, NULL, 1, &one));
    SAY(pt_image_copy(copy, image));
    SAY(pt_image_copy(copy, copy));
    SAY(pt_image_copy(copy, NULL));
    SAY(pt_image_remove_by_filename(image, section->file, &two));
    SAY(pt_image_remove_by_filename(image, "other", NULL));
    SAY(pt_image_remove_by_filename(copy, section->file, NULL));
    SAY(pt_image_remove_by_asid(image, &one));
    SAY(pt_image_remove_by_asid(image, NULL));
    SAY(pt_image_set_callback(NULL, NULL, NULL));
    pt_image_free(image);
    pt_image_free(copy);
    pt_image_free(NULL);
    pt_iscache_free(cache);
}
