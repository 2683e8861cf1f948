/* The files of an account: words of 32 bits. */
static char *base;

static void fail(const char *what) {
    perror(what);
    abort();
}

static FILE *create(const char *suffix) {
    char *name;
    if (asprintf(&name, "%s.%s", base, suffix) < 0) fail("asprintf");
    FILE *file = fopen(name, "wb");
    if (!file) fail(name);
    setvbuf(file, NULL, _IOFBF, 1 << 20);
    free(name);
    return file;
}

static void put(FILE *file, uint32_t word) {
    if (fwrite_unlocked(&word, sizeof word, 1, file) != 1) fail("write");
}
