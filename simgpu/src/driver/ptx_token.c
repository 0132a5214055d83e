/*
 * PTX as words.
 */
#define _GNU_SOURCE
#include "ptx_token.h"

#include <ctype.h>
#include <string.h>

static bool is_word(char character)
{
    return isalnum((unsigned char)character) || character == '_' || character == '$' ||
           character == '%' || character == '.' || character == '@';
}

/* Behind blanks and comments. */
static void skip_blanks(struct scanner *scanner)
{
    while (scanner->at < scanner->end) {
        const size_t left = (size_t)(scanner->end - scanner->at);
        if (isspace((unsigned char)*scanner->at)) {
            scanner->at++;
        } else if (left >= 2 && scanner->at[0] == '/' && scanner->at[1] == '/') {
            const char *line_end = memchr(scanner->at, '\n', left);
            scanner->at = line_end != NULL ? line_end : scanner->end;
        } else if (left >= 2 && scanner->at[0] == '/' && scanner->at[1] == '*') {
            const char *close = memmem(scanner->at + 2, left - 2, "*/", 2);
            scanner->at = close != NULL ? close + 2 : scanner->end;
        } else {
            return;
        }
    }
}

bool scanner_next(struct scanner *scanner)
{
    skip_blanks(scanner);
    scanner->token = scanner->at;
    scanner->length = 0;
    if (scanner->at == scanner->end)
        return false;
    if (*scanner->at == '"') {
        const size_t left = (size_t)(scanner->end - scanner->at - 1);
        const char *close = memchr(scanner->at + 1, '"', left);
        scanner->at = close != NULL ? close + 1 : scanner->end;
    } else if (is_word(*scanner->at)) {
        while (scanner->at < scanner->end && is_word(*scanner->at))
            scanner->at++;
    } else {
        scanner->at++;
    }
    scanner->length = (size_t)(scanner->at - scanner->token);
    return true;
}

bool scanner_skip_to(struct scanner *scanner, const char *sign)
{
    while (!token_is(scanner, sign))
        if (!scanner_next(scanner))
            return false;
    return true;
}

bool scanner_skip_block(struct scanner *scanner)
{
    for (size_t depth = 1; depth > 0;) {
        if (!scanner_next(scanner))
            return false;
        if (token_is(scanner, "{"))
            depth++;
        else if (token_is(scanner, "}"))
            depth--;
    }
    return true;
}

bool token_is(const struct scanner *scanner, const char *text)
{
    const size_t length = strlen(text);
    return scanner->length == length && memcmp(scanner->token, text, length) == 0;
}
