/* Rows of tables, compiled: from what agents write to dicts, and from dicts to COPY's binary
 * format. The same as rows_pure.py, and as what psycopg makes of the rows; tests hold them equal.
 *
 * Whatever is not the common case is left to Python: `encode` then says None, and the maker calls
 * what it was given. Values may run code of others (time zones), so whatever is used across such a
 * call is owned meanwhile.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <datetime.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject *decimal;     /* decimal.Decimal */
    PyObject *uuid;        /* uuid.UUID */
    PyObject *struct_type; /* msgspec.Struct */
    PyObject *s_int, *s_struct_fields, *s_utcoffset, *sixty_four;
    PyTypeObject *maker_type, *layout_type;
} module_state;

/* --- a growing block of bytes --------------------------------------------------------------- */

typedef struct {
    char *data;
    size_t size, room;
} block;

/* Room for `more` bytes behind what is there; NULL with MemoryError. */
static inline char *block_grow(block *self, size_t more) {
    if (more > self->room - self->size) {
        size_t room = self->room;
        while (more > room - self->size) {
            if (room > (size_t)PY_SSIZE_T_MAX / 2) {
                PyErr_NoMemory();
                return NULL;
            }
            room *= 2;
        }
        char *data = PyMem_Realloc(self->data, room);
        if (data == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        self->data = data;
        self->room = room;
    }
    char *place = self->data + self->size;
    self->size += more;
    return place;
}

static inline void put16(char *place, uint16_t value) {
    place[0] = (char)(value >> 8);
    place[1] = (char)value;
}

static inline void put32(char *place, uint32_t value) {
    put16(place, (uint16_t)(value >> 16));
    put16(place + 2, (uint16_t)value);
}

static inline void put64(char *place, uint64_t value) {
    put32(place, (uint32_t)(value >> 32));
    put32(place + 4, (uint32_t)value);
}

/* --- fields of COPY's binary format --------------------------------------------------------- */

/* What putting a field came to. MISFIT: not in binary, or not by us; no exception is set. */
typedef enum { FAILED = -1, MISFIT = 0, DONE = 1 } outcome;

/* An exception that Python's way will raise again, in its words; others pass. */
static outcome misfit_or_failed(void) {
    if (PyErr_ExceptionMatches(PyExc_MemoryError) || !PyErr_ExceptionMatches(PyExc_Exception)) {
        return FAILED;
    }
    PyErr_Clear();
    return MISFIT;
}

static outcome put_number(block *out, uint64_t value, unsigned bytes) {
    char *place = block_grow(out, 4 + bytes);
    if (place == NULL) return FAILED;
    put32(place, bytes);
    switch (bytes) {
        case 2: put16(place + 4, (uint16_t)value); break;
        case 4: put32(place + 4, (uint32_t)value); break;
        default: put64(place + 4, value);
    }
    return DONE;
}

/* `prefix` goes before the bytes when it is not negative. */
static outcome put_bytes(block *out, const char *data, Py_ssize_t size, int prefix) {
    size_t all = (size_t)size + (prefix >= 0);
    if (all > INT32_MAX) return MISFIT;
    char *place = block_grow(out, 4 + all);
    if (place == NULL) return FAILED;
    put32(place, (uint32_t)all);
    place += 4;
    if (prefix >= 0) *place++ = (char)prefix;
    if (size > 0) memcpy(place, data, (size_t)size);
    return DONE;
}

static outcome put_int(block *out, PyObject *value, unsigned bytes) {
    if (!PyLong_CheckExact(value)) return MISFIT;
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return MISFIT;
    if (number == -1 && PyErr_Occurred()) return FAILED;
    if (bytes == 2 && (number < INT16_MIN || number > INT16_MAX)) return MISFIT;
    if (bytes == 4 && (number < INT32_MIN || number > INT32_MAX)) return MISFIT;
    return put_number(out, (uint64_t)number, bytes);
}

static outcome put_float(block *out, PyObject *value) {
    double number;
    if (PyFloat_CheckExact(value)) {
        number = PyFloat_AS_DOUBLE(value);
    } else if (PyLong_CheckExact(value)) {
        number = PyLong_AsDouble(value);
        if (number == -1.0 && PyErr_Occurred()) return misfit_or_failed();
        if (number >= 0x1p1023 || number <= -0x1p1023) return MISFIT; /* text: how transfer does */
    } else {
        return MISFIT;
    }
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return put_number(out, bits, 8);
}

static outcome put_bool(block *out, PyObject *value) {
    if (!PyBool_Check(value)) return MISFIT;
    char byte = value == Py_True;
    return put_bytes(out, &byte, 1, -1);
}

static outcome put_text(block *out, PyObject *value, PyObject *json_text, int prefix) {
    if (!PyUnicode_CheckExact(value) && (PyObject *)Py_TYPE(value) != json_text) return MISFIT;
#if PY_VERSION_HEX < 0x030C0000
    if (PyUnicode_READY(value) < 0) return FAILED;
#endif
    if (PyUnicode_IS_ASCII(value)) {
        return put_bytes(out, PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value), prefix);
    }
    PyObject *raw = PyUnicode_AsUTF8String(value);
    if (raw == NULL) return misfit_or_failed(); /* a surrogate */
    outcome done = put_bytes(out, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), prefix);
    Py_DECREF(raw);
    return done;
}

static outcome put_bytea(block *out, PyObject *value) {
    if (!PyBytes_CheckExact(value)) return MISFIT;
    return put_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), -1);
}

static outcome put_uuid(const module_state *state, block *out, PyObject *value) {
    if ((PyObject *)Py_TYPE(value) != state->uuid) return MISFIT;
    outcome done = FAILED;
    PyObject *upper = NULL, *number = PyObject_GetAttr(value, state->s_int);
    if (number == NULL) return misfit_or_failed();
    if (!PyLong_CheckExact(number)) {
        done = MISFIT;
        goto end;
    }
    upper = PyNumber_Rshift(number, state->sixty_four);
    if (upper == NULL) goto end;
    uint64_t high = PyLong_AsUnsignedLongLong(upper);
    if (high == (uint64_t)-1 && PyErr_Occurred()) {
        done = misfit_or_failed();
        goto end;
    }
    uint64_t low = PyLong_AsUnsignedLongLongMask(number);
    if (low == (uint64_t)-1 && PyErr_Occurred()) goto end;
    char raw[16];
    put64(raw, high);
    put64(raw + 8, low);
    done = put_bytes(out, raw, sizeof raw, -1);
end:
    Py_XDECREF(upper);
    Py_DECREF(number);
    return done;
}

/* --- times ---------------------------------------------------------------------------------- */

/* Days from 2000-01-01 in the proleptic Gregorian calendar; years begin in March here. */
static int64_t days_from_2000(int year, int month, int day) {
    int64_t shifted = month <= 2 ? year - 1 : year;
    int64_t era = shifted / 400, of_era = shifted % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 730425;
}

static outcome put_date(block *out, PyObject *value) {
    if (!PyDate_CheckExact(value)) return MISFIT;
    int64_t days = days_from_2000(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value),
                                  PyDateTime_GET_DAY(value));
    return put_number(out, (uint64_t)days, 4);
}

/* What the zone of an aware time is ahead of UTC, in microseconds. */
static outcome offset_of(const module_state *state, PyObject *value, int64_t *offset) {
    if (PyDateTime_DATE_GET_TZINFO(value) == PyDateTime_TimeZone_UTC) {
        *offset = 0;
        return DONE;
    }
    PyObject *delta = PyObject_CallMethodNoArgs(value, state->s_utcoffset);
    if (delta == NULL) return misfit_or_failed();
    outcome done = MISFIT;
    if (PyDelta_Check(delta)) {
        *offset = ((int64_t)PyDateTime_DELTA_GET_DAYS(delta) * 86400 +
                   PyDateTime_DELTA_GET_SECONDS(delta)) * 1000000 +
                  PyDateTime_DELTA_GET_MICROSECONDS(delta);
        done = DONE;
    }
    Py_DECREF(delta);
    return done;
}

static outcome put_datetime(const module_state *state, block *out, PyObject *value, int zoned) {
    if (!PyDateTime_CheckExact(value)) return MISFIT;
    int64_t offset = 0;
    if ((PyDateTime_DATE_GET_TZINFO(value) != Py_None) != zoned) return MISFIT;
    if (zoned) {
        outcome known = offset_of(state, value, &offset);
        if (known != DONE) return known;
    }
    int64_t days = days_from_2000(PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value),
                                  PyDateTime_GET_DAY(value));
    int64_t seconds = PyDateTime_DATE_GET_HOUR(value) * 3600 +
                      PyDateTime_DATE_GET_MINUTE(value) * 60 + PyDateTime_DATE_GET_SECOND(value);
    int64_t micros = (days * 86400 + seconds) * 1000000 + PyDateTime_DATE_GET_MICROSECOND(value);
    return put_number(out, (uint64_t)(micros - offset), 8);
}

/* --- numeric -------------------------------------------------------------------------------- */

enum { NUMERIC_NEGATIVE = 0x4000, NUMERIC_NAN = 0xC000, NUMERIC_PLUS = 0xD000,
       NUMERIC_MINUS = 0xF000, MOST_SCALE = 16383, MOST_DIGITS = 60000 };

static outcome put_numeric_head(block *out, size_t groups, int weight, unsigned sign,
                                unsigned scale) {
    char *place = block_grow(out, 12);
    if (place == NULL) return FAILED;
    put32(place, (uint32_t)(8 + 2 * groups));
    put16(place + 4, (uint16_t)groups);
    put16(place + 6, (uint16_t)weight);
    put16(place + 8, (uint16_t)sign);
    put16(place + 10, (uint16_t)scale);
    return DONE;
}

typedef struct {
    const char *digits; /* with a point among them, perhaps */
    const char *end;
    long exponent; /* of the last digit */
    size_t count;  /* digits without leading zeros */
    int is_negative;
} decimal_text;

/* Text as of Decimal, int or float: -12.50, 1E+3, 1e-05. MISFIT for everything else. */
static outcome parse_decimal(const char *text, size_t size, decimal_text *into) {
    const char *at = text, *stop = text + size;
    into->is_negative = at < stop && *at == '-';
    at += into->is_negative;
    into->digits = NULL;
    into->count = 0;
    long after_point = 0;
    int has_point = 0, has_digits = 0;
    for (; at < stop && (*at == '.' || (*at >= '0' && *at <= '9')); at++) {
        if (*at == '.') {
            if (has_point) return MISFIT;
            has_point = 1;
            continue;
        }
        has_digits = 1;
        after_point += has_point;
        if (into->digits == NULL && *at != '0') into->digits = at;
        if (into->digits != NULL) into->count++;
    }
    into->end = at;
    long exponent = 0;
    if (at < stop && (*at == 'E' || *at == 'e')) {
        at++;
        int is_minus = at < stop && *at == '-';
        if (at < stop && (*at == '-' || *at == '+')) at++;
        if (at == stop) return MISFIT;
        for (; at < stop && *at >= '0' && *at <= '9' && exponent < 1000000; at++) {
            exponent = exponent * 10 + (*at - '0');
        }
        if (is_minus) exponent = -exponent;
    }
    if (at != stop || !has_digits) return MISFIT;
    into->exponent = exponent - after_point;
    return DONE;
}

/* Groups of four digits from the point outwards; leading and trailing zero groups are left out. */
static outcome put_decimal(block *out, const decimal_text *number) {
    long exponent = number->exponent;
    if (-exponent > MOST_SCALE || exponent > MOST_DIGITS || number->count > MOST_DIGITS) {
        return MISFIT;
    }
    unsigned scale = exponent < 0 ? (unsigned)-exponent : 0;
    if (number->count == 0) return put_numeric_head(out, 0, 0, 0, scale);
    /* the first digit stands for 10 ** top; a group for 10000 ** weight */
    long top = (long)number->count - 1 + exponent;
    int weight = (int)(top >= 0 ? top / 4 : -((3 - top) / 4));
    int place = (int)(3 - (top - 4L * weight)); /* of the digit in its group, from the left */
    size_t most = (number->count + (size_t)place + 3) / 4, head = out->size, groups = 0, used = 0;
    unsigned sign = number->is_negative ? NUMERIC_NEGATIVE : 0;
    if (put_numeric_head(out, most, weight, sign, scale) != DONE) return FAILED;
    char *to = block_grow(out, 2 * most);
    if (to == NULL) return FAILED;
    const char *at = number->digits;
    while (groups < most) {
        unsigned group = 0;
        for (; place < 4; place++) {
            while (at < number->end && *at == '.') at++;
            group = group * 10 + (at < number->end ? (unsigned)(*at++ - '0') : 0);
        }
        place = 0;
        put16(to + 2 * groups++, (uint16_t)group);
        if (group != 0) used = groups;
    }
    out->size -= 2 * (most - used);
    put32(out->data + head, (uint32_t)(8 + 2 * used));
    put16(out->data + head + 4, (uint16_t)used);
    return DONE;
}

static outcome put_numeric_text(block *out, const char *text, size_t size) {
    decimal_text number;
    outcome parsed = parse_decimal(text, size, &number);
    return parsed == DONE ? put_decimal(out, &number) : parsed;
}

/* Not a number, or infinite, as Decimal and float write it. */
static outcome put_special(block *out, const char *text, size_t size) {
    static const struct {
        const char *text;
        unsigned sign;
        unsigned scale;
    } known[] = {
        {"NaN", NUMERIC_NAN, 0},        {"nan", NUMERIC_NAN, 0},
        {"Infinity", NUMERIC_PLUS, 0},  {"inf", NUMERIC_PLUS, 0},
        {"-Infinity", NUMERIC_MINUS, 0}, {"-inf", NUMERIC_MINUS, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].text) == size && memcmp(known[i].text, text, size) == 0) {
            return put_numeric_head(out, 0, 0, known[i].sign, known[i].scale);
        }
    }
    return MISFIT;
}

static outcome put_float_as_numeric(block *out, PyObject *value) {
    char *text = PyOS_double_to_string(PyFloat_AS_DOUBLE(value), 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (text == NULL) return FAILED;
    outcome done = put_numeric_text(out, text, strlen(text));
    if (done == MISFIT) done = put_special(out, text, strlen(text));
    PyMem_Free(text);
    return done;
}

static outcome put_numeric(const module_state *state, block *out, PyObject *value) {
    if (PyFloat_CheckExact(value)) return put_float_as_numeric(out, value);
    if (!PyLong_CheckExact(value) && (PyObject *)Py_TYPE(value) != state->decimal) return MISFIT;
    PyObject *text = PyObject_Str(value);
    if (text == NULL) return misfit_or_failed(); /* more digits than Python writes */
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);
    outcome done = data == NULL ? FAILED : put_numeric_text(out, data, (size_t)size);
    if (done == MISFIT) done = put_special(out, data, (size_t)size);
    Py_DECREF(text);
    return done;
}

/* --- rows ----------------------------------------------------------------------------------- */

/* The kinds of columns, by a letter each; COPY_KINDS in postgres_copy.py says which. */
static outcome put_field(const module_state *state, block *out, char kind, PyObject *value,
                         PyObject *json_text) {
    if (value == Py_None) {
        char *place = block_grow(out, 4);
        if (place == NULL) return FAILED;
        put32(place, UINT32_MAX);
        return DONE;
    }
    switch (kind) {
        case 'h': return put_int(out, value, 2);
        case 'i': return put_int(out, value, 4);
        case 'q': return put_int(out, value, 8);
        case 'd': return put_float(out, value);
        case 'n': return put_numeric(state, out, value);
        case '?': return put_bool(out, value);
        case 'D': return put_date(out, value);
        case 'T': return put_datetime(state, out, value, 1);
        case 't': return put_datetime(state, out, value, 0);
        case 'u': return put_uuid(state, out, value);
        case 'b': return put_bytea(out, value);
        case 's': return put_text(out, value, json_text, -1);
        case 'j': return put_text(out, value, json_text, 1);
        default: return MISFIT;
    }
}

/* Whether both name the same column: names are mostly the same object. */
static inline int is_same_name(PyObject *one, PyObject *other) {
    if (one == other) return 1;
    if (!PyUnicode_CheckExact(one) || !PyUnicode_CheckExact(other)) return 0;
    int order = PyUnicode_Compare(one, other);
    if (order == -1) PyErr_Clear(); /* or an error, which makes them different */
    return order == 0;
}

static outcome put_row(const module_state *state, block *out, const char *kinds, PyObject *columns,
                       PyObject *row, PyObject *json_text) {
    Py_ssize_t count = PyTuple_GET_SIZE(columns), place = 0;
    if (!PyDict_CheckExact(row) || PyDict_GET_SIZE(row) != count) return MISFIT;
    char *head = block_grow(out, 2);
    if (head == NULL) return FAILED;
    put16(head, (uint16_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name, *value;
        if (!PyDict_Next(row, &place, &name, &value)) return MISFIT;
        if (!is_same_name(name, PyTuple_GET_ITEM(columns, i))) return MISFIT;
        Py_INCREF(value);
        outcome done = put_field(state, out, kinds[i], value, json_text);
        Py_DECREF(value);
        if (done != DONE) return done;
    }
    return DONE;
}

PyDoc_STRVAR(encode_doc,
             "encode(kinds, columns, rows, start, size, json_text, /)\n"
             "--\n\n"
             "Rows from `start` as tuples of COPY's binary format, without its header, until they\n"
             "are `size` bytes or more: (bytes, the first row that is not in them). None when a\n"
             "row has other columns or a value that is for somebody else to judge.\n\n"
             "`kinds`: a letter per column. `json_text`: a subclass of str that counts as text.");

static PyObject *encode(PyObject *module, PyObject *args) {
    const module_state *state = PyModule_GetState(module);
    PyObject *kinds, *columns, *rows, *json_text, *result = NULL;
    Py_ssize_t at, size;
    if (!PyArg_ParseTuple(args, "SO!O!nnO:encode", &kinds, &PyTuple_Type, &columns, &PyList_Type,
                          &rows, &at, &size, &json_text)) {
        return NULL;
    }
    if (!PyType_Check(json_text) ||
        !PyType_IsSubtype((PyTypeObject *)json_text, &PyUnicode_Type)) {
        PyErr_SetString(PyExc_TypeError, "encode() needs a type of text for documents");
        return NULL;
    }
    if (PyTuple_GET_SIZE(columns) != PyBytes_GET_SIZE(kinds) || at < 0 || size < 0 ||
        PyBytes_GET_SIZE(kinds) > INT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "encode() needs a kind per column, and no sizes below 0");
        return NULL;
    }
    block out = {PyMem_Malloc(4096), 0, 4096};
    if (out.data == NULL) return PyErr_NoMemory();
    outcome done = DONE;
    for (; at < PyList_GET_SIZE(rows) && out.size < (size_t)size; at++) {
        PyObject *row = Py_NewRef(PyList_GET_ITEM(rows, at));
        done = put_row(state, &out, PyBytes_AS_STRING(kinds), columns, row, json_text);
        Py_DECREF(row);
        if (done != DONE) break;
    }
    if (done == DONE) {
        result = Py_BuildValue("y#n", out.data, (Py_ssize_t)out.size, at);
    } else if (done == MISFIT) {
        result = Py_NewRef(Py_None);
    }
    PyMem_Free(out.data);
    return result;
}

/* 1 when the row is a dict with these columns in this order, and no others. */
static int has_columns(PyObject *row, PyObject *columns) {
    Py_ssize_t count = PyTuple_GET_SIZE(columns), place = 0;
    if (!PyDict_CheckExact(row) || PyDict_GET_SIZE(row) != count) return 0;
    PyObject *name;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyDict_Next(row, &place, &name, NULL)) return 0;
        if (!is_same_name(name, PyTuple_GET_ITEM(columns, i))) return 0;
    }
    return 1;
}

PyDoc_STRVAR(shape_doc,
             "shape(values, /)\n"
             "--\n\n"
             "The columns of dicts that all have the same in the same order; None when there are\n"
             "no values, or others, or something that is not a dict.");

static PyObject *shape(PyObject *Py_UNUSED(module), PyObject *values) {
    if (!PyList_Check(values) || PyList_GET_SIZE(values) == 0 ||
        !PyDict_CheckExact(PyList_GET_ITEM(values, 0))) {
        Py_RETURN_NONE;
    }
    PyObject *first = Py_NewRef(PyList_GET_ITEM(values, 0));
    PyObject *columns = PySequence_Tuple(first);
    Py_DECREF(first);
    if (columns == NULL) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); i++) {
        if (!has_columns(PyList_GET_ITEM(values, i), columns)) {
            Py_DECREF(columns);
            Py_RETURN_NONE;
        }
    }
    return columns;
}

/* --- from what agents write to rows --------------------------------------------------------- */

/* Types are kept with their layouts, so not those of a program that always makes new ones. */
enum { MOST_LAYOUTS = 256 };

/* Where the fields of a Struct type are; `count` is -1 when that is not to be known. */
typedef struct {
    PyObject_VAR_HEAD
    PyTypeObject *type; /* borrowed: as long as the layout is found by it, it is there */
    PyObject *names;    /* a tuple of text */
    PyObject *empty;    /* a row in which every field is None: a copy of it has room for all */
    Py_ssize_t count;
    Py_ssize_t offsets[];
} layout_object;

static void layout_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((layout_object *)self)->names);
    Py_XDECREF(((layout_object *)self)->empty);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot layout_slots[] = {{Py_tp_dealloc, (void *)layout_dealloc}, {0, NULL}};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *takes;   /* frozenset of types */
    PyObject *as_row;  /* what makes a dict of anything else */
    PyObject *adapt;   /* what makes a value of another type one of those */
    PyObject *layouts; /* of Struct types, by type */
    const module_state *state; /* lives as long as the type */
    char takes_common;         /* text, int, float and None are among the types */
} maker_object;

static int maker_traverse(PyObject *self_, visitproc visit, void *arg) {
    maker_object *self = (maker_object *)self_;
    Py_VISIT(Py_TYPE(self_));
    Py_VISIT(self->takes);
    Py_VISIT(self->as_row);
    Py_VISIT(self->adapt);
    Py_VISIT(self->layouts);
    return 0;
}

static int maker_clear(PyObject *self_) {
    maker_object *self = (maker_object *)self_;
    Py_CLEAR(self->takes);
    Py_CLEAR(self->as_row);
    Py_CLEAR(self->adapt);
    Py_CLEAR(self->layouts);
    return 0;
}

static void maker_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    maker_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Whether the most common types are all taken; -1 with an exception. */
static int has_common(PyObject *takes) {
    PyTypeObject *common[] = {&PyUnicode_Type, &PyLong_Type, &PyFloat_Type, Py_TYPE(Py_None)};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        int contained = PySet_Contains(takes, (PyObject *)common[i]);
        if (contained <= 0) return contained;
    }
    return 1;
}

static PyObject *maker_call(PyObject *, PyObject *const *, size_t, PyObject *);

static PyObject *maker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *takes, *as_row, *adapt;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "RowMaker() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O!OO:RowMaker", &PyFrozenSet_Type, &takes, &as_row, &adapt)) {
        return NULL;
    }
    int takes_common = has_common(takes);
    if (takes_common < 0) return NULL;
    maker_object *self = (maker_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->vectorcall = maker_call;
    self->takes_common = (char)takes_common;
    self->state = PyType_GetModuleState(type);
    self->takes = Py_NewRef(takes);
    self->as_row = Py_NewRef(as_row);
    self->adapt = Py_NewRef(adapt);
    self->layouts = PyDict_New();
    if (self->layouts == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

/* Where the instance keeps the field; -1 when it is no plain member, -2 with an exception. */
static Py_ssize_t offset_of_member(PyObject *type, PyObject *name) {
    PyObject *found = PyObject_GetAttr(type, name);
    if (found == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -2;
        PyErr_Clear();
        return -1;
    }
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDescrObject *member = (PyMemberDescrObject *)found;
        if (member->d_member->type == T_OBJECT_EX && is_same_name(PyDescr_NAME(member), name) &&
            PyType_IsSubtype((PyTypeObject *)type, PyDescr_TYPE(member))) {
            offset = member->d_member->offset;
        }
    }
    Py_DECREF(found);
    return offset;
}

static PyObject *find_layout(const module_state *state, PyTypeObject *type) {
    PyObject *names = PyObject_GetAttr((PyObject *)type, state->s_struct_fields);
    if (names == NULL) return NULL;
    Py_ssize_t count = PyTuple_CheckExact(names) ? PyTuple_GET_SIZE(names) : -1;
    layout_object *layout = (layout_object *)state->layout_type->tp_alloc(
        state->layout_type, count < 0 ? 0 : count);
    if (layout == NULL) {
        Py_DECREF(names);
        return NULL;
    }
    layout->type = type;
    layout->names = names;
    layout->empty = PyDict_New();
    if (layout->empty == NULL) {
        Py_DECREF(layout);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        layout->offsets[i] = offset_of_member((PyObject *)type, PyTuple_GET_ITEM(names, i));
        if (layout->offsets[i] == -2 ||
            PyDict_SetItem(layout->empty, PyTuple_GET_ITEM(names, i), Py_None) < 0) {
            Py_DECREF(layout);
            return NULL;
        }
        if (layout->offsets[i] == -1) count = -1;
    }
    layout->count = count;
    return (PyObject *)layout;
}

/* Owned: another thread may take it from the maker meanwhile. Looking at a type runs code of it. */
static layout_object *layout_of(maker_object *self, PyTypeObject *type) {
    layout_object *found =
        (layout_object *)PyDict_GetItemWithError(self->layouts, (PyObject *)type);
    /* a metaclass may say that two types are equal */
    if (found != NULL && found->type == type) return (layout_object *)Py_NewRef(found);
    if (found == NULL && PyErr_Occurred()) return NULL;
    Py_INCREF(type);
    PyObject *layout = find_layout(self->state, type);
    if (layout != NULL) {
        if (PyDict_GET_SIZE(self->layouts) >= MOST_LAYOUTS) PyDict_Clear(self->layouts);
        if (PyDict_SetDefault(self->layouts, (PyObject *)type, layout) == NULL) Py_CLEAR(layout);
    }
    Py_DECREF(type);
    return (layout_object *)layout;
}

/* A value as the database takes it; owned. */
static PyObject *taken(maker_object *self, PyObject *value) {
    if (self->takes_common && (PyUnicode_CheckExact(value) || PyLong_CheckExact(value) ||
                               PyFloat_CheckExact(value) || value == Py_None)) {
        return Py_NewRef(value);
    }
    int contained = PySet_Contains(self->takes, (PyObject *)Py_TYPE(value));
    if (contained < 0) return NULL;
    return contained ? Py_NewRef(value) : PyObject_CallOneArg(self->adapt, value);
}

/* The fields as they are now; Py_None when one is not set; owned. */
static PyObject *row_of_struct(maker_object *self, PyObject *value, const layout_object *layout) {
    PyObject *row = PyDict_Copy(layout->empty);
    if (row == NULL) return NULL;
    for (Py_ssize_t i = 0; i < layout->count; i++) {
        PyObject *field = *(PyObject **)((char *)value + layout->offsets[i]);
        if (field == NULL) {
            Py_DECREF(row);
            return Py_NewRef(Py_None);
        }
        Py_INCREF(field);
        PyObject *kept = taken(self, field);
        Py_DECREF(field);
        if (kept == NULL || PyDict_SetItem(row, PyTuple_GET_ITEM(layout->names, i), kept) < 0) {
            Py_XDECREF(kept);
            Py_DECREF(row);
            return NULL;
        }
        Py_DECREF(kept);
    }
    return row;
}

/* Have a new dict hold only what the database takes; 0, or -1 with an exception. */
static int adapt_all(maker_object *self, PyObject *row) {
    Py_ssize_t place = 0;
    PyObject *name, *value;
    while (PyDict_Next(row, &place, &name, &value)) {
        Py_INCREF(name);
        Py_INCREF(value);
        PyObject *kept = taken(self, value);
        /* a value given to a key that is there leaves the dict's order and places as they are */
        int failed = kept == NULL || (kept != value && PyDict_SetItem(row, name, kept) < 0);
        Py_XDECREF(kept);
        Py_DECREF(value);
        Py_DECREF(name);
        if (failed) return -1;
    }
    return 0;
}

static PyObject *maker_call(PyObject *self_, PyObject *const *args, size_t nargs,
                            PyObject *kwnames) {
    maker_object *self = (maker_object *)self_;
    PyObject *row = NULL;
    if (PyVectorcall_NARGS(nargs) != 1 || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) > 0)) {
        PyErr_SetString(PyExc_TypeError, "RowMaker takes one value and no keyword arguments");
        return NULL;
    }
    PyObject *value = args[0];
    if (PyDict_CheckExact(value)) {
        row = PyDict_Copy(value);
    } else if (PyType_IsSubtype(Py_TYPE(value), (PyTypeObject *)self->state->struct_type)) {
        layout_object *layout = layout_of(self, Py_TYPE(value));
        if (layout == NULL) return NULL;
        row = layout->count < 0 ? Py_NewRef(Py_None) : row_of_struct(self, value, layout);
        Py_DECREF(layout);
        if (row != Py_None) return row;
        Py_CLEAR(row);
        row = PyObject_CallOneArg(self->as_row, value);
    } else {
        row = PyObject_CallOneArg(self->as_row, value);
    }
    if (row == NULL) return NULL;
    if (!PyDict_CheckExact(row)) {
        PyErr_SetString(PyExc_TypeError, "as_row() must return a dict");
    } else if (adapt_all(self, row) == 0) {
        return row;
    }
    Py_DECREF(row);
    return NULL;
}

PyDoc_STRVAR(maker_doc,
             "RowMaker(takes, as_row, adapt, /)\n"
             "--\n\n"
             "Makes rows of what agents write: a new dict by column, of values of the types\n"
             "`takes`, which others become through `adapt`.");

static PyObject *maker_reduce(PyObject *self_, PyObject *Py_UNUSED(ignored)) {
    maker_object *self = (maker_object *)self_;
    return Py_BuildValue("O(OOO)", Py_TYPE(self_), self->takes, self->as_row, self->adapt);
}

static PyMethodDef maker_methods[] = {
    {"__reduce__", maker_reduce, METH_NOARGS, "For copies."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(maker_object, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_doc, (void *)maker_doc},
    {Py_tp_new, (void *)maker_new},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_members, maker_members},
    {Py_tp_methods, maker_methods},
    {Py_tp_traverse, (void *)maker_traverse},
    {Py_tp_clear, (void *)maker_clear},
    {Py_tp_dealloc, (void *)maker_dealloc},
    {0, NULL},
};

/* --- module --------------------------------------------------------------------------------- */

#define NAMED(name) "onceward.streams.sinks._rows." name

static PyType_Spec maker_spec = {NAMED("RowMaker"), sizeof(maker_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                     Py_TPFLAGS_HAVE_VECTORCALL,
                                 maker_slots};
static PyType_Spec layout_spec = {NAMED("Layout"), sizeof(layout_object), sizeof(Py_ssize_t),
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  layout_slots};

static PyMethodDef module_methods[] = {
    {"encode", encode, METH_VARARGS, encode_doc},
    {"shape", shape, METH_O, shape_doc},
    {NULL, NULL, 0, NULL},
};

static PyObject *imported(const char *module, const char *name) {
    PyObject *from = PyImport_ImportModule(module);
    if (from == NULL) return NULL;
    PyObject *found = PyObject_GetAttrString(from, name);
    Py_DECREF(from);
    return found;
}

static int fill_state(PyObject *module, module_state *state) {
    state->decimal = imported("decimal", "Decimal");
    if (state->decimal == NULL) return -1;
    state->uuid = imported("uuid", "UUID");
    if (state->uuid == NULL) return -1;
    state->struct_type = imported("msgspec", "Struct");
    if (state->struct_type == NULL) return -1;
    if (!PyType_Check(state->struct_type)) {
        PyErr_SetString(PyExc_ImportError, "msgspec.Struct is no type");
        return -1;
    }
    state->s_int = PyUnicode_InternFromString("int");
    state->s_struct_fields = PyUnicode_InternFromString("__struct_fields__");
    state->s_utcoffset = PyUnicode_InternFromString("utcoffset");
    state->sixty_four = PyLong_FromLong(64);
    if (state->s_int == NULL || state->s_struct_fields == NULL || state->s_utcoffset == NULL ||
        state->sixty_four == NULL) {
        return -1;
    }
    state->maker_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &maker_spec, NULL);
    if (state->maker_type == NULL) return -1;
    state->layout_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &layout_spec, NULL);
    if (state->layout_type == NULL) return -1;
    return PyModule_AddType(module, state->maker_type);
}

static int module_exec(PyObject *module) {
    const char *pure = getenv("ONCEWARD_PURE_PYTHON");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "ONCEWARD_PURE_PYTHON asks for the pure rows");
        return -1;
    }
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == NULL) return -1;
    return fill_state(module, PyModule_GetState(module));
}

/* Everything in the state is an object. */
#define STATE_OBJECTS (sizeof(module_state) / sizeof(PyObject *))

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    PyObject **objects = PyModule_GetState(module);
    if (objects == NULL) return 0;
    for (size_t i = 0; i < STATE_OBJECTS; i++) Py_VISIT(objects[i]);
    return 0;
}

static int module_clear(PyObject *module) {
    PyObject **objects = PyModule_GetState(module);
    if (objects == NULL) return 0;
    for (size_t i = 0; i < STATE_OBJECTS; i++) Py_CLEAR(objects[i]);
    return 0;
}

static void module_free(void *module) { (void)module_clear((PyObject *)module); }

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_rows",
    .m_doc = "Compiled form of onceward.streams.sinks.rows_pure, and COPY's binary format.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
