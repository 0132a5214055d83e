/*
 * PTX as words: identifiers and directives, numbers, strings, single signs; comments are skipped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct scanner {
    const char *at;
    const char *end;
    const char *token; /* the present word, in the text */
    size_t length;
};

/* Moves to the next word; false at the end of the text. */
bool scanner_next(struct scanner *scanner);

/* Moves to a sign, unless the present word is it; false when it does not come. */
bool scanner_skip_to(struct scanner *scanner, const char *sign);

/* From an opening brace to the closing one that belongs to it. */
bool scanner_skip_block(struct scanner *scanner);

bool token_is(const struct scanner *scanner, const char *text);
