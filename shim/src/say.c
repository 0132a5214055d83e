/* Lines on standard error, from inside a program that is not ours. */

#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
    /* No stdio streams: their locks and buffers belong to the program. */
    static const char prefix[] = "aliquot: ";
    char line[512];
    int saved = errno;
    size_t length = sizeof prefix - 1;
    memcpy(line, prefix, length);
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    if (written > 0)
        length += strlen(line + length);
    line[length++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, length);
    (void)ignored;
    errno = saved;
}
