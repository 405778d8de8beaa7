/* Messages as lines of JSON. */
#define _GNU_SOURCE
#include "internal.h"

#include <ctype.h>
#include <stdarg.h>

static void text_room(Text *text, size_t more)
{
    if (text->used + more + 1 <= text->room)
        return;
    text->room = 2 * (text->used + more + 1);
    text->bytes = realloc(text->bytes, text->room);
    if (text->bytes == NULL)
        abort();
}

void text_print(Text *text, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    text_room(text, (size_t)length);
    vsnprintf(text->bytes + text->used, (size_t)length + 1, format, again);
    va_end(again);
    text->used += (size_t)length;
}

void text_add(Text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_print(text, format, list);
    va_end(list);
}

void text_add_string(Text *text, const char *value)
{
    text_add(text, "\"");
    for (; *value; value++) {
        unsigned char each = (unsigned char)*value;
        if (each == '"' || each == '\\')
            text_add(text, "\\%c", each);
        else if (each < 0x20)
            text_add(text, "\\u%04x", each);
        else
            text_add(text, "%c", each);
    }
    text_add(text, "\"");
}

void text_add_numbers(Text *text, const int *numbers, int count)
{
    text_add(text, "[");
    for (int i = 0; i < count; i++)
        text_add(text, i ? ",%d" : "%d", numbers[i]);
    text_add(text, "]");
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        if (*at == '[' || *at == '{')
            depth++;
        else if (*at == ']' || *at == '}')
            depth--;
        if (depth >= 0)
            at++;
    } while (*at && (depth > 0 || (depth == 0 && !strchr(",]}", *at))));
    return at;
}

/* The value of a key of the outermost object; NULL if there is none. */
const char *json_value(const char *line, const char *key)
{
    const char *at = strchr(line, '{');
    size_t length = strlen(key);
    while (at != NULL && *at && *at != '}') {
        at = skip_space(at + 1);
        if (*at != '"')
            return NULL;
        const char *name = at + 1, *after = skip_string(at);
        at = skip_space(after);
        if (*at != ':')
            return NULL;
        at = skip_space(at + 1);
        if ((size_t)(after - 1 - name) == length && strncmp(name, key, length) == 0)
            return at;
        at = skip_space(skip_value(at));
    }
    return NULL;
}

long json_long(const char *line, const char *key, long otherwise)
{
    const char *at = json_value(line, key);
    if (at == NULL || strncmp(at, "null", 4) == 0)
        return otherwise;
    if (strncmp(at, "true", 4) == 0)
        return 1;
    return strtol(at, NULL, 10); /* false becomes 0 */
}

static char *decoded(const char *at)
{
    char *text = malloc(strlen(at) + 1), *end = text;
    for (at++; *at && *at != '"'; at++) {
        if (*at != '\\') {
            *end++ = *at;
            continue;
        }
        at++;
        if (*at == 'u') { /* the helper escapes only control characters so */
            char digits[5] = {0};
            strncpy(digits, at + 1, 4);
            *end++ = (char)strtol(digits, NULL, 16);
            at += strlen(digits);
        } else {
            const char *from = "nrtbf", *to = "\n\r\t\b\f", *found = strchr(from, *at);
            *end++ = found && *at ? to[found - from] : *at;
        }
    }
    *end = 0;
    return text;
}

char *json_string(const char *line, const char *key)
{
    const char *at = json_value(line, key);
    return at != NULL && *at == '"' ? decoded(at) : NULL;
}

/* The number of elements of an array; `each` is called with the place of every one. */
static int json_each(const char *line, const char *key, void (*each)(void *, int, const char *),
                     void *arg)
{
    const char *at = json_value(line, key);
    int count = 0;
    if (at == NULL || *at != '[')
        return 0;
    for (at = skip_space(at + 1); *at && *at != ']'; at = skip_space(*at == ',' ? at + 1 : at)) {
        each(arg, count++, at);
        at = skip_space(skip_value(at));
    }
    return count;
}

static void take_number(void *arg, int index, const char *at)
{
    int **numbers = arg;
    *numbers = realloc(*numbers, sizeof(int) * (size_t)(index + 1));
    (*numbers)[index] = (int)strtol(at, NULL, 10);
}

int json_longs(const char *line, const char *key, int **numbers)
{
    *numbers = NULL;
    return json_each(line, key, take_number, numbers);
}

static void take_string(void *arg, int index, const char *at)
{
    char ***strings = arg;
    *strings = realloc(*strings, sizeof(char *) * (size_t)(index + 1));
    (*strings)[index] = decoded(at);
}

int json_strings(const char *line, const char *key, char ***strings)
{
    *strings = NULL;
    return json_each(line, key, take_string, strings);
}
