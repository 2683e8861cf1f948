/* A program that embeds SQLite: statements FILE DATABASE runs the statements of a file and counts the rows of their answers. */
#include <stdio.h>
#include <stdlib.h>

#include "sqlite3.h"

static int row(void *rows, int columns, char **values, char **names)
{
    (void)columns, (void)values, (void)names;
    ++*(long *)rows;
    return 0;
}

static char *contents(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    if (text && fread(text, 1, (size_t)size, file) != (size_t)size) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

int main(int count, char **arguments)
{
    sqlite3 *database = NULL;
    char *text = count > 2 ? contents(arguments[1]) : NULL, *error = NULL;
    long rows = 0;
    if (!text || sqlite3_open(arguments[2], &database) != SQLITE_OK)
        return 2;
    int failed = sqlite3_exec(database, text, row, &rows, &error) != SQLITE_OK;
    printf("%ld rows%s%s\n", rows, error ? ", " : "", error ? error : "");
    sqlite3_free(error);
    sqlite3_close(database);
    free(text);
    return failed;
}
