"""Names of C: what a symbol of ours, or a parameter in a header, must not be called.

A function of the C library is as bad a name as a keyword: the program that our code is linked
into would call ours in its place.
"""

from __future__ import annotations

import re

from stripe.intrinsics import INTRINSICS

# What the code itself calls.
_CALLED = {
    "aligned_alloc", "free", "fmod", "memset", "memcpy", "memmove", "GOMP_parallel", "omp_get_num_threads",
    "omp_get_thread_num", *INTRINSICS,
}  # fmt: skip

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
    constexpr continue default delete do double else enum explicit export extern false float for
    friend goto if inline int long main mutable namespace new noexcept not not_eq nullptr operator or
    or_eq private protected public register restrict return short signed sizeof static struct switch
    template this throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq
"""

# The types of stdint.h, macros of compilers, and the functions of C (ISO C11, section 7) and of
# POSIX whose names a program is likely to have.
_LIBRARY = """
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t intmax_t
    uintmax_t size_t linux unix errno stdin stdout stderr environ
    abort abs accept access atan2 atexit atof atoi atol atoll bind bsearch calloc cbrt clearerr clock
    close connect copysign creat ctime difftime div dup erf erfc exec exit exp2 expm1 fabs fclose fdim
    feof ferror fflush fgetc fgets fma fmax fmin fopen fork fprintf fputc fputs fread freopen frexp
    fscanf fseek ftell fwrite gamma getc getchar getenv gets gmtime hypot ilogb index io isalnum isalpha
    isdigit isspace j0 j1 jn kill labs ldexp ldiv lgamma link listen llabs lldiv llrint llround
    localtime log10 log1p log2 logb longjmp lrint lround malloc mblen memchr memcmp mktime mmap modf
    nan nearbyint nextafter open pause perror pipe poll posix_memalign printf putc putchar puts qsort
    raise rand random read realloc recv remainder remove rename remquo rewind rint scalbln scalbn
    scanf send setbuf setjmp setvbuf signal sleep snprintf socket sprintf srand sscanf stat strcat
    strchr strcmp strcpy strlen strncat strncmp strncpy strstr strtod strtof strtol swab sync system
    tgamma time tmpfile tmpnam tolower toupper truncate ungetc unlink vprintf wait write y0 y1 yn
"""

_RESERVED = {*_KEYWORDS.split(), *_LIBRARY.split(), *_CALLED, *(f"{name}f" for name in _CALLED)}
_RESERVED |= {f"{name}f" for name in _LIBRARY.split()}


def symbol_name(name: str) -> str:
    """A name as C can have it: `main`, other words of C's and functions of its library become
    `main_program`."""
    symbol = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not symbol or symbol[0].isdigit():
        symbol = f"_{symbol}"
    return f"{symbol}_program" if symbol in _RESERVED else symbol


def parameter_name(name: str) -> str:
    """A tensor's name for a parameter: `A` and `Bias` as they are; `bias_`, `MAX_` and `_a_` with an
    underscore that keeps them apart from keywords and macros (one of which is `I`).

    Different names stay different.
    """
    single = len(name) == 1 and name.isupper() and name != "I"
    mixed = name[0] != "_" and name != name.lower() and name != name.upper()
    return name if single or mixed else f"{name}_"
