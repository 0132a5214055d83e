/* The few words that the shim ever says. */
#pragma once

/* Writes one line to standard error, in one piece, beginning with "aliquot: ". */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
